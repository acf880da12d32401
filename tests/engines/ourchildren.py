"""Processes that a test's engines have started: those that are still there, and their end."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import psutil

PATIENCE = 240.0
"""Seconds until something counts as hanging: a bound for a failure, on however slow a machine."""


def children_running(script: str) -> list[int]:
    """Return the pids of this process's children that run a program of this name.

    One may end while they are looked through, and one that has ended has no command line.
    """
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            command = " ".join(process.cmdline())
        except psutil.NoSuchProcess:  # a zombie as well
            continue
        if script in command:
            found.append(process.pid)
    return found


def wait_for_end(processes: Sequence[psutil.Process]) -> None:
    """Wait until none of these processes runs; a zombie, which nobody may reap, does not run."""
    give_up = time.monotonic() + PATIENCE
    while left := [process for process in processes if _runs(process)]:
        assert time.monotonic() < give_up, f"waited {PATIENCE} s for the end of {left}"
        threading.Event().wait(0.02)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
