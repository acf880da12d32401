"""From a request to scores: checked, handed to the worker, waited for while somebody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from dynamicrubric.doors.documents import seed_of, set_of
from dynamicrubric.doors.gate import LEFT
from dynamicrubric.doors.limits import Limits
from dynamicrubric.doors.meters import Meters
from dynamicrubric.doors.wire import Refusal
from dynamicrubric.doors.worker import Closed, ScoringWorker
from dynamicrubric.errors import InstrumentError
from dynamicrubric.evaluators.base import ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet


class _LeftError(Exception):
    """The client has left: a class of our own, since an evaluator may raise a ConnectionError."""


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
            Refusal: an empty prompt, too many responses, or too long ones.
        """
        limits = self.limits
        if not prompt.strip():
            raise Refusal(422, "bad_request", "prompt: got white space alone")
        if len(responses) > limits.max_responses:
            got = f"responses: got {len(responses)}, at most {limits.max_responses} are taken"
            raise Refusal(422, "bad_request", got)
        for field, text in (("prompt", prompt), *(("responses", text) for text in responses)):
            if text is not None and len(text) > limits.max_chars:
                got = f"{field}: got {len(text)} characters, at most {limits.max_chars} are taken"
                raise Refusal(422, "bad_request", got)
        return set_of(prompt, responses, prompt_id=prompt_id or self.prompt_ids.get(prompt))

    def check_number(self, sets: int) -> None:
        """Refuse a request with too many sets.

        Raises:
            Refusal: names the field.
        """
        most = self.limits.max_request_sets
        if sets > most:
            got = f"prompts: got {sets} different ones, at most {most} are taken"
            raise Refusal(422, "bad_request", got)

    async def score(
        self, request: Request, sets: Sequence[ResponseSet], seed: int
    ) -> list[ScoredSet]:
        """Return what the worker makes of sets; leave the queue if the client does.

        Raises:
            Refusal: the worker stops, an instrument is broken, or it takes too long.
        """
        jobs: list[Future[ScoredSet]] = []
        seconds = self.limits.request_seconds
        try:
            jobs += [self.worker.submit(one, seed_of(seed, one)) for one in sets]
            async with asyncio.timeout(seconds) as deadline:
                scored = await _unless_gone(request, asyncio.ensure_future(_every(jobs)))
        except Closed:
            raise Refusal(503, "stopping", "the server is stopping") from None
        except InstrumentError as error:
            raise Refusal(503, "instrument", str(error)) from None
        except TimeoutError:
            if not deadline.expired():  # the evaluator's own
                raise
            raise Refusal(504, "timeout", f"not scored in {seconds:g} s") from None
        except _LeftError:
            self.meters.left.inc()
            raise Refusal(LEFT, "left", "the client left") from None
        finally:
            for job in jobs:
                job.cancel()
        for one in scored:
            self.meters.count(one)
        return scored


async def _every(jobs: Sequence[Future[ScoredSet]]) -> list[ScoredSet]:
    return list(await asyncio.gather(*map(asyncio.wrap_future, jobs)))


async def _unless_gone(request: Request, answer: asyncio.Task[list[ScoredSet]]) -> list[ScoredSet]:
    """Wait for an answer as long as somebody wants it.

    Raises:
        _LeftError: the client has left.
    """
    gone = asyncio.ensure_future(_gone(request))
    both: set[asyncio.Future[Any]] = {answer, gone}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise _LeftError
        return await answer
    finally:
        gone.cancel()
        answer.cancel()


async def _gone(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
