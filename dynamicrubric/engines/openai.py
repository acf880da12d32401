"""Any OpenAI-compatible chat endpoint as an engine: generation and verdicts.

The endpoint frames and tokenises the conversation itself, so what a text that spells control tokens
does there is its provider's affair; `vllm_server` sends token ids instead. All verdicts rest on
log-probabilities, or all on the replies' texts where none are asked for: one set is never read in
both ways, since only the first knows a coverage floor and an undecided band.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import FinishReason, GenerateRequest, Generation, JudgeRequest
from dynamicrubric.engines.endpoint import BadReply, Endpoint, LogprobsRefused
from dynamicrubric.engines.identity import EngineIdentity
from dynamicrubric.engines.pacing import Cost
from dynamicrubric.engines.rating import (
    RATING_TOKENS,
    Rated,
    RateRequest,
    rating_of_tokens,
    shared_cost,
)
from dynamicrubric.engines.reading import SampledToken, VerdictReading, add_up
from dynamicrubric.engines.thinking import answer_of, without_thinking
from dynamicrubric.errors import UserError
from dynamicrubric.prompts.chat import Message
from dynamicrubric.prompts.verifier import verifier_messages
from dynamicrubric.ratings import Rating
from dynamicrubric.types import Verdict
from dynamicrubric.verdicts import UnscoredReason

CHAT_PATH: Final = "/chat/completions"
VERDICT_TOKENS: Final = 8
"""Room for one word, its marks and the end token, where there is no thinking."""
_SEED_BITS: Final = 31  # some endpoints keep a seed in 32 bits
_FINISHED: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
}


@dataclass(frozen=True)
class ChatReply:
    """What a chat endpoint answered.

    Attributes:
        text: the assistant's text.
        finish_reason: whether it ended or was cut.
        tokens: tokens with their places' probabilities, () if the endpoint sends none.
        logprobs: log-probability of each token, None if the endpoint sends none.
        has_thought: the endpoint took the thinking out of the text already.
    """

    text: str
    finish_reason: FinishReason
    tokens: tuple[SampledToken, ...] = ()
    logprobs: tuple[float, ...] | None = None
    has_thought: bool = False


class OpenAIEngine:
    """Generates and judges by an OpenAI-compatible chat endpoint.

    Attributes:
        endpoint: where calls go.
        role: policy, generator or verifier.
        reading: languages and limits of verdicts.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        role: str = "verifier",
        reading: VerdictReading | None = None,
        top_logprobs: int = 20,
        max_verdict_tokens: int = VERDICT_TOKENS,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Use an endpoint.

        Args:
            endpoint: where calls go.
            role: policy, generator or verifier.
            reading: languages and limits of verdicts.
            top_logprobs: alternatives to ask for in each place (OpenAI gives at most 20); 0 reads
                verdicts off the text.
            max_verdict_tokens: limit of one verdict's reply: thousands for a model that thinks.
            on_progress: told (answered, of) while requests run.
        """
        self.endpoint = endpoint
        self.role = role
        self.reading = reading or VerdictReading()
        self._top = top_logprobs
        self._max_verdict_tokens = max_verdict_tokens
        self._on_progress = on_progress

    @property
    def identity(self) -> EngineIdentity:
        """Role, host and the name that the endpoint knows the model by: it shows no weights."""
        settings = {"host": self.endpoint.host}
        if self.role == "verifier":
            settings["verdicts_from"] = "probabilities" if self._top else "text"
        model = self.endpoint.config.model
        return EngineIdentity(self.role, f"named:{model}", "openai", settings)

    @property
    def cost(self) -> Cost:
        """Calls, tokens and seconds so far."""
        return self.endpoint.cost

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling) -> list[Generation]:
        """Return one generation for each request, in order; their token ids are not known.

        Raises:
            UserError: a request without `messages`: the endpoint takes no token ids; or it gives
                no log-probabilities and was asked for some.
            InstrumentError: the endpoint is down.
        """
        if not all(request.messages for request in requests):
            raise UserError(
                doing=f"generating with {self.endpoint.config.model!r} at {self.endpoint.host}",
                got="a prompt that is token ids alone",
                expected="a conversation: the endpoint has a tokenizer of its own",
                remedy="use the engine `vllm` or `transformers` for this role",
            )
        extra = {"min_p": sampling.min_p} if sampling.min_p else {}
        payloads = [
            self._payload(r.messages, r.seed, sampling.max_tokens, sampling.temperature) | extra
            for r in requests
        ]
        return [_generation(reply) for reply in self._ask(payloads, top=1)]

    def accepts(self, criterion: str) -> bool:
        """Return True: a language model reads any sentence."""
        return bool(criterion.strip())

    def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        """Return verdicts of shape (requests, criteria of each).

        Raises:
            UserError: the endpoint refuses log-probabilities, or so many of them.
            InstrumentError: the endpoint is down.
        """
        payloads = [
            self._payload(
                verifier_messages(request.prompt, request.response, criterion),
                request.seed,
                self._max_verdict_tokens,
                0.0,
            )
            for request in requests
            for criterion in request.criteria
        ]
        replies = iter(self._ask(payloads, top=self._top))
        return [[self._verdict(next(replies)) for _ in request.criteria] for request in requests]

    def rate(self, requests: Sequence[RateRequest]) -> list[Rated]:
        """Return one rating for each request, in order; what they took is shared evenly.

        Raises:
            UserError: the endpoint refuses log-probabilities, or so many of them.
            InstrumentError: the endpoint is down.
        """
        if not self._top:
            raise UserError(
                doing=f"rating with {self.endpoint.config.model!r} at {self.endpoint.host}",
                got="top_logprobs = 0",
                expected="the likeliest tokens' probabilities, which a rating is read from",
            )
        before, room = self.cost, max(RATING_TOKENS, self._max_verdict_tokens)
        replies = self._ask([self._payload(r.messages, 0, room, 0.0) for r in requests], self._top)
        ratings = [self._rating(*pair) for pair in zip(replies, requests, strict=True)]
        return shared_cost(ratings, before, self.cost)

    def _rating(self, reply: ChatReply | BadReply, request: RateRequest) -> Rating:
        if isinstance(reply, BadReply):
            return Rating.unscored(reply.reason)
        if not reply.tokens or not _tokens_show_the_answer(reply):
            return Rating.unscored(UnscoredReason.NO_USABLE_PROBABILITY)
        return rating_of_tokens(reply.tokens, request.labels, self.reading.coverage_floor)

    def _payload(
        self, messages: Sequence[Message], seed: int, max_tokens: int, temperature: float
    ) -> dict[str, Any]:
        return {
            "model": self.endpoint.config.model,
            "messages": [{"role": role, "content": content} for role, content in messages],
            "temperature": temperature,
            "top_p": 1.0,
            "n": 1,
            "seed": seed % (1 << _SEED_BITS),
            self.endpoint.config.token_limit_field: max_tokens,
        }

    def _ask(self, payloads: Sequence[Mapping[str, Any]], top: int) -> list[ChatReply | BadReply]:
        """Send requests, with log-probabilities if they are configured."""
        if not self._top:
            return self._send(payloads)
        wanted = {"logprobs": True, "top_logprobs": top}
        try:
            return self._send([{**payload, **wanted} for payload in payloads])
        except LogprobsRefused as refusal:
            raise UserError(
                doing=f"asking {self.endpoint.config.model!r} at {self.endpoint.host} for the "
                f"{top} likeliest tokens' log-probabilities",
                got=str(refusal),
                remedy="set top_logprobs to the endpoint's limit, or to 0 to read all verdicts "
                "off the text, without coverage floor and undecided band",
            ) from None

    def _send(self, payloads: Sequence[Mapping[str, Any]]) -> list[ChatReply | BadReply]:
        answers = self.endpoint.post_all(CHAT_PATH, payloads, self._on_progress)
        assert len(answers) == len(payloads), "the endpoint lost a request"
        return [a if isinstance(a, BadReply) else read_chat_reply(a) for a in answers]

    def _verdict(self, reply: ChatReply | BadReply) -> Verdict:
        if isinstance(reply, BadReply):
            return Verdict.unscored(reply.reason)
        if self._top and reply.tokens and _tokens_show_the_answer(reply):
            return self.reading.of_tokens(reply.tokens)
        read = self.reading.of_text(reply.text, reply.finish_reason)
        if self._top and read.is_scored:
            return Verdict.unscored(UnscoredReason.NO_USABLE_PROBABILITY)
        return read


def read_chat_reply(answer: Mapping[str, Any]) -> ChatReply | BadReply:
    """Read the one choice of a chat answer; anything else is a bad reply with a reason."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not all(isinstance(c, Mapping) for c in choices):
        return BadReply("malformed_reply", str(answer)[:200])
    if len(choices) != 1:
        return BadReply("wrong_count" if choices else "empty_choices", f"{len(choices)} choices")
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, Mapping):
        return BadReply("malformed_reply", str(choice)[:200])
    if message.get("refusal"):
        return BadReply("refusal", str(message["refusal"])[:200])
    finish = choice.get("finish_reason")
    if finish not in _FINISHED:
        reason = finish if finish in ("content_filter", "tool_calls") else "unknown_finish_reason"
        return BadReply(reason, str(finish))
    text = message.get("content")
    if text is not None and not isinstance(text, str):
        return BadReply("malformed_reply", str(message)[:200])
    thought = message.get("reasoning_content") or message.get("reasoning")
    tokens, logprobs = _read_logprobs(choice.get("logprobs"))
    return ChatReply(text or "", _FINISHED[finish], tokens, logprobs, bool(thought))


