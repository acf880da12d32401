"""`dynamicrubric probe` refuses what is not there before a model is opened."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
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
