"""One thread that owns an evaluator and scores what waits, in batches.

A model must not be run from several threads at once, and it is fastest on many sets together. So
whoever wants a set scored hands it over and waits for a future; the thread takes what has come in
during a short window. A job whose future was cancelled before its batch began costs nothing.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
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


@dataclass(frozen=True)
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
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="scoring", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it still scores."""
        return self._thread.is_alive() and not self._closed

    @property
    def num_waiting(self) -> int:
        """Sets that no batch has taken yet, cancelled ones included."""
        return self._jobs.qsize()

    def submit(self, responses: ResponseSet, seed: int) -> Future[ScoredSet]:
        """Hand a set over.

        Raises:
            Closed: the worker is shutting down.
        """
        job = _Job(responses, seed)
        with self._lock:
            if self._closed or not self._thread.is_alive():
                raise Closed("the scoring thread is shutting down")
            self._jobs.put(job)
        return job.future

    def close(self, timeout: float | None = None) -> bool:
        """Take no more jobs, score what waits, and return whether that was done in time."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        open_ = True
        while open_:
            batch, open_ = self._next_batch()
            wanted = [job for job in batch if job.future.set_running_or_notify_cancel()]
            if wanted:
                self._on_batch(len(wanted))
                self._score(wanted)

    def _next_batch(self) -> tuple[list[_Job], bool]:
        """Return the next jobs, and whether more may come after them."""
        first = self._jobs.get()
        if first is None:
            return [], False
        batch, ends = [first], time.monotonic() + self._window
        while len(batch) < self._max_sets:
            try:
                job = self._jobs.get(timeout=max(0.0, ends - time.monotonic()))
            except queue.Empty:
                break
            if job is None:
                return batch, False
            batch.append(job)
        return batch, True

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
        else:
            for job, one in zip(jobs, found, strict=True):
                job.future.set_result(one)
