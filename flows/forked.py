"""A stage's flow in a fork of the study's host, which has imported Prefect already.

DVC runs each stage as a command, and a command that imports Prefect spends two to three seconds of
a core on that, for every cell. Inside a study the command asks the shared host
(`tasks.sharedhost`) for a copy of itself instead, hands on the signals that it gets, and ends with
the copy's exit code. The copy ends with the command, as the command does with its DVC.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from dynamicrubric.boundary import EXIT_OK, run_with_boundary
from dynamicrubric.errors import DynamicRubricError
from tasks.gpu import StepCrashed, StepStopped, any_running, launch, stop_all
from tasks.sharedhost import shared_threads

FLOW_PRELOAD: Final = ("flows.preload",)
TARGET: Final = "flows.forked:run_stage"
GRACE_SECONDS: Final = 25.0
"""Time to end the GPU work and to tell the server; less than a study gives a stage to stop."""


def forked(arguments: Sequence[str], root: Path) -> int | None:
    """Run a command of `python -m flows` in a fork of the shared host; return its exit code.

    Args:
        arguments: the command and its arguments.
        root: the project's folder.

    Returns:
        None if there is no shared host, or no log that two processes can write: nothing was run.

    Raises:
        DynamicRubricError: the fork ended without a word, by a fault of ours or because it was
            stopped.
    """
    threads, log = shared_threads(), _appended_log()
    if threads is None or log is None:
        return None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _hand_on)
    try:
        return _launch(arguments, root, threads, log)
    except (StepCrashed, StepStopped) as error:  # its last lines are in the log that this goes to
        raise DynamicRubricError(str(error).partition("; the log")[0]) from None


def _launch(arguments: Sequence[str], root: Path, threads: int, log: Path) -> int:
    usage = launch(
        TARGET,
        {"arguments": list(arguments)},
        log_path=log,
        deadline_seconds=math.inf,  # its steps have deadlines
        slots_dir=root / "work" / "locks" / "stages" / "-".join(arguments),
        num_slots=1,
        what=" ".join(arguments),
        threads=threads,
        preload=FLOW_PRELOAD,
        grace_seconds=GRACE_SECONDS,
    )
    assert usage.returned is not None  # `run_stage` returned it
    return usage.returned


def _hand_on(number: int, frame: FrameType | None) -> None:
    stop_all()
    if not any_running():  # the host has not answered yet
        raise SystemExit(128 + number)


def run_stage(arguments: list[str]) -> int:
    """Be the fork: run the command and return its exit code, what it printed in the log."""
    from prefect.context import refresh_global_settings_context
    from prefect.logging.configuration import setup_logging

    from flows.__main__ import app
    from flows.services import FLUSH_SECONDS, send_what_is_left

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a flow unwinds, as by Ctrl-C
    refresh_global_settings_context()  # Prefect's are from when the host imported it
    logging.getLogger().handlers.clear()
    setup_logging(incremental=False)
    try:
        return run_with_boundary(partial(_exit_code_of, app, arguments))
    finally:
        send_what_is_left(FLUSH_SECONDS)  # a fork ends without the interpreter's clean-up


def _exit_code_of(command: Callable[[list[str]], object], arguments: list[str]) -> int:
    try:
        command(arguments)
    except SystemExit as ended:  # how a command line ends, also well
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return EXIT_OK


def _appended_log() -> Path | None:
    """Return the file that our output is appended to, if it is one and still there."""
    try:
        output = sys.stdout.fileno()
        found = os.fstat(output)
        appended = fcntl.fcntl(output, fcntl.F_GETFL) & os.O_APPEND
        if not stat.S_ISREG(found.st_mode) or not found.st_nlink or not appended:
            return None
        return Path(os.readlink(f"/proc/self/fd/{output}"))
    except (OSError, ValueError):
        return None
