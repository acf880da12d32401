"""Flows refuse a cell or role that is not theirs, before they touch anything."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dynamicrubric.config import load_config
from dynamicrubric.errors import UserError
from dynamicrubric.plan import expand, write_plan
from flows import __main__ as commands
from flows import prepare as preparing
from flows import round as rounds
from flows import services
from flows.prepare import run_warm_start
from flows.round import run_round, run_start

PARAMS = Path(__file__).with_name("params.yaml")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A planned project in the current folder; no task may run."""
    shutil.copyfile(PARAMS, tmp_path / "params.yaml")
    write_plan(expand(load_config(PARAMS)), tmp_path / "cells.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rounds, "submit", lambda *a, **k: pytest.fail("a task was submitted"))
    monkeypatch.setattr(preparing, "warm_start", lambda *a: pytest.fail("a task was run"))
    return tmp_path


@pytest.mark.parametrize(
    ("run", "key", "said", "remedy"),
    [
        (run_start.fn, "coevolved-s1-r1", "round 1", "flows round coevolved-s1-r1"),
        (run_start.fn, "frozen-s1-r1", "coevolved-s1-r0", "flows round frozen-s1-r1"),
        (run_round.fn, "coevolved-s1-r0", "round 0", "flows start coevolved-s1-r0"),
        (run_round.fn, "nonsense", "'nonsense'", "dynamicrubric plan"),
        (run_start.fn, "", "''", "dynamicrubric plan"),
        (run_warm_start.fn, "foo", "'foo'; expected one of policy, generator", "warm_start policy"),
        (run_warm_start.fn, "", "''", "warm_start policy"),
    ],
)
def test_flow_of_a_cell_or_role_that_is_not_its_own_is_refused(
    run: Callable[[str], object], key: str, said: str, remedy: str
) -> None:
    with pytest.raises(UserError) as caught:
        run(key)
    assert said in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("round", "nonsense"), "'nonsense'"),
        (("round", "coevolved-s1-r0"), "flows start coevolved-s1-r0"),
        (("start", "coevolved-s1-r1"), "flows round coevolved-s1-r1"),
        (("grid", "s9"), "'s9'"),
        (("audit", "s1"), "study.audit"),
        (("probe", "s9"), "'s9'"),
        (("warm_start", "foo"), "'foo'"),
        (("deploy", "--cron", "0 2 * * *", "--timezone", "Nowhere/X"), "'Nowhere/X'"),
        (("deploy", "--cron", "at night"), "five fields"),
        (("deploy", "--paused", "--timezone", "Europe/Berlin"), "without --cron"),
    ],
)
def test_command_of_what_is_not_there_is_refused_before_a_server_is_started(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UserError) as caught:
        command(monkeypatch, *arguments)
    assert said in str(caught.value)


@pytest.mark.parametrize("arguments", [("prepare",), ("compare",), ("round", "frozen-s1-r1")])
def test_command_with_another_plan_is_refused_before_a_server_is_started(
    project: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    (project / "cells.json").unlink()
    with pytest.raises(UserError, match=r"cells\.json.*dynamicrubric plan"):
        command(monkeypatch, *arguments)


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Run a command in this process, which may not start a server."""
    monkeypatch.setattr(services, "prefect_server", lambda *a: pytest.fail("a server was started"))
    monkeypatch.setattr(services, "log_sentences", lambda: None)
    monkeypatch.setattr(services, "prefect_environment", lambda root: {})
    commands.app(list(arguments), standalone_mode=False)


def test_flows_has_one_command_line() -> None:
    # A second one would miss what `python -m flows` sets up: Prefect's home, a server, exit codes.
    package = Path(rounds.__file__).parent
    guard = 'if __name__ == "__main__"'
    runnable = [path.name for path in package.glob("*.py") if guard in path.read_text()]
    assert runnable == ["__main__.py"]
    said = [path.name for path in package.glob("*.py") if "python -m flows." in path.read_text()]
    assert said == []
