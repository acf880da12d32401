"""What goes over the wire beside the score document: requests, refusals, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Annotated, Any, Final, Self

from fastapi.responses import JSONResponse
from pydantic import (
    AfterValidator,
    ConfigDict,
    FailFast,
    Field,
    StringConstraints,
    model_validator,
)

from dynamicrubric.data.formats import is_text
from dynamicrubric.doors.documents import Document
from dynamicrubric.evaluators.base import ScoredSet


def _check_text(text: str) -> str:
    if not is_text(text):
        raise ValueError("half of a surrogate pair, which no UTF-8 text has")
    return text


Text = Annotated[str, StringConstraints(min_length=1), AfterValidator(_check_text)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_check_text)]


class ErrorDocument(Document):
    """Why there is no answer."""

    error: str
    """A short name."""
    message: str


class Health(Document):
    """What the server says of itself."""

    status: str
    evaluator: str
    version: str
    waiting_sets: int


class ScoreRequest(Document):
    """One prompt and its responses."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: Text
    responses: Annotated[list[str | None], Field(min_length=1), FailFast()]
    """The response set; null is a response that there is not."""
    id: Name | None = None
    """Comes back as it is."""
    prompt_id: Name | None = None
    """Names the prompt, for evaluators that know their prompts; by default its text does."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Of whatever is random: the same request with the same seed has the same answer."""


class OpenRLHFRequest(Document):
    """What OpenRLHF posts to a --remote_rm_url: all rollouts of a batch, groups together."""

    query: Annotated[list[str], Field(min_length=1), FailFast()]
    """Prompt and response in one text."""
    prompts: Annotated[list[str], FailFast()]
    labels: list[Any] | None = None

    @model_validator(mode="after")
    def _prompts_begin_queries(self) -> Self:
        if len(self.prompts) != len(self.query):
            raise ValueError("one prompt for each query")
        pairs = zip(self.query, self.prompts, strict=True)
        if not all(query.startswith(prompt) for query, prompt in pairs):
            raise ValueError("a query begins with its prompt")
        return self


class OpenRLHFAnswer(Document):
    """What OpenRLHF reads: a number for each query."""

    rewards: list[float]
    scores: list[float]
    extra_logs: dict[str, list[float]]
    """`unscored`: 1 for each query without a score."""


class Refusal(Exception):
    """Ends a request with an error document."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(name)
        self.code, self.name, self.message = code, name, message

    def response(self) -> JSONResponse:
        """Return it as an answer."""
        headers = {"retry-after": "5"} if self.code == 503 else None
        return error_response(self.code, self.name, self.message, headers)


REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    code: {"model": ErrorDocument, "description": text}
    for code, text in {
        400: "Not HTTP as it should be.",
        401: "No key, or a wrong one.",
        408: "The body came too slowly.",
        413: "The body is too large.",
        421: "Called by another name than this machine's, without a key.",
        422: "Not a request as described; the message names the field.",
        429: "As many requests as the server takes at a time; see Retry-After.",
        503: "A model or an endpoint is down, or the server is stopping.",
        504: "Not scored in time.",
    }.items()
}
HEALTH: Final[dict[int | str, dict[str, Any]]] = {
    421: REFUSALS[421],
    503: {"model": Health, "description": "The server cannot score."},
}
KEY_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {code: REFUSALS[code] for code in (401, 421)}


def for_openrlhf(groups: list[list[int]], scored: list[ScoredSet]) -> OpenRLHFAnswer:
    """Return a number for each place.

    OpenRLHF has no null: what is unscored gets its group's mean, which is no advantage to anybody,
    and a group without any score gets the mean of the request's scores, all of it.

    Raises:
        Refusal: there is not one score.
    """
    everything = [value for one in scored for value in _known(one)]
    if not everything:
        reasons = sorted({score.reason for one in scored for score in one.scores if score.reason})
        raise Refusal(503, "unscored", f"no response has a score: {', '.join(reasons[:5])}")
    rewards, unscored = [0.0] * sum(map(len, groups)), [0.0] * sum(map(len, groups))
    for places, one in zip(groups, scored, strict=True):
        neutral = fmean(_known(one) or everything)
        for place, score in zip(places, one.scores, strict=True):
            rewards[place] = neutral if score.value is None else score.value
            unscored[place] = float(score.value is None)
    return OpenRLHFAnswer(rewards=rewards, scores=rewards, extra_logs={"unscored": unscored})


def _known(one: ScoredSet) -> list[float]:
    return [score.value for score in one.scores if score.value is not None]


def problem_in(problem: Mapping[str, Any]) -> str:
    """Say what is wrong and where, and nothing of what was sent."""
    place = ".".join(str(part) for part in problem["loc"][1:]) or "body"
    if problem["type"] == "json_invalid":
        return "body: not JSON"
    return f"{place}: {problem['msg'][:200]}"


def error_response(
    code: int, name: str, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return an error document as an answer."""
    text = message.encode("ascii", "backslashreplace").decode()
    return JSONResponse({"error": name, "message": text}, code, headers)
