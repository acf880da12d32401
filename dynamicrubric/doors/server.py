"""The HTTP door: a prompt and its responses in, scores, rubric and verdicts out.

`make_app` is the application; `serve` runs it until it is told to stop. It reads requests on one
event loop and scores them on the worker's thread. Refusals are documents of `error` and `message`
and never repeat what was sent.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import ConfigDict, Field, StringConstraints, model_validator
from starlette.exceptions import HTTPException

import dynamicrubric
from dynamicrubric.doors.binding import url_of
from dynamicrubric.doors.documents import Document, ScoreDocument, document_of, seed_of, set_of
from dynamicrubric.doors.gate import App, Gate
from dynamicrubric.doors.limits import Limits
from dynamicrubric.doors.meters import CONTENT_TYPE, Meters
from dynamicrubric.doors.page import docs_page
from dynamicrubric.doors.worker import MAX_SETS, WINDOW_SECONDS, Closed, ScoringWorker
from dynamicrubric.errors import InstrumentError
from dynamicrubric.evaluators.base import Evaluator, ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
_LEFT: Final = 499
"""Nobody reads this status: the client has left."""


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

    prompt: Annotated[str, StringConstraints(min_length=1)]
    responses: Annotated[list[str | None], Field(min_length=1)]
    """The response set; null is a response that there is not."""
    id: Name | None = None
    """Comes back as it is."""
    prompt_id: Name | None = None
    """Names the prompt, for evaluators that know their prompts; by default its text does."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Of whatever is random: the same request with the same seed has the same answer."""


class OpenRLHFRequest(Document):
    """What OpenRLHF posts to a --remote_rm_url: all rollouts of a batch, groups together."""

    query: Annotated[list[str], Field(min_length=1)]
    """Prompt and response in one text."""
    prompts: list[str]
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
    extra_logs: dict[str, float]


class _Refusal(Exception):
    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(name)
        self.code, self.name, self.message = code, name, message

    def response(self) -> JSONResponse:
        headers = {"retry-after": "5"} if self.code == 503 else None
        return _error(self.code, self.name, self.message, headers)


_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
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
_HEALTH: Final[dict[int | str, dict[str, Any]]] = {
    421: _REFUSALS[421],
    503: {"model": Health, "description": "The server cannot score."},
}
_KEY_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    code: _REFUSALS[code] for code in (401, 421)
}


