"""Submitting tasks with other tasks' futures as arguments, with their types kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from prefect import Task
from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

T = TypeVar("T")


def thread_runner(max_workers: int) -> TaskRunner[PrefectFuture[Any]]:
    """Return Prefect's thread pool: the work itself is in child processes."""
    runner: Any = ThreadPoolTaskRunner(max_workers=max_workers)  # its future type is not covariant
    found: TaskRunner[PrefectFuture[Any]] = runner
    return found


def submit(
    task: Task[..., T],
    *arguments: Any,  # noqa: ANN401 - values, or futures of values
    wait_for: Iterable[PrefectFuture[Any]] = (),
) -> PrefectFuture[T]:
    """Submit a task; it starts when the futures among its arguments, and `wait_for`, are done."""
    return task.submit(*arguments, return_state=False, wait_for=list(wait_for))


def finish(futures: Iterable[PrefectFuture[Any]]) -> None:
    """Wait for all futures, then raise the exception of the first that failed by itself.

    A task behind a failed one never runs; asking for its result would hide what went wrong.
    """
    waited = list(futures)
    for future in waited:
        future.wait()
    for future in waited:
        if future.state.is_failed() or future.state.is_crashed():
            future.result()
