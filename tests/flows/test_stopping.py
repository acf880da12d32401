"""Stopping a study ends every stage that was started, also one that is being started."""

from __future__ import annotations

import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flows import stages
from flows.stages import Stage, StageFailed, StageRunner

STAGE = Stage("prepare", (), "shared", 0)


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
