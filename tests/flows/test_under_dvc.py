"""A stage's command ends with the DVC that runs it, also when that was killed before it began."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.errors import UserError
from flows import __main__ as commands
from tasks.guarded import GUARDED_PID, guarded_command
from tasks.process import ancestors, start_ticks

ROOT = Path(__file__).resolve().parents[2]
COMMAND = shlex.join([sys.executable, "-m", "flows", "--help"])


def environment(dvc: int) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "DVC_ROOT": str(ROOT), GUARDED_PID: str(dvc)}


def test_command_whose_dvc_was_killed_before_it_began_is_refused(
    tmp_path: Path, wait: Callable[..., Any]
) -> None:
    # "DVC" starts a shell that waits for a line, and ends; the command begins after that.
    stage = f"read line; {COMMAND} >output 2>&1; echo $? >part; mv part code"
    dvc = subprocess.Popen(["sleep", "600"])
    with subprocess.Popen(
        ["sh", "-c", stage], cwd=tmp_path, env=environment(dvc.pid), stdin=subprocess.PIPE
    ) as shell:
        dvc.kill()
        dvc.wait()
        assert shell.stdin is not None
        shell.stdin.write(b"go\n")
        shell.stdin.close()
        wait((tmp_path / "code").exists, "the command's end")
    text = (tmp_path / "output").read_text()
    assert (tmp_path / "code").read_text() == "2\n", text
    assert "a DVC that has ended" in text
    assert "Usage" not in text


@pytest.mark.parametrize("command", [f"exec {COMMAND}", f"{COMMAND}; exit $?"])
def test_command_whose_dvc_lives_runs_with_or_without_a_shell_between(command: str) -> None:
    done = subprocess.run(
        ["sh", "-c", command],
        env=environment(os.getpid()),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Usage" in done.stdout


DVC = """
import os, subprocess, sys
if sys.argv[2] == "ours":
    os.environ["DYNAMICRUBRIC_GUARDED_PID"] = str(os.getpid())
subprocess.run(["sh", "-c", f"{sys.argv[1]}; true"])
"""
STAGE = """
import os, signal
from pathlib import Path
from flows.__main__ import _end_with_dvc
_end_with_dvc()
Path("part").write_text(str(os.getpid()))
Path("part").rename("pid")
signal.pause()
"""


@pytest.mark.parametrize("whose", ["ours", "dvc"])
def test_command_behind_a_shell_ends_with_its_killed_dvc(
    tmp_path: Path, wait: Callable[..., Any], whose: str
) -> None:
    stage = shlex.join([sys.executable, "-c", STAGE])
    env = {name: value for name, value in os.environ.items() if name != GUARDED_PID}
    with subprocess.Popen(
        [sys.executable, "-c", DVC, stage, whose],
        cwd=tmp_path,
        env={**env, "PYTHONPATH": str(ROOT)},
    ) as dvc:
        wait((tmp_path / "pid").exists, "the command's start")
        pid = int((tmp_path / "pid").read_text())
        started = start_ticks(pid)
        dvc.kill()
        try:
            wait(lambda: start_ticks(pid) != started, "the command's end")
        finally:
            if start_ticks(pid) == started:
                os.kill(pid, signal.SIGKILL)


def test_guarded_command_hands_its_own_pid_down() -> None:
    program = f"import os; print(os.environ[{GUARDED_PID!r}] == str(os.getpid()))"
    command = guarded_command([sys.executable, "-c", program])
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("refused", [True, False])
def test_command_of_a_persons_dvc_is_refused_as_inits_child(
    monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    armed: list[int] = []
    monkeypatch.delenv(GUARDED_PID, raising=False)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    monkeypatch.setattr(commands, "_is_dvc", lambda pid: not refused)
    monkeypatch.setattr("tasks.process.die_with_parent", armed.append)
    monkeypatch.setattr("tasks.process.die_with", lambda pid: None)
    if refused:
        with pytest.raises(UserError, match="a DVC that has ended"):
            commands._end_with_dvc()
    else:
        commands._end_with_dvc()
    assert armed == ([] if refused else [1])


def test_ancestors_begin_with_the_parent_and_end() -> None:
    found = list(ancestors(os.getpid()))
    assert found[0] == os.getppid()
    assert len(found) == len(set(found))