def _read_logprobs(
    found: object,
) -> tuple[tuple[SampledToken, ...], tuple[float, ...] | None]:
    """Read the `logprobs` of a choice; none at all if any of it is not as it should be.

    Without alternatives there are no tokens: a place's chosen token alone decides nothing.
    """
    if not isinstance(found, dict):
        return (), None
    try:
        content = found["content"]
        tokens = tuple(
            SampledToken(
                str(one["token"]),
                add_up((str(t["token"]), _logprob(t["logprob"])) for t in one["top_logprobs"]),
            )
            for one in content
        )
        logprobs = tuple(_logprob(one["logprob"]) for one in content)
    except (TypeError, KeyError, ValueError):
        return (), None
    has_all = all(map(math.isfinite, logprobs))
    return (tokens if all(token.top for token in tokens) else ()), logprobs if has_all else None


def _logprob(value: float | None) -> float:
    """Read one log-probability: null is how a server writes minus infinity, which JSON lacks."""
    return -math.inf if value is None else float(value)


def _tokens_show_the_answer(reply: ChatReply) -> bool:
    """Say whether it is known where the answer begins among the tokens.

    An endpoint that takes thinking out of the text may leave it among the tokens, unmarked.
    """
    if not reply.has_thought:
        return True
    answer = answer_of("".join(token.text for token in reply.tokens))
    return answer is not None and answer.strip() == reply.text.strip()


def _generation(reply: ChatReply | BadReply) -> Generation:
    if isinstance(reply, BadReply):
        return Generation.failed(reply.reason)
    return without_thinking(Generation((), reply.text, reply.finish_reason, reply.logprobs))
