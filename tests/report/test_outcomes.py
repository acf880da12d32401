from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

from dynamicrubric.config import Config, Selection
from dynamicrubric.errors import UserError
from dynamicrubric.metrics import ROUND_METRICS, tracker_keys
from dynamicrubric.plan import expand
from dynamicrubric.report import (
    collect_outcomes,
    compare_arms,
    draw_study,
    markdown,
    write_comparison,
    write_metrics_csv,
)
from dynamicrubric.report.cellfiles import CELL_FILE, GAP_PARTS, find_cell, load_cell


def test_outcomes_of_a_study_hold_every_arm_round_and_metric(shared_study):
    study = shared_study(seeds=(1, 2))
    table = collect_outcomes(study.plan, study.root)
    assert len(table.rows) == 4 * 2 * 4 * len(ROUND_METRICS)
    assert {row.round for row in table.rows} == {0, 1, 2, 3}
    assert list(ROUND_METRICS) == list(dict.fromkeys(row.metric for row in table.rows))


def test_outcomes_of_a_shared_cell_appear_under_each_arm(shared_study):
    study = shared_study(arms=("coevolved", "stale"), rounds=1)
    table = collect_outcomes(study.plan, study.root)
    for metric in ROUND_METRICS:
        mine, theirs = (table.at(arm, 1, 1, metric).value for arm in ("coevolved", "stale"))
        assert mine == theirs


def test_outcomes_of_arms_with_other_seeds_and_rounds_are_means_over_their_own(fake_study):
    run = (
        Selection(arms=("coevolved",), seeds=(1, 2, 3), rounds=3),
        Selection(arms=("static",), seeds=(2,), rounds=1),
    )
    study = fake_study(arms=("coevolved", "static"), run=run)
    table = collect_outcomes(study.plan, study.root)
    assert table.seeds == (1, 2, 3)
    assert {arm: table.seeds_of(arm) for arm in table.arms} == {
        "coevolved": (1, 2, 3), "static": (2,)
    }  # fmt: skip
    assert (table.last_round_of("coevolved"), table.last_round_of("static")) == (3, 1)
    values = [table.at("coevolved", seed, 1, "kl").value for seed in (1, 2, 3)]
    assert table.mean("coevolved", 1, "kl") == pytest.approx(sum(values) / 3)
    assert table.mean("static", 1, "kl") == table.at("static", 2, 1, "kl").value
    assert table.mean("static", 2, "kl") is None
    compared = compare_arms(study.plan, study.questions, study.root)
    # Compared where both are: round 1, seed 2.
    assert {one.seed for found in compared.differences for one in found.by_seed} == {2}
    text = markdown(compared.outcomes, compared.differences, study.questions)
    assert "n = 3 seeds (1-3), 3 rounds" in text
    assert "n = 1 seed (2), 1 round" in text
    assert "Paired differences by prompt, round 1" in text
    draw_study(compared.outcomes, study.root / "study.png")
    assert (study.root / "study.png").stat().st_size > 0


def test_outcomes_seconds_are_the_sum_over_the_cells_records(shared_study):
    study = shared_study(arms=("coevolved", "stale"), rounds=2)
    folder = study.root / study.plan.cell("stale-s1-r2").directory
    records = [json.loads(path.read_text()) for path in folder.glob("*/record.json")]
    row = collect_outcomes(study.plan, study.root).at("stale", 1, 2, "seconds")
    assert row.value == pytest.approx(sum(r["provenance"]["seconds"] for r in records))
    assert row.n_scored == row.n_total == len(records) == 3


def test_outcomes_with_missing_cells_name_every_one(fake_study):
    study = fake_study(write=False)
    for key in ("coevolved-s1-r0", "coevolved-s1-r1", "static-s1-r0"):
        study.write_cell(key)
    with pytest.raises(UserError) as error:
        collect_outcomes(study.plan, study.root)
    text = str(error.value)
    assert "stale-s1-r2" in text
    assert "frozen-s1-r1" in text
    assert "coevolved-s1-r1" not in text


def changed_plan(study, **sections):
    """Return the plan of the study's config with other values in some sections."""
    document = study.config.model_dump(mode="json")
    for name, values in sections.items():
        document[name] |= values
    return expand(Config.model_validate(document))


