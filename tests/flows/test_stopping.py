"""Stopping a study ends every stage that was started, also one that is being started."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flows import stages
from flows.stages import Stage, StageFailed, StageRunner

STAGE = Stage("prepare", (), "shared", 0)
OUTER = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1]]))"
"""As DVC: dies of a signal at once, and passes its command's exit code on."""
INNER = """
import signal, sys
from pathlib import Path

def unwind(*_):
    Path("unwound").touch()
    sys.exit(0)

signal.signal(signal.SIGTERM, unwind)
Path("ready").touch()
while True:
    signal.pause()
"""


@pytest.fixture(autouse=True)
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage's command runs until it is ended."""
    monkeypatch.setattr(stages, "guarded_command", lambda command: ["sleep", "600"])


def test_stop_while_a_stage_is_being_started_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    begun, stopped = threading.Event(), threading.Event()
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start_slowly(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(real(*arguments, **options))
        begun.set()
        stopped.wait(1.0)  # time for a `stop` that does not wait for us
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start_slowly)
    runner = StageRunner(tmp_path, 1)
    with ThreadPoolExecutor(1) as pool:
        try:
            stage = pool.submit(runner.run, STAGE, lambda: None)
            assert begun.wait(patience)
            runner.stop()
            stopped.set()
            with pytest.raises(StageFailed, match="prepare failed"):
                stage.result(patience)
            assert started[0].returncode == -signal.SIGTERM
        finally:
            for process in started:
                with suppress(ProcessLookupError):
                    process.kill()


def test_stop_asks_the_command_and_not_what_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float, wait: Callable[..., Any]
) -> None:
    monkeypatch.setattr(stages, "guarded_command", lambda _: [sys.executable, "-c", OUTER, INNER])
    runner = StageRunner(tmp_path, 1)
    with ThreadPoolExecutor(1) as pool:
        stage = pool.submit(runner.run, STAGE, lambda: None)
        try:
            wait((tmp_path / "ready").exists, "the command")
        finally:
            runner.stop()
        stage.result(patience)  # with the command's exit code: a signal to OUTER is a failure
    assert (tmp_path / "unwound").exists()


def test_stage_after_stop_is_not_started(tmp_path: Path) -> None:
    runner = StageRunner(tmp_path, 1)
    runner.stop()
    with pytest.raises(StageFailed, match="the study is stopping"):
        runner.run(STAGE, lambda: pytest.fail("it was started"))


def test_stage_whose_log_cannot_be_opened_fails_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "work" / "logs").mkdir(parents=True)
    (tmp_path / "work" / "logs" / "shared").write_text("a file where the folder has to be")
    with pytest.raises(StageFailed, match=r"prepare was not started: .*a file where a folder"):
        StageRunner(tmp_path, 1).run(STAGE, lambda: None)
