"""Generators of round 1 on the start policy's responses: only the generators differ."""

from __future__ import annotations

import csv
import dataclasses
import statistics

import pyarrow.parquet as pq
import pytest

from dynamicrubric.arms import Selection
from dynamicrubric.report import write_comparison
from dynamicrubric.report.gather import UPDATES, gather
from dynamicrubric.report.startpolicy import on_start_policy
from dynamicrubric.stats import holm

ARMS = ("coevolved", "stale", "disc_only", "static", "frozen")


def _before(study, arm, seed, metric="delta_gap"):
    """Return the mean over prompts of an arm's generator on the start policy's sets."""
    key = study.plan.paths[arm, seed][1]
    path = study.root / study.plan.cell(key).directory / "evaluation/before.parquet"
    values: dict[str, list[float]] = {}
    for row in pq.read_table(path).to_pylist():
        if row[metric] is not None:
            values.setdefault(row["prompt_id"], []).append(row[metric])
    return {prompt: statistics.fmean(own) for prompt, own in values.items()}


def test_generators_of_round_1_are_paired_on_the_start_policys_prompts(shared_study):
    study = shared_study(arms=ARMS, seeds=(1, 2, 3), rounds=2)
    found = on_start_policy(gather(study.plan, study.root), "coevolved")
    # `stale` shares the round: there is nothing to compare.
    others = ("disc_only", "static", "frozen")
    assert [(one.metric, one.other) for one in found] == [
        (metric, other) for metric in UPDATES for other in others
    ]
    for one in found[: len(others)]:
        by_seed = []
        for seed in (1, 2, 3):
            mine, theirs = (_before(study, arm, seed) for arm in ("coevolved", one.other))
            by_seed.append(statistics.fmean(mine[p] - theirs[p] for p in mine.keys() & theirs))
        assert [pair.mean for pair in one.by_seed] == pytest.approx(by_seed)
        assert one.estimate.mean == pytest.approx(statistics.fmean(by_seed))
        means = [statistics.fmean(_before(study, one.other, seed).values()) for seed in (1, 2, 3)]
        assert one.theirs == pytest.approx(statistics.fmean(means))
        assert one.estimate.over == "seeds and prompts"
    p_values = [one.estimate.p_value for one in found[: len(others)]]
    assert [one.p_corrected for one in found[: len(others)]] == list(holm(p_values))


def test_seeds_and_cells_that_one_arm_has_alone_are_left_out(fake_study):
    run = (
        Selection(arms=("coevolved",), seeds=(1, 2), rounds=1),
        Selection(arms=("disc_only",), seeds=(2, 3), rounds=1),
        Selection(arms=("static",), seeds=(1, 2), rounds=1),
    )
    study = fake_study(arms=("coevolved", "disc_only", "static"), seeds=(1, 2, 3), run=run)
    gathered = gather(study.plan, study.root)
    seeds = {one.other: [p.seed for p in one.by_seed] for one in on_start_policy(gathered, ARMS[0])}
    assert seeds == {"disc_only": [2], "static": [1, 2]}
    cells = {key: one for key, one in gathered.cells.items() if key != "static-s1-r1"}
    partial = dataclasses.replace(gathered, cells=cells)
    seeds = {one.other: [p.seed for p in one.by_seed] for one in on_start_policy(partial, ARMS[0])}
    assert seeds == {"disc_only": [2], "static": [2]}


def test_report_has_them_as_a_table_and_a_file(fake_study, undrawn):
    study = fake_study(arms=("coevolved", "static"), rounds=1)
    found = write_comparison(study.plan, {}, study.root, study.root / "results")
    page = (found.report / "index.html").read_text(encoding="utf-8")
    assert "Δ gap of the generators of round 1 on the start policy&#39;s responses" in page
    with (found.report / "tables/start_policy.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["arm"], row["other"], row["metric"]) for row in rows] == [
        ("coevolved", "static", metric) for metric in UPDATES
    ]
    gaps = [statistics.fmean(_before(study, arm, 1).values()) for arm in ("coevolved", "static")]
    assert [float(rows[0]["mean_arm"]), float(rows[0]["mean_other"])] == pytest.approx(gaps)
    assert {row["seeds"] for row in rows} == {"1"}


def test_arm_without_rubrics_has_no_part_in_what_rubrics_alone_have(fake_study):
    study = fake_study(arms=("coevolved", "static"), rounds=1, write=False)

    def scores_alone(tables):
        for row in tables["before"]:
            row.update(r_disc=None, r_dir=None, r_cov=None, valid=False)

    for key in (*study.plan.starts, *study.plan.cells):
        study.write_cell(key, alter=scores_alone if key == "static-s1-r1" else None)
    found = on_start_policy(gather(study.plan, study.root), "coevolved")
    assert [one.metric for one in found] == ["delta_gap", "tie_rate"]


def test_arm_that_was_not_measured_before_its_update_is_left_out(fake_study):
    study = fake_study(arms=("coevolved", "static"), rounds=1, write=False)
    for key in (*study.plan.starts, *study.plan.cells):
        drop = (lambda tables: tables.pop("before", None)) if "static" in key else None
        study.write_cell(key, alter=drop)
    gathered = gather(study.plan, study.root)
    assert on_start_policy(gathered, "coevolved") == ()
    assert on_start_policy(gathered, "static") == ()
