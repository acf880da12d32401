"""Two small interfaces: generate (token ids in, text out) and judge (a response, many criteria)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from dynamicrubric.config import Sampling
from dynamicrubric.prompts.chat import ChatFrame, Message
from dynamicrubric.types import Verdict

FinishReason = Literal["stop", "length"]
JsonSchema = Mapping[str, object]
"""What constrained decoding keeps a completion to."""


@dataclass(frozen=True)
class GenerateRequest:
    """One completion to sample.

    Attributes:
        prompt_ids: the rendered prompt, exactly one BOS.
        seed: this request's own seed: its tokens do not depend on its neighbours in the batch.
        messages: the same prompt as a conversation, for an endpoint that takes no token ids.
    """

    prompt_ids: Sequence[int]
    seed: int
    messages: Sequence[Message] = ()


@dataclass(frozen=True)
class Generation:
    """A sampled completion.

    Attributes:
        token_ids: completion ids, the end token included when there is one.
        text: decoded content without control tokens.
        finish_reason: `stop` at an end token, `length` when cut at the token limit.
        logprobs: the model's own log p of each token, before temperature, floor and grammar, where
            the engine gives them.
        failure: why there is no text ("too_long", "content_filter"). Such a generation is empty
            and its finish reason is `length`, so that nobody takes it for a finished text.
    """

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    logprobs: tuple[float, ...] | None = None
    failure: str | None = None

    @classmethod
    def failed(cls, reason: str) -> Generation:
        """Return what stands for a completion that there is not, for a reason that is counted."""
        return cls((), "", "length", failure=str(reason))


@dataclass(frozen=True)
class JudgeRequest:
    """One response and the criteria to judge it by.

    Attributes:
        response: the text to judge.
        criteria: M criterion sentences.
        seed: seed of whatever is random in the verifier.
        prompt: what the response answers, for a verifier that reads it; empty shows none.
    """

    response: str
    criteria: Sequence[str]
    seed: int
    prompt: str = ""


class PromptTokenizer(Protocol):
    """A checkpoint's tokenizer with the frames of its prompts.

    Attributes:
        hf: transformers' tokenizer.
        end_ids: every id that ends a completion.
        content_ids: ids that are no control tokens.
    """

    hf: Any
    end_ids: frozenset[int]
    content_ids: frozenset[int]

    @property
    def frame(self) -> ChatFrame | None:
        """The model's chat frame, which a verifier asks with; None where there is none."""
        ...

    @property
    def eos_id(self) -> int:
        """Id of the token that ends a completion in training."""
        ...

    @property
    def pad_id(self) -> int:
        """Id that pads."""
        ...

    def content(self, text: str) -> list[int]:
        """Encode text as content: special-token parsing off, nothing added."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Decode a completion, control tokens left out; the marks of thinking stay."""
        ...

    def text_of(self, token_id: int) -> str:
        """Return the text of one id, a control token's as well."""
        ...

    def policy_prompt(self, prompt: str) -> list[int]:
        """Token ids that ask the policy for a response."""
        ...

    def generator_prompt(self, prompt: str, responses: Sequence[str]) -> list[int]:
        """Token ids that ask the generator for a rubric; a static one sees no responses."""
        ...


class GenerateEngine(Protocol):
    """Samples completions."""

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling) -> list[Generation]:
        """Return one generation for each request, in order."""
        ...


class ConstrainableEngine(Protocol):
    """Samples completions, freely or kept to a schema."""

    def generate(
        self,
        requests: Sequence[GenerateRequest],
        sampling: Sampling,
        schema: JsonSchema | None = None,
    ) -> list[Generation]:
        """Return one generation for each request, in order."""
        ...


@dataclass(frozen=True)
class Constrained:
    """An engine all of whose completions keep to one schema.

    They come from another distribution than the model's own: for writing and measuring, and not
    for a training's rollouts.

    Attributes:
        engine: what samples.
        schema: the form, such as `rubrics.rubric_schema` has it.
    """

    engine: ConstrainableEngine
    schema: JsonSchema

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling) -> list[Generation]:
        """Return one generation for each request, in order."""
        return self.engine.generate(requests, sampling, self.schema)


class Verifier(Protocol):
    """Judges responses; frozen."""

    def accepts(self, criterion: str) -> bool:
        """Return whether the criterion is one that this verifier can judge at all."""
        ...

    def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        """Return one verdict for each criterion of each request, in order."""
        ...
