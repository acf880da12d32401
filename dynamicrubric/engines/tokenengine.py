"""What engines that take and give token ids share: generation, verdicts, thinking, the probe.

A verdict is the distribution over yes and no in the one place where the answer begins, asked for by
the ids of all tokens that say yes or no, so that none is missing below the likeliest few (case 13).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import (
    FinishReason,
    GenerateRequest,
    Generation,
    JsonSchema,
    JudgeRequest,
    PromptTokenizer,
)
from dynamicrubric.engines.endpoint import BadReply
from dynamicrubric.engines.identity import EngineIdentity, Probe, verify_probe
from dynamicrubric.engines.reading import VerdictReading, labels_of, sampled_tokens
from dynamicrubric.engines.thinking import opens_thinking, without_thinking
from dynamicrubric.errors import UserError
from dynamicrubric.prompts.chat import ChatFrame
from dynamicrubric.prompts.verifier import context_ids, question_ids
from dynamicrubric.types import Verdict
from dynamicrubric.verdicts import UnscoredReason

MAX_LABELS: Final = 128
"""Most token ids whose log-probabilities vLLM returns by name."""
_TOP: Final = 20


@dataclass(frozen=True)
class TokenSampling:
    """How completions are sampled and what is told of them.

    Attributes:
        temperature: 0 takes the likeliest token.
        min_p: floor relative to the likeliest token.
        max_tokens: longest completion.
        logprobs: so many of the likeliest tokens are told in each place; at 1 a backend may tell
            the sampled token's alone.
        label_ids: instead of the likeliest, these tokens.
        schema: what completions are kept to.
    """

    temperature: float
    min_p: float
    max_tokens: int
    logprobs: int = 1
    label_ids: tuple[int, ...] = ()
    schema: JsonSchema | None = None


@dataclass(frozen=True)
class Completion:
    """A sampled completion as token ids.

    Attributes:
        token_ids: the end token included when there is one.
        finish_reason: `stop` at an end token, `length` when cut.
        logprobs: raw log-probability of each token, shape (tokens,).
        top: (token id, raw log-probability) pairs in each place, shape (tokens, pairs), or ().
    """

    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[float, ...]
    top: tuple[tuple[tuple[int, float], ...], ...]


def finish_reason_of(said: object) -> FinishReason | None:
    """Return why vLLM ended a completion; None for what leaves no whole text ("abort", "error")."""
    if said == "stop":
        return "stop"
    return "length" if said == "length" else None


class TokenEngine(ABC):
    """Generates and judges through a backend that takes and gives token ids."""

    def __init__(
        self,
        tokenizer: PromptTokenizer,
        *,
        reading: VerdictReading | None = None,
        max_verdict_tokens: int = 1,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare an engine.

        Args:
            tokenizer: the checkpoint's; one with a chat frame to judge.
            reading: languages and limits of verdicts.
            max_verdict_tokens: limit of a verdict's reply: 1 looks at the first token's
                probabilities; thousands for a model that thinks first.
            on_progress: told what the engine is at, now and then.

        Raises:
            UserError: the chat frame opens a thinking block that one token cannot close.
        """
        self.tokenizer = tokenizer
        self.reading = reading or VerdictReading()
        self._max_verdict_tokens = max_verdict_tokens
        self._on_progress = on_progress
        frame = tokenizer.frame
        thinks = frame is not None and self._opens_thinking(frame.render([("user", "")]))
        if thinks and max_verdict_tokens == 1:
            raise UserError(
                doing="preparing a verifier",
                got="a chat frame that lets the model think, and 1 token for a verdict",
                expected="room for the thinking, or a frame without it",
                remedy="raise max_verdict_tokens, or derive the frame with enable_thinking false",
            )

    @property
    @abstractmethod
    def identity(self) -> EngineIdentity:
        """Which engine this is now; every rollout records it."""

    @property
    @abstractmethod
    def max_model_len(self) -> int:
        """Longest prompt and completion together, in tokens."""

    @abstractmethod
    def _complete(
        self, requests: Sequence[GenerateRequest], sampling: TokenSampling
    ) -> list[Completion | BadReply]:
        """Return a completion for each request, in order; each prompt leaves room for a token."""

    def generate(
        self,
        requests: Sequence[GenerateRequest],
        sampling: Sampling,
        schema: JsonSchema | None = None,
    ) -> list[Generation]:
        """Return one generation for each request, in order.

        A prompt that leaves no room for a token fails as "too_long" and takes no other with it.

        Args:
            requests: what to complete.
            sampling: how.
            schema: what completions are kept to from their first token: no model thinks then. They
                come without log-probabilities: vLLM's "raw" ones are of what the grammar leaves.

        Raises:
            UserError: the engine, or a prompt that lets the model think, does not go with a schema.
        """
        if schema is not None and any(self._opens_thinking(r.prompt_ids) for r in requests):
            raise UserError(
                doing="keeping completions to a schema",
                got="a prompt that opens a thinking block",
                expected="a chat frame without thinking",
                remedy="derive the frame with enable_thinking false, or sample without a schema",
            )
        asked = TokenSampling(
            sampling.temperature, sampling.min_p, sampling.max_tokens, schema=schema
        )
        answers = self._complete_fitting(requests, asked)
        return [
            self._generation(request, answer, tells_logprobs=schema is None)
            for request, answer in zip(requests, answers, strict=True)
        ]

    def accepts(self, criterion: str) -> bool:
        """Return whether there is anything to read: a language model judges any sentence."""
        return bool(criterion.strip())

    def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        """Return verdicts of shape (requests, criteria of each).

        Raises:
            UserError: the engine has no chat frame, or too many tokens for yes and no.
        """
        frame = self.tokenizer.frame
        if frame is None:
            raise UserError(
                doing="judging",
                got="an engine without a chat frame",
                expected="the chat frame of an instruction-tuned model",
                remedy="use a verifier checkpoint that has a chat template",
            )
        prompts = list(chain.from_iterable(self._questions(frame, r) for r in requests))
        asked = TokenSampling(0.0, 0.0, self._max_verdict_tokens, _TOP, self._label_ids)
        answers = self._complete_fitting(prompts, asked)
        verdicts = map(self._verdict, prompts, answers)
        return [[next(verdicts) for _ in request.criteria] for request in requests]

    def _questions(self, frame: ChatFrame, request: JudgeRequest) -> list[GenerateRequest]:
        """Render one prompt a criterion; they share their beginning, which a cache finds again."""
        context = context_ids(frame, request.prompt, request.response)
        return [
            GenerateRequest(context + question_ids(frame, criterion), request.seed)
            for criterion in request.criteria
        ]

    def next_probabilities(
        self, prompts: Sequence[Sequence[int]], ids: Sequence[int]
    ) -> list[Mapping[int, float] | str]:
        """Return the probability of each id behind each prompt, or why there is none.

        Raises:
            UserError: more ids than can be asked for.
        """
        self._check_number(tuple(ids), "the labels of a rating")
        asked = TokenSampling(0.0, 0.0, 1, _TOP, tuple(ids))
        answers = self._complete_fitting([GenerateRequest(p, 0) for p in prompts], asked)
        return [
            answer.reason
            if isinstance(answer, BadReply)
            else {i: math.exp(p) for i, p in (answer.top[0] if answer.top else ())}
            for answer in answers
        ]

    def probe(self, prompt_ids: Sequence[int]) -> Probe:
        """Return the likeliest tokens after a prompt."""
        asked = TokenSampling(0.0, 0.0, 1, _TOP)
        (answer,) = self._complete([GenerateRequest(prompt_ids, 0)], asked)
        pairs = answer.top[0] if isinstance(answer, Completion) and answer.top else ()
        return Probe(tuple(prompt_ids), dict(pairs))

    def verify(self, expected: Probe, tolerance: float) -> None:
        """Check twice that the engine answers as its weights should: once cached, once perhaps not.

        Raises:
            InstrumentError: it does not.
        """
        for _ in range(2):
            found = self.probe(expected.prompt_ids)
            what = f"the {self.identity.role}'s engine ({self.identity.engine})"
            verify_probe(found, expected, tolerance=tolerance, what=what)

    def _complete_fitting(
        self, requests: Sequence[GenerateRequest], sampling: TokenSampling
    ) -> list[Completion | BadReply]:
        fitting = [r for r in requests if len(r.prompt_ids) < self.max_model_len]
        answers = iter(self._complete(fitting, sampling) if fitting else [])
        return [
            next(answers)
            if len(r.prompt_ids) < self.max_model_len
            else BadReply(
                UnscoredReason.TOO_LONG, f"{len(r.prompt_ids)} of {self.max_model_len} tokens"
            )
            for r in requests
        ]

    def _generation(
        self, request: GenerateRequest, answer: Completion | BadReply, *, tells_logprobs: bool
    ) -> Generation:
        if isinstance(answer, BadReply):
            return Generation.failed(answer.reason)
        text = self.tokenizer.decode(answer.token_ids)
        logprobs = answer.logprobs if tells_logprobs else None
        found = Generation(answer.token_ids, text, answer.finish_reason, logprobs)
        return without_thinking(found, opened=self._opens_thinking(request.prompt_ids))

    def _verdict(self, request: GenerateRequest, answer: Completion | BadReply) -> Verdict:
        if isinstance(answer, BadReply):
            return Verdict.unscored(answer.reason)
        tokens = sampled_tokens(answer.token_ids, answer.top, self.tokenizer.text_of)
        opened = self._opens_thinking(request.prompt_ids)
        return self.reading.of_tokens(tokens, opened=opened)

    def _opens_thinking(self, prompt_ids: Sequence[int]) -> bool:
        return opens_thinking(prompt_ids, self.tokenizer.text_of)

    @cached_property
    def _label_ids(self) -> tuple[int, ...]:
        """Ids of all tokens that say yes or no.

        Raises:
            UserError: they are more than can be asked for.
        """
        ids = tuple(chain(*labels_of(self.tokenizer, self.reading.languages)))
        self._check_number(ids, f"yes and no in {', '.join(self.reading.languages)}")
        return ids

    @staticmethod
    def _check_number(ids: Sequence[int], what: str) -> None:
        if len(ids) > MAX_LABELS:
            raise UserError(
                doing=f"asking for {what} by token id",
                got=f"{len(ids)} tokens that say so",
                expected=f"at most {MAX_LABELS}, which is all that vLLM tells of in a place",
                remedy="configure fewer languages, or the engine `transformers` for the verifier",
            )
