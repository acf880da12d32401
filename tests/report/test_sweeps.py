"""Sweeps along a setting of the anchors: which arms are one, their points, how they are shown."""

from __future__ import annotations

import csv
import shutil
import statistics

import pytest

from dynamicrubric.report import write_comparison
from dynamicrubric.report.gather import gather
from dynamicrubric.report.sweeps import WRONG_WAY, sweeps_of

NOISE = ("coevolved", "noise_10", "noise_20", "noisy_anchors", "disc_only")
COUNT = ("anchors_5", "coevolved", "disc_only", "anchors_2", "anchors_3")
SHIFTED = ("coevolved", "disc_only", "anchors_strong", "anchors_weak", "anchors_elsewhere")


def anchors_study(fake_study, arms: tuple[str, ...], **options):
    return fake_study(arms=arms, rounds=1, profile="anchors", **options)


@pytest.mark.parametrize(
    ("arms", "setting", "values"),
    [
        (NOISE, "anchor_swap_rate", [0.0, 0.1, 0.2, 0.3]),
        (COUNT, "num_anchors", [2, 3, 5, 7]),
        (SHIFTED, "anchor_source", ["prepared", "strong", "weak", "elsewhere"]),
    ],
)
def test_sweep_is_of_the_arms_that_differ_in_the_setting_alone(
    fake_study, arms, setting, values
) -> None:
    study = anchors_study(fake_study, arms)
    (sweep,) = sweeps_of(gather(study.plan, study.root))
    assert sweep.setting == setting
    assert [point.value for point in sweep.points] == values
    assert {point.arm for point in sweep.points} == set(arms) - {"disc_only"}
    assert sweep.none is not None and sweep.none.arm == "disc_only"


def test_two_arms_are_no_sweep_and_the_default_study_has_none(fake_study) -> None:
    study = anchors_study(fake_study, ("coevolved", "noisy_anchors", "disc_only"))
    assert sweeps_of(gather(study.plan, study.root)) == ()


def test_default_study_has_no_sweep(fake_study) -> None:
    study = fake_study(rounds=1)
    assert sweeps_of(gather(study.plan, study.root)) == ()


def test_points_are_means_over_prompts_with_intervals_and_what_anchors_add(fake_study) -> None:
    study = anchors_study(fake_study, NOISE, seeds=(1, 2, 3))
    study.write_cell("noise_20-s2-r1", quality_shift=0.5)
    gathered = gather(study.plan, study.root)
    (sweep,) = sweeps_of(gathered)
    points = {point.value: point for point in sweep.points}

    def mean(arm: str) -> float:
        cells = [gathered.cells[f"{arm}-s{seed}-r1"] for seed in (1, 2, 3)]
        values = [list(cell.by_prompt["true_quality"].values()) for cell in cells]
        return statistics.fmean(statistics.fmean(map(float, own)) for own in values)

    shifted = points[0.2]
    assert shifted.seeds == (1, 2, 3)
    assert shifted.figures["true_quality"].mean == pytest.approx(mean("noise_20"))
    assert shifted.figures["true_quality"].over == "seeds and prompts"
    assert shifted.above_none is not None
    assert shifted.above_none.mean == pytest.approx(mean("noise_20") - mean("disc_only"))
    low, high = shifted.above_none.interval
    assert low < shifted.above_none.mean < high
    # Of the pairs 0.7 are in order with ties as halves, and 0.1 are ties.
    assert shifted.figures[WRONG_WAY].mean == pytest.approx(1 - 0.7 - 0.1 / 2)


def test_sweep_without_the_arm_that_reads_no_anchors_has_nothing_to_be_above(fake_study) -> None:
    study = anchors_study(fake_study, NOISE[:-1])
    (sweep,) = sweeps_of(gather(study.plan, study.root))
    assert sweep.none is None
    assert all(point.above_none is None for point in sweep.points)


def test_report_draws_each_sweep_and_writes_its_points(fake_study, without_pictures) -> None:
    study = anchors_study(fake_study, (*NOISE, *SHIFTED[2:]))
    with without_pictures("sweep_"):
        found = write_comparison(study.plan, study.questions, study.root, study.root / "results")
    page = (found.report / "index.html").read_text(encoding="utf-8")
    assert 'href="#sweeps"' in page
    for setting in ("anchor_swap_rate", "anchor_source"):
        picture = found.report / f"plots/sweep_{setting}.png"
        assert picture.read_bytes().startswith(b"\x89PNG")
    with (found.report / "tables/sweeps.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["setting"] for row in rows} == {"anchor_swap_rate", "anchor_source"}
    noisy = [r for r in rows if r["arm"] == "noise_20" and r["metric"] == "true_quality"]
    assert [row["value"] for row in noisy] == ["0.2"]
    assert float(noisy[0]["low"]) < float(noisy[0]["mean"]) < float(noisy[0]["high"])


def test_partial_study_sweeps_what_is_there(fake_study) -> None:
    study = anchors_study(fake_study, NOISE)
    shutil.rmtree(study.root / "data/runs/noise_10-s1-r1")
    (sweep,) = sweeps_of(gather(study.plan, study.root))
    assert [point.value for point in sweep.points] == [0.0, 0.2, 0.3]