def make_app(
    evaluator: Evaluator,
    *,
    limits: Limits | None = None,
    key: str | None = None,
    max_sets: int = MAX_SETS,
    window_seconds: float = WINDOW_SECONDS,
    prompt_ids: Mapping[str, str] | None = None,
) -> App:
    """Return the application.

    Args:
        evaluator: scores; used by one thread alone, which ends with the application.
        limits: who may ask how much.
        key: what callers have to send; None needs none and answers to loopback names alone.
        max_sets: most sets that are scored together.
        window_seconds: how long a batch waits for company.
        prompt_ids: id of each prompt that the evaluator's world knows, by its text.
    """
    limits, meters = limits or Limits(), Meters()
    worker = ScoringWorker(
        evaluator, max_sets=max_sets, window_seconds=window_seconds, on_batch=meters.batch.observe
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(worker.close, limits.grace_seconds)

    app = FastAPI(
        title="DynamicRubric",
        version=dynamicrubric.__version__,
        summary="Scores of response sets, with the rubric and the verdicts behind them.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    _add_errors(app)
    _add_scoring(app, Scoring(worker, limits, meters, prompt_ids or {}))
    _add_pages(app, worker, meters)
    _describe_key(app, needed=key is not None)
    return Gate(app, limits=limits, meters=meters, key=key)


def _add_scoring(app: FastAPI, scoring: Scoring) -> None:
    @app.post("/v1/score", responses=_REFUSALS, tags=["scores"])
    async def score(request: Request, asked: ScoreRequest) -> ScoreDocument:
        """Score one response set: all responses of one prompt together."""
        responses = scoring.set_of(asked.prompt, asked.responses, asked.prompt_id)
        [scored] = await scoring.score(request, [responses], asked.seed)
        return document_of(responses, scored, scoring.worker.evaluator.name, name=asked.id)

    @app.post("/openrlhf", responses=_REFUSALS, tags=["scores"])
    async def openrlhf(request: Request, asked: OpenRLHFRequest) -> OpenRLHFAnswer:
        """Score a batch of OpenRLHF's --remote_rm_url; queries of one prompt are one set."""
        places: dict[str, list[int]] = {}
        for place, prompt in enumerate(asked.prompts):
            places.setdefault(prompt, []).append(place)
        sets = [
            scoring.set_of(prompt, [asked.query[place].removeprefix(prompt) for place in group])
            for prompt, group in places.items()
        ]
        return _for_openrlhf(list(places.values()), await scoring.score(request, sets, 0))


def _for_openrlhf(groups: list[list[int]], scored: list[ScoredSet]) -> OpenRLHFAnswer:
    """Return a number for each place.

    OpenRLHF has no null: what is unscored gets its group's mean, which is no advantage to anybody,
    and a group without any score gets 0, all of it.
    """
    rewards = [0.0] * sum(map(len, groups))
    unscored = 0
    for places, one in zip(groups, scored, strict=True):
        known = [score.value for score in one.scores if score.value is not None]
        neutral = sum(known) / len(known) if known else 0.0
        for place, score in zip(places, one.scores, strict=True):
            rewards[place] = neutral if score.value is None else score.value
            unscored += score.value is None
    return OpenRLHFAnswer(
        rewards=rewards, scores=rewards, extra_logs={"unscored_rate": unscored / len(rewards)}
    )


@dataclass(frozen=True)
class Scoring:
    """How requests become scores: checked, handed to the worker, waited for, counted."""

    worker: ScoringWorker
    limits: Limits
    meters: Meters
    prompt_ids: Mapping[str, str]

    def set_of(
        self, prompt: str, responses: Sequence[str | None], prompt_id: str | None = None
    ) -> ResponseSet:
        """Return a response set; refuse what a body may hold and a set may not.

        Raises:
            _Refusal: an empty prompt, too many responses, or too long ones.
        """
        limits = self.limits
        if not prompt.strip():
            raise _Refusal(422, "bad_request", "prompt: got white space alone")
        if len(responses) > limits.max_responses:
            got = f"responses: got {len(responses)}, at most {limits.max_responses} are taken"
            raise _Refusal(422, "bad_request", got)
        for field, text in (("prompt", prompt), *(("responses", text) for text in responses)):
            if text is not None and len(text) > limits.max_chars:
                got = f"{field}: got {len(text)} characters, at most {limits.max_chars} are taken"
                raise _Refusal(422, "bad_request", got)
        return set_of(prompt, responses, prompt_id=prompt_id or self.prompt_ids.get(prompt))

    async def score(
        self, request: Request, sets: Sequence[ResponseSet], seed: int
    ) -> list[ScoredSet]:
        """Return what the worker makes of sets; leave the queue if the client does.

        Raises:
            _Refusal: the worker stops, an instrument is broken, or it takes too long.
        """
        jobs: list[Future[ScoredSet]] = []
        seconds = self.limits.request_seconds
        try:
            jobs += [self.worker.submit(one, seed_of(seed, one)) for one in sets]
            async with asyncio.timeout(seconds):
                every = asyncio.gather(*map(asyncio.wrap_future, jobs))
                scored = await _unless_gone(request, every)
        except Closed:
            raise _Refusal(503, "stopping", "the server is stopping") from None
        except InstrumentError as error:
            raise _Refusal(503, "instrument", str(error)) from None
        except TimeoutError:
            raise _Refusal(504, "timeout", f"not scored in {seconds:g} s") from None
        except ConnectionError:
            self.meters.left.inc()
            raise _Refusal(_LEFT, "left", "the client left") from None
        finally:
            for job in jobs:
                job.cancel()
        for one in scored:
            self.meters.count(one)
        return scored


async def _unless_gone(
    request: Request, answer: asyncio.Future[list[ScoredSet]]
) -> list[ScoredSet]:
    """Wait for an answer as long as somebody wants it.

    Raises:
        ConnectionError: the client has left.
    """
    gone = asyncio.ensure_future(_gone(request))
    both: set[asyncio.Future[Any]] = {answer, gone}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ConnectionError("the client left")
        return await answer
    finally:
        gone.cancel()
        answer.cancel()


async def _gone(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _add_pages(app: FastAPI, worker: ScoringWorker, meters: Meters) -> None:
    @app.get("/health", responses=_HEALTH, tags=["server"])
    async def health(response: Response) -> Health:
        """Say whether the server can score; 503 if it cannot."""
        response.status_code = 200 if worker.is_alive else 503
        return Health(
            status="ok" if worker.is_alive else "stopped",
            evaluator=worker.evaluator.name,
            version=dynamicrubric.__version__,
            waiting_sets=worker.num_waiting,
        )

    @app.get("/metrics", responses=_KEY_REFUSALS, response_class=Response, tags=["server"])
    async def metrics() -> Response:
        """Counters in Prometheus' text format."""
        return Response(meters.text(), media_type=CONTENT_TYPE)

    @app.get("/", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()))


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        problems = [
            f"{'.'.join(str(part) for part in one['loc'] if part != 'body') or 'body'}: "
            f"{one['msg'][:200]}"
            for one in error.errors()[:5]
        ]
        return _error(422, "bad_request", "; ".join(problems))

    @app.exception_handler(_Refusal)
    async def refused(request: Request, error: _Refusal) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers) if error.headers else None
        return _error(error.status_code, "http", str(error.detail), headers)


def _error(
    code: int, name: str, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    text = message.encode("ascii", "backslashreplace").decode()
    return JSONResponse({"error": name, "message": text}, code, headers)


def _describe_key(app: FastAPI, *, needed: bool) -> None:
    """Say in the OpenAPI page which paths take a key."""
    make: Callable[[], dict[str, Any]] = app.openapi

    def described() -> dict[str, Any]:
        document = make()
        if needed:
            schemes = {"key": {"type": "http", "scheme": "bearer"}}
            document.setdefault("components", {})["securitySchemes"] = schemes
            for path, methods in document["paths"].items():
                for operation in methods.values():
                    operation["security"] = [] if path == "/health" else [{"key": []}]
        return document

    app.openapi = described  # type: ignore[method-assign]  # FastAPI's own way to add to it


def serve(app: App, listening: socket.socket, grace_seconds: float) -> None:
    """Serve until SIGINT or SIGTERM; then finish what is running, and wait for it so long.

    Args:
        app: what `make_app` returns.
        listening: bound to the address.
        grace_seconds: how long.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(grace_seconds)),
        lifespan="on",
    )
    print(f"Serving on {url_of(listening)} (its page: /docs)", flush=True)
    uvicorn.Server(config).run(sockets=[listening])
