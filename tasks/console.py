"""Names and log lines of Prefect tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefect import runtime
from prefect.logging import get_run_logger


def task_name(template: str) -> Callable[[], str]:
    """Return a name maker for task runs: `{role}` and the like are the task's own arguments."""

    def name() -> str:
        parameters: dict[str, Any] = runtime.task_run.parameters or {}
        return template.format(**parameters)

    return name


def log_line() -> Callable[[str], None]:
    """Return what copies a child's log lines to the run's log in the Prefect UI.

    The step's own log file is complete and comes first; this is a copy for those who watch.
    """
    logger = get_run_logger()

    def copy(line: str) -> None:
        if line.strip():
            logger.info(line.rstrip())

    return copy
