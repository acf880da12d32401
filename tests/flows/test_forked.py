"""A stage's command inside a study: its flow runs in a fork of the study's host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows import forked
from tasks.sharedhost import shared_host

ROOT = Path(__file__).resolve().parents[2]
COMMAND = """
import sys
from pathlib import Path
from flows.forked import forked
sys.exit({None: 99}.get(code := forked(sys.argv[1:], Path.cwd()), code))
"""
NOTHING_RUN = 99

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command of `flows` as DVC does, output appended to `log`; cwd is an empty folder."""

    def run_command(*arguments: str, mode: str = "ab") -> subprocess.CompletedProcess[str]:
        with (tmp_path / "log").open(mode) as log:
            return subprocess.run(
                [sys.executable, "-c", COMMAND, *arguments],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
                text=True,
                check=False,
            )

    return run_command


@pytest.fixture(scope="module")
def _host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with shared_host(forked.FLOW_PRELOAD, 1, tmp_path_factory.mktemp("locks")):
        yield


@pytest.mark.usefixtures("_host")
def test_command_in_a_study_runs_in_a_fork_and_ends_with_its_code(run: Run, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    assert run("--help").returncode == 0
    text = (tmp_path / "log").read_text()
    assert text.startswith("before\n--- ")
    assert forked.TARGET in text.splitlines()[1]
    assert "Flows of a study" in text


@pytest.mark.usefixtures("_host")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("nosuch",), "No such command"), (("round", "a-s1-r1"), "error: ")],
)
def test_command_that_is_refused_in_a_fork_says_why_without_a_trace(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert run(*arguments).returncode == 2
    text = (tmp_path / "log").read_text()
    assert said in text
    assert "Traceback" not in text


@pytest.mark.usefixtures("_host")
def test_command_whose_log_is_not_appended_to_is_not_forked(run: Run, tmp_path: Path) -> None:
    assert run("--help", mode="wb").returncode == NOTHING_RUN
    assert (tmp_path / "log").read_text() == ""


def test_command_without_a_study_is_not_forked(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DYNAMICRUBRIC_FORK_HOST", raising=False)
    assert run("--help").returncode == NOTHING_RUN
    assert (tmp_path / "log").read_text() == ""
