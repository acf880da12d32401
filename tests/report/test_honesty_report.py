"""What R_disc pays for, in the report and at the command line, from stored tables alone."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from dynamicrubric.cli import main
from dynamicrubric.report import write_comparison
from dynamicrubric.report.gather import gather
from dynamicrubric.report.honesty import honesty_by_round
from dynamicrubric.report.honestysection import honesty_section, unscored_grids

PARAMS = (Path(__file__).resolve().parents[2] / "profiles/postcards.yaml").read_text("utf-8")
KEY = "coevolved-s1-r1"


@pytest.fixture
def honesty(monkeypatch, capsys):
    """Return a function that runs the command in a study's folder and returns what it says."""

    def run(root, *arguments: str, code: int = 0) -> str:
        monkeypatch.chdir(root)
        monkeypatch.setattr(sys, "argv", ["dynamicrubric", "honesty", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code or 0) == code, said.err
        return said.err if code else said.out

    return run


def unscore(tables) -> None:
    """Leave one verdict of each response set's first response unscored, and so its score."""
    for row in tables["verdicts"]:
        if row["item_index"] == 1 and row["response_id"].endswith("-1"):
            row["verdict"] = "unscored"


def test_figures_by_round_are_those_of_the_fake_verdicts(fake_study) -> None:
    study = fake_study(rounds=1, seeds=(1, 2))
    found = honesty_by_round(gather(study.plan, study.root))
    assert found.keys() == {(arm, n) for arm in study.questions for n in (0, 1)}
    one = found["coevolved", 1]
    # Of three items one is met by all, one by all but the first response, one by none.
    assert one.rubrics == 2 * 43 and one.items == 3 * one.rubrics
    assert one.share("all_meet", "judged") == one.share("none_meet", "judged") == 1 / 3
    assert one.share("disc", "rubrics") == pytest.approx(2 / 6 * 2 / 9)
    assert (one.pairs, one.single, one.unscored) == (0, 0, 0)


def test_unscored_verdicts_are_told_with_what_they_would_have_earned(fake_study) -> None:
    study = fake_study(rounds=1)
    study.write_cell(KEY, alter=unscore)
    one = honesty_by_round(gather(study.plan, study.root))["coevolved", 1]
    assert one.unscored == one.rubrics and one.verdicts == 9 * one.rubrics
    # The item's verdicts are no, unscored, yes: 1/9 is paid, 2/9 as a no, 1/4 of the two scored.
    for name, expected in (("disc", 1 / 9), ("disc_as_no", 2 / 9), ("disc_scored_only", 1 / 4)):
        assert one.share(name, "rubrics") == pytest.approx(2 / 6 * expected)
    assert one.overpaid == one.rubrics
    (grid,) = unscored_grids("arm", {"coevolved": one})
    assert grid.rows[0][-1] == "100.0 %"


def test_report_has_the_section_and_the_table_for_all_arms(fake_study, undrawn) -> None:
    study = fake_study(rounds=1)
    found = write_comparison(study.plan, study.questions, study.root, study.root / "results")
    page = (found.report / "index.html").read_text(encoding="utf-8")
    assert 'href="#honesty"' in page
    assert "would have earned" not in page  # every verdict is scored
    with (found.report / "tables/honesty.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * len(study.questions)


def test_arms_without_rubrics_have_no_section() -> None:
    assert honesty_section({}, ("oracle",)) == ()


def test_command_says_what_the_stored_tables_say(fake_study, honesty) -> None:
    study = fake_study(rounds=1)
    text = honesty(study.root, KEY, "frozen-s1-r1")
    assert KEY in text and "frozen-s1-r1" in text and "33.3 %" in text
    document = json.loads(honesty(study.root, KEY, "--json"))
    assert document[KEY]["items"] == 3 * document[KEY]["rubrics"] == 129


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "'nothing', and no such folder"),
        ((KEY, "frozzen-s1-r1"), "such as frozen-s1-r1"),
        (("../../etc",), "no such folder"),
        ((KEY, "--orders", "1"), "greater than or equal to 2"),
        ((KEY, "--limit", "3"), "needs --orders"),
    ],
)
def test_command_refuses_what_is_not_there(fake_study, honesty, arguments, said) -> None:
    study = fake_study(rounds=1)
    assert said in " ".join(honesty(study.root, *arguments, code=2).split())


def test_command_refuses_a_table_that_is_not_the_recorded_one(fake_study, honesty) -> None:
    study = fake_study(rounds=1)
    path = study.root / f"data/runs/{KEY}/evaluation/verdicts.parquet"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b"x")
    assert "verdicts.parquet: got bytes with" in honesty(study.root, KEY, code=2)


def test_command_refuses_a_round_that_is_not_finished(fake_study, honesty) -> None:
    study = fake_study(rounds=1)
    (study.root / "data/runs/half-s1-r1/policy").mkdir(parents=True)
    assert "the round is not finished" in honesty(study.root, "half-s1-r1", code=2)


def test_command_shows_no_orders_to_a_generator_that_sees_no_set(fake_study, honesty) -> None:
    study = fake_study(rounds=3)
    (study.root / "params.yaml").write_text(PARAMS, encoding="utf-8")
    said = honesty(study.root, "static-s1-r1", "--orders", "2", code=2)
    assert "shows its generator no response set" in said
