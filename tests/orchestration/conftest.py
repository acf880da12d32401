"""Helpers of the orchestration tests: bounded waiting, child interpreters that find the sources."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tasks.process import start_ticks

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
T = TypeVar("T")
PATIENCE = 240.0
"""Seconds until something counts as hanging: a bound for a failure, on however slow a machine."""


class Bench:
    """What a test needs to watch processes."""

    patience = PATIENCE

    def wait_for(self, probe: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
        """Return the first true value of `probe`; fail when it does not come in time."""
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            value = probe()
            if value:
                return value
            threading.Event().wait(0.02)
        raise AssertionError(f"waited {seconds} s for {what}")

    def pid_in(self, path: Path) -> int:
        """Return the pid that another process writes into a file."""
        text = self.wait_for(lambda: path.exists() and path.read_text(), f"a pid in {path}")
        return int(text)

    def gone(self, pid: int, seconds: float = PATIENCE) -> None:
        """Wait until a process does not run any more (a zombie does not run)."""
        self.wait_for(lambda: not self.alive(pid), f"the end of process {pid}", seconds)

    def alive(self, pid: int) -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return state not in "ZX" and start_ticks(pid) is not None

    def python(self, code: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
        """Start another interpreter that can import the sources and `jobs`."""
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
        command = [sys.executable, "-c", code, *map(str, arguments)]
        process: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]
            command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
        )
        self._started.append(process)
        return process

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.syspath_prepend(str(HERE))  # children find `jobs` through the caller's sys.path
    bench = Bench()
    yield bench
    bench.close()
