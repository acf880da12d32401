"""The HTTP door: a prompt and its responses in, scores, rubric and verdicts out.

`make_app` is the application; `serve` runs it until it is told to stop. It reads requests on one
event loop and scores them on the worker's thread. Refusals are documents of `error` and `message`
and never repeat what was sent.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

import dynamicrubric
from dynamicrubric.doors.asking import Scoring
from dynamicrubric.doors.binding import url_of
from dynamicrubric.doors.documents import ScoreDocument, document_of
from dynamicrubric.doors.gate import MAX_RETRY_SECONDS, App, Gate
from dynamicrubric.doors.limits import Limits
from dynamicrubric.doors.meters import CONTENT_TYPE, Meters
from dynamicrubric.doors.page import docs_page
from dynamicrubric.doors.wire import (
    HEALTH,
    KEY_REFUSALS,
    REFUSALS,
    Health,
    OpenRLHFAnswer,
    OpenRLHFRequest,
    Refusal,
    ScoreRequest,
    error_response,
    for_openrlhf,
    problem_in,
)
from dynamicrubric.doors.worker import MAX_SETS, WINDOW_SECONDS, ScoringWorker
from dynamicrubric.evaluators.base import Evaluator

KEEP_ALIVE_SECONDS: Final = 4 * MAX_RETRY_SECONDS
"""How long a connection may be idle: who comes again after Retry-After finds it open. One that is
closed while the next request is on its way loses that request."""


class _Described(FastAPI):
    """An application whose OpenAPI page says which paths take a key."""

    needs_key = False

    def openapi(self) -> dict[str, Any]:
        """Return the document, with the key where there is one."""
        document = super().openapi()
        if self.needs_key:
            schemes = {"key": {"type": "http", "scheme": "bearer"}}
            document.setdefault("components", {})["securitySchemes"] = schemes
            for path, methods in document["paths"].items():
                for operation in methods.values():
                    operation["security"] = [] if path == "/health" else [{"key": []}]
        return document


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

    app = _Described(
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
    app.needs_key = key is not None
    return Gate(app, limits=limits, meters=meters, key=key)


def _add_scoring(app: FastAPI, scoring: Scoring) -> None:
    @app.post("/v1/score", responses=REFUSALS, tags=["scores"])
    async def score(request: Request, asked: ScoreRequest) -> ScoreDocument:
        """Score one response set: all responses of one prompt together."""
        responses = scoring.set_of(asked.prompt, asked.responses, asked.prompt_id)
        [scored] = await scoring.score(request, [responses], asked.seed)
        return document_of(responses, scored, scoring.worker.evaluator.name, name=asked.id)

    @app.post("/openrlhf", responses=REFUSALS, tags=["scores"])
    async def openrlhf(request: Request, asked: OpenRLHFRequest) -> OpenRLHFAnswer:
        """Score a batch of OpenRLHF's --remote_rm_url; queries of one prompt are one set."""
        places: dict[str, list[int]] = {}
        for place, prompt in enumerate(asked.prompts):
            places.setdefault(prompt, []).append(place)
        scoring.check_number(len(places))
        sets = [
            scoring.set_of(prompt, [asked.query[place].removeprefix(prompt) for place in group])
            for prompt, group in places.items()
        ]
        return for_openrlhf(list(places.values()), await scoring.score(request, sets, 0))


def _add_pages(app: FastAPI, worker: ScoringWorker, meters: Meters) -> None:
    @app.get("/health", responses=HEALTH, tags=["server"])
    async def health(response: Response) -> Health:
        """Say whether the server can score; 503 if it cannot."""
        response.status_code = 200 if worker.is_alive else 503
        return Health(
            status="ok" if worker.is_alive else "stopped",
            evaluator=worker.evaluator.name,
            version=dynamicrubric.__version__,
            waiting_sets=worker.num_waiting,
        )

    @app.get("/metrics", responses=KEY_REFUSALS, response_class=Response, tags=["server"])
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
        problems = "; ".join(problem_in(one) for one in error.errors()[:5])
        return error_response(422, "bad_request", problems)

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return error.response()

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> Response:
        return error_response(500, "fault", "a fault of ours; the server's log has it")

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers) if error.headers else None
        return error_response(error.status_code, "http", str(error.detail), headers)


def server_of(app: App, grace_seconds: float) -> uvicorn.Server:
    """Return what serves an application, not running yet.

    Args:
        app: what `make_app` returns.
        grace_seconds: how long running requests may go on once it is told to stop.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace_seconds)),
        lifespan="on",
    )
    return uvicorn.Server(config)


def serve(app: App, listening: socket.socket, grace_seconds: float) -> None:
    """Serve until SIGINT or SIGTERM; then finish what is running, and wait for it so long.

    Args:
        app: what `make_app` returns.
        listening: bound to the address.
        grace_seconds: how long.
    """
    print(f"Serving on {url_of(listening)} (its page: /docs)", flush=True)
    server_of(app, grace_seconds).run(sockets=[listening])
