"""One thread that owns an evaluator and scores what waits, in batches.

A model must not be run from several threads at once, and it is fastest on many sets together. So
whoever wants a set scored hands it over and waits for a future; the thread takes what has come in
during a short window. A job whose future is cancelled before its batch begins leaves the queue at
once, texts and all: who asks and leaves again and again fills no memory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from dynamicrubric.errors import InstrumentError
from dynamicrubric.evaluators.base import Evaluator, ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet

_LOG: Final = logging.getLogger(__name__)
MAX_SETS: Final = 16
"""Of a batch."""
WINDOW_SECONDS: Final = 0.01
"""How long a batch waits for company after its first job."""


class Closed(Exception):
    """The worker takes no jobs any more."""


@dataclass(frozen=True, eq=False)
class _Job:
    responses: ResponseSet
    seed: int
    future: Future[ScoredSet] = field(default_factory=Future)


class ScoringWorker:
    """Scores sets on a thread of its own."""

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        max_sets: int = MAX_SETS,
        window_seconds: float = WINDOW_SECONDS,
        on_batch: Callable[[int], None] | None = None,
    ) -> None:
        """Start the thread.

        Args:
            evaluator: used by the thread alone from now on.
            max_sets: most sets of a batch.
            window_seconds: how long a batch waits for company.
            on_batch: told the size of each batch.
        """
        self.evaluator = evaluator
        self._max_sets = max_sets
        self._window = window_seconds
        self._on_batch = on_batch or (lambda _: None)
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="scoring", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it still scores."""
        return self._thread.is_alive() and not self._closed

    @property
    def num_waiting(self) -> int:
        """Sets that no batch has taken yet."""
        return len(self._jobs)

    def submit(self, responses: ResponseSet, seed: int) -> Future[ScoredSet]:
        """Hand a set over.

        Raises:
            Closed: the worker is shutting down.
        """
        job = _Job(responses, seed)
        with self._changed:
            if self._closed:
                raise Closed("the scoring thread is shutting down")
            self._jobs.append(job)
            self._changed.notify()
        job.future.add_done_callback(lambda future: self._drop(job) if future.cancelled() else None)
        return job.future

    def close(self, timeout: float | None = None) -> bool:
        """Take no more jobs, score what waits, and return whether that was done in time."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _drop(self, job: _Job) -> None:
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)

    def _run(self) -> None:
        try:
            while batch := self._next_batch():
                wanted = [job for job in batch if job.future.set_running_or_notify_cancel()]
                if wanted:
                    self._on_batch(len(wanted))
                    self._score(wanted)
        finally:
            self._fail_the_rest()

    def _next_batch(self) -> list[_Job]:
        """Wait for the next jobs; return none once there will be none."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._jobs or self._closed)
                self._wait_for_company()
                if self._jobs or self._closed:  # else all of them have left meanwhile
                    break
            most = min(len(self._jobs), self._max_sets)
            return [self._jobs.popleft() for _ in range(most)]

    def _wait_for_company(self) -> None:
        ends = time.monotonic() + self._window
        while not self._closed and len(self._jobs) < self._max_sets:
            if not self._changed.wait(max(0.0, ends - time.monotonic())):
                return

    def _fail_the_rest(self) -> None:
        """Leave nobody waiting for a thread that has ended, whatever ended it."""
        with self._changed:
            self._closed = True
            left = list(self._jobs)
            self._jobs.clear()
        for job in left:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(Closed("the scoring thread has ended"))

    def _score(self, jobs: Sequence[_Job]) -> None:
        """Score jobs together; if that fails by a fault of ours, each alone, so that one fails."""
        try:
            found = self.evaluator.score([j.responses for j in jobs], [j.seed for j in jobs])
            assert len(found) == len(jobs), "the evaluator lost a set"
        except Exception as error:
            if len(jobs) > 1 and not isinstance(error, InstrumentError):
                for job in jobs:
                    self._score([job])
                return
            if not isinstance(error, InstrumentError):
                _LOG.exception("scoring a set failed")
            for job in jobs:
                job.future.set_exception(error)
        except BaseException:  # a panic in a library, which ends the thread
            for job in jobs:
                job.future.set_exception(Closed("the scoring thread has ended"))
            raise
        else:
            for job, one in zip(jobs, found, strict=True):
                job.future.set_result(one)