def test_outcomes_of_another_plan_are_refused_by_name(shared_study):
    study = shared_study(arms=("coevolved", "frozen"), rounds=1)
    measured = study.config.evaluation.sets_per_prompt
    plan = changed_plan(study, evaluation={"sets_per_prompt": measured + 1})
    with pytest.raises(UserError, match="results of another plan") as error:
        collect_outcomes(plan, study.root)
    for key in (*plan.starts, *plan.cells):
        assert key in str(error.value)
    assert "Run `make reproduce`" in str(error.value)
    with pytest.raises(UserError, match="frozen-s1-r1") as error:
        load_cell(study.root, plan.cell("frozen-s1-r1"))
    assert study.plan.cell("frozen-s1-r1").hash in str(error.value)
    assert plan.cell("frozen-s1-r1").id in str(error.value)


def test_outcomes_of_a_shared_cell_are_found_under_another_arms_key(fake_study):
    study = fake_study(arms=("coevolved", "stale"), rounds=1)
    document = study.config.model_dump(mode="json")
    document["study"]["arms"] = {"fresh": document["study"]["arms"]["coevolved"]}
    plan = expand(Config.model_validate(document))
    for old, new in (("coevolved-s1-r0", "fresh-s1-r0"), ("coevolved-s1-r1", "fresh-s1-r1")):
        cells = study.plan.cell(old), plan.cell(new)
        assert cells[0].hash == cells[1].hash
        (study.root / cells[0].directory).rename(study.root / cells[1].directory)
    assert collect_outcomes(plan, study.root).arms == ("fresh",)


@pytest.mark.parametrize("trouble", ["absent", "cut short", "older than its artefacts"])
def test_outcomes_of_a_round_that_was_stopped_before_its_end_are_refused(fake_study, trouble):
    study = fake_study(write=False)
    study.write_cell("frozen-s1-r2")
    cell = study.plan.cell("frozen-s1-r2")
    path = study.root / cell.directory / CELL_FILE
    older = path.read_text()
    if trouble == "older than its artefacts":
        study.write_cell("frozen-s1-r2", quality_shift=0.5)
    path.write_text(older)
    if trouble == "absent":
        path.unlink()
    elif trouble == "cut short":
        path.write_text(older[:20])
    assert find_cell(study.root, cell) is None
    with pytest.raises(UserError, match=r"frozen-s1-r2.*cell\.json"):
        load_cell(study.root, cell)


@pytest.mark.parametrize(
    ("name", "value", "scored", "total", "complaint"),
    [
        ("tie_rate", 1.2, 5, 5, "tie_rate = 1.2"),
        ("tie_rate", -0.1, 5, 5, "tie_rate = -0.1"),
        ("tie_rate", float("nan"), 5, 5, "tie_rate = nan"),
        ("tie_rate", 0.5, 6, 5, "6 scored of 5"),
        ("tie_rate", 0.5, 0, 5, "with 0 scored"),
        ("tie_rate", None, 3, 5, "with 3 scored"),
        ("delta_gap", 0.5, 5, 5, "c_K r_disc"),
    ],
)
def test_outcomes_with_an_impossible_figure_are_refused(
    fake_study, name, value, scored, total, complaint
):
    study = fake_study(write=False)
    wrong = {name: {"value": value, "n_scored": scored, "n_total": total}}
    study.write_cell("frozen-s1-r2", metrics=wrong)
    with pytest.raises(UserError) as error:
        load_cell(study.root, study.plan.cell("frozen-s1-r2")).round_metrics()
    assert complaint in str(error.value)
    assert "frozen-s1-r2" in str(error.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"items_per_rubric": (3.0, 43, 47)}, "sets by figure"),
        ({"tie_rate": (0.1, 40, 48)}, "'rank_accuracy': 43, 'tie_rate': 40"),
        ({"r_dir": (None, 0, 48)}, "'r_disc': 43, 'r_dir': 0"),
        ({"items_per_rubric": (3.0, 42, 48)}, "a gap for 43 sets with 42 valid rubrics"),
        ({"valid_rubric_rate": (0.5, 48, 48)}, "43 valid rubrics at a rate of 0.5"),
        ({"rank_accuracy": (0.96, 43, 48)}, "rank_accuracy = 0.96 with tie_rate = 0.1"),
        ({"rank_accuracy": (0.04, 43, 48)}, "ties count half"),
    ],
)
def test_outcomes_whose_figures_contradict_each_other_are_refused(fake_study, changes, complaint):
    study = fake_study(write=False)
    wrong = {
        name: {"value": value, "n_scored": scored, "n_total": total}
        for name, (value, scored, total) in changes.items()
    }
    study.write_cell("frozen-s1-r2", metrics=wrong)
    with pytest.raises(UserError) as error:
        load_cell(study.root, study.plan.cell("frozen-s1-r2")).round_metrics()
    assert complaint in str(error.value)
    assert "frozen-s1-r2" in str(error.value)


