"""`dynamicrubric probe` refuses what is not there before a model is opened."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dynamicrubric.cli import app
from dynamicrubric.errors import UserError


@pytest.fixture
def project(fake_study, monkeypatch):
    """A finished study in the current folder; its settings come without params.yaml."""
    made = fake_study(arms=("coevolved", "static"), rounds=1)
    monkeypatch.chdir(made.root)
    monkeypatch.setattr("dynamicrubric.probe_command.load_config", lambda path: made.config)
    monkeypatch.setattr("dynamicrubric.probe_command.load_plan", lambda config, path: made.plan)
    monkeypatch.setattr(
        "dynamicrubric.stepparts.engines_of", lambda *a: pytest.fail("a model was opened")
    )
    return made


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "'nonsense'"),
        (["coevolved-s1-r1", "--attack", "charm"], "'charm'; expected some of own_words_again"),
        (["coevolved-s1-r1", "--attack", "filler", "--attack", "filler"], "a name twice"),
        (["coevolved-s1-r1", "--sets", "9"], "at most 2"),
        (["coevolved-s1-r1", "--out", "data"], "something is there"),
        (["coevolved-s1-r1", "--evaluator", "nobody"], "'nobody'"),
        (["coevolved-s1-r1", "--evaluator", "oracle"], "nothing to hack"),
        (["coevolved-s1-r1", "--evaluator", "odd.yaml"], "kind"),
        (["coevolved-s1-r0"], "no generator in"),
    ],
)
def test_what_is_not_there_is_refused_by_name(project, arguments, said):
    Path("odd.yaml").write_text("kind: unheard\n")
    shutil.rmtree("data/warm", ignore_errors=True)
    with pytest.raises(UserError) as caught:
        CliRunner().invoke(app, ["probe", *arguments], catch_exceptions=False)
    assert said in str(caught.value)


def test_unfinished_cell_is_refused(project):
    shutil.rmtree(project.root / "data/runs/coevolved-s1-r0")
    with pytest.raises(UserError, match="coevolved-s1-r0"):
        CliRunner().invoke(app, ["probe", "coevolved-s1-r1"], catch_exceptions=False)


def test_command_without_a_cell_says_what_it_takes():
    found = CliRunner().invoke(app, ["probe"])
    assert found.exit_code == 2
    assert "CELL" in found.output


def test_round_that_an_arm_shares_is_answered_with_the_cell_that_was_trained(project):
    Path("cells.json").write_text('{"arms": {"stale": {"s1": ["x-s1-r0", "coevolved-s1-r1"]}}}')
    with pytest.raises(UserError, match="trained for all of them: coevolved-s1-r1"):
        CliRunner().invoke(app, ["probe", "stale-s1-r1"], catch_exceptions=False)


@pytest.mark.parametrize("stops", [KeyboardInterrupt, UserError(doing="measuring", got="nothing")])
def test_folder_for_the_tables_is_made_before_the_work_and_goes_with_a_probe_that_stops(
    project, monkeypatch, stops
):
    def measure(*arguments):
        assert Path("new/tables").is_dir()
        raise stops

    monkeypatch.setattr("dynamicrubric.probe_command._measure", measure)
    arguments = ["probe", "coevolved-s1-r1", "--out", "new/tables"]
    if stops is KeyboardInterrupt:
        assert CliRunner().invoke(app, arguments).exit_code == 130
    else:
        with pytest.raises(UserError, match="measuring"):
            CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert not Path("new/tables").exists()


def test_folder_that_cannot_be_made_is_refused_before_the_work(project, monkeypatch):
    monkeypatch.setattr("dynamicrubric.probe_command._measure", lambda *a: pytest.fail("measured"))
    Path("file").write_text("mine")
    with pytest.raises(UserError, match=r"making the folder file/tables: .*expected a folder"):
        CliRunner().invoke(
            app, ["probe", "coevolved-s1-r1", "--out", "file/tables"], catch_exceptions=False
        )


def test_names_of_attacks_are_whole_in_a_table(monkeypatch, capsys):
    from dynamicrubric.probe_command import PIPE_COLUMNS, _table
    from dynamicrubric.probes.figures import attack_figures

    rows = [
        {"cell": "coevolved-s1-r1", "evaluator": "dynamic", "attack": "planted_criterion",
         "order": "second", "mode": "seen", "set_id": f"{n}/0", "prompt_id": f"{n}", "place": 0}
        | {f"{name}_{part}": 0.5 for name in ("score", "rank", "quality")
           for part in ("before", "after", "gain")}
        for n in range(20)
    ]  # fmt: skip
    Console(width=PIPE_COLUMNS).print(_table("cell", attack_figures({1: [rows[0], *rows[1:]]})))
    assert "planted_criterion" in capsys.readouterr().out