NO_RUBRICS = {
    "valid_rubric_rate": (None, 0, 48), "items_per_rubric": (None, 0, 48), "r_disc": (None, 0, 48),
    "r_dir": (None, 0, 48), "r_cov": (None, 0, 48), "delta_gap": (0.1, 43, 48),
}  # fmt: skip


def write_without_rubrics(study, key: str) -> None:
    own = {
        name: {"value": value, "n_scored": scored, "n_total": total}
        for name, (value, scored, total) in NO_RUBRICS.items()
    }
    study.write_cell(key, metrics=own)


def test_outcomes_of_an_evaluator_without_rubrics_have_a_gap_all_the_same(fake_study):
    study = fake_study(arms=("length",), rounds=1, write=False)
    write_without_rubrics(study, "length-s1-r1")
    found = load_cell(study.root, study.plan.cell("length-s1-r1")).round_metrics()
    assert found["delta_gap"].value == 0.1
    assert found["gap_disc"].value is None


def test_outcomes_of_rubrics_have_no_gap_without_them(fake_study):
    study = fake_study(write=False)
    write_without_rubrics(study, "frozen-s1-r2")
    with pytest.raises(UserError, match="scored sets by figure"):
        load_cell(study.root, study.plan.cell("frozen-s1-r2")).round_metrics()


def test_outcome_table_with_a_figure_missing_doubled_or_unlisted_is_none(shared_study):
    study = shared_study(arms=("coevolved", "static"), rounds=1)
    table = collect_outcomes(study.plan, study.root)
    with pytest.raises(AssertionError, match="1 figures too few or too many"):
        replace(table, rows=table.rows[1:])
    with pytest.raises(AssertionError, match="twice"):
        replace(table, rows=(*table.rows, table.rows[0]))
    with pytest.raises(AssertionError, match="unlisted"):
        replace(table, arms=("coevolved",))
    with pytest.raises(AssertionError, match="seeds without figures"):
        replace(table, seeds=(1, 2))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"drop": ("kl",)}, r"missing \['kl'\]"),
        ({"metrics": {"Score > 90%": {"value": 1.0, "n_scored": 1, "n_total": 1}}}, "Score > 90%"),
    ],
)
def test_outcomes_with_a_metric_missing_or_unknown_are_refused(fake_study, changes, complaint):
    study = fake_study(write=False)
    study.write_cell("static-s1-r0", **changes)
    with pytest.raises(UserError, match=complaint):
        load_cell(study.root, study.plan.cell("static-s1-r0")).round_metrics()


def test_outcomes_of_an_altered_file_are_refused(fake_study):
    study = fake_study(write=False)
    study.write_cell("static-s1-r0")
    cell = study.plan.cell("static-s1-r0")
    path = study.root / cell.directory / "evaluation/metrics.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("0.7", "0.8"))
    with pytest.raises(UserError, match=r"static-s1-r0/evaluation/metrics\.json"):
        load_cell(study.root, cell).round_metrics()


def test_outcomes_where_nothing_was_scored_are_kept_without_a_value(fake_study, tmp_path):
    study = fake_study(arms=("static",))
    nothing = {"value": None, "n_scored": 0, "n_total": 48}
    # The four parts of a gap are there or not there together.
    study.write_cell("static-s1-r3", metrics=dict.fromkeys(GAP_PARTS, nothing))
    table = collect_outcomes(study.plan, study.root)
    assert table.mean("static", 3, "delta_gap") is None
    write_metrics_csv(table, tmp_path / "metrics.csv")
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    (row,) = [
        r for r in rows if (r["arm"], r["round"], r["metric"]) == ("static", "3", "delta_gap")
    ]
    assert (row["value"], row["n_scored"], row["n_total"]) == ("", "0", "48")


def test_comparison_writes_tables_and_pictures_beside_the_report(shared_study, undrawn, tmp_path):
    study = shared_study()
    first = write_comparison(study.plan, study.questions, study.root, tmp_path).files
    assert [path.name for path in first] == [
        "metrics.csv", "table.md", "study.png", "study.svg", "grid.csv", "grid.png", "grid.svg"
    ]  # fmt: skip
    header = first[0].read_text().splitlines()[0]
    assert header == "arm,seed,round,metric,value,n_scored,n_total"


def test_tracker_keys_are_names_that_mlflow_takes():
    assert all(set(key) <= set("abcdefghijklmnopqrstuvwxyz_/") for key in tracker_keys())
