"""The probes in the report: figures, sections, pictures, CSV, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from dynamicrubric.errors import UserError
from dynamicrubric.report import write_comparison
from dynamicrubric.report.gather import gather
from dynamicrubric.report.probesection import DIVERGED
from dynamicrubric.report.probetable import missing_probes, probe_faults, read_probes

ARMS = ("coevolved", "frozen", "static")


def gains(arm: str, number: int, attack: str, mode: str) -> tuple[float, float]:
    """The orders work on frozen alone, a planted phrase on coevolved in round 2, earned."""
    if arm == "static" and attack == "orders":
        return 0.3, -0.2
    if arm == "coevolved" and number == 2 and attack == "planted_phrase":
        return 0.2, 0.2
    return 0.0, -0.1


def shares(arm: str, number: int) -> tuple[float, float]:
    return (0.8, 0.3) if (arm, number) == ("frozen", 2) else (0.8, 0.7)


@pytest.fixture(scope="module")
def study(shared_study):
    made = shared_study(arms=ARMS, rounds=2, probe=ARMS)
    made.write_probes(gains, shares)
    return made


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_round_of_each_arm_has_its_figures_and_shared_cells_are_of_all_their_arms(study):
    found = read_probes(study.plan, study.root)
    assert [(one.arm, one.round) for one in found] == [(a, n) for a in ARMS for n in range(3)]
    by_place = {(one.arm, one.round): one for one in found}
    assert by_place["coevolved", 0].attacks == by_place["frozen", 0].attacks  # one cell
    assert all(len(one.attacks) == 6 * 2 + 5 for one in found)
    unearned = {
        (one.arm, one.round, a.attack, a.mode)
        for one in found
        for a in one.attacks
        if a.finding == "unearned"
    }
    assert unearned == {
        ("static", number, "orders", mode) for number in range(3) for mode in ("kept", "seen")
    }
    earned = {
        (one.arm, one.round, a.attack)
        for one in found
        for a in one.attacks
        if a.finding == "earned"
    }
    assert earned == {("coevolved", 2, "planted_phrase")}
    assert {(one.arm, one.round) for one in found if one.diverges} == {("frozen", 2)}
    assert [len(one.courses) for one in found] == [0, 1, 2] * 3


def test_report_shows_attacks_and_course_with_pictures_and_tables(study, tmp_path, undrawn):
    found = write_comparison(study.plan, {}, study.root, tmp_path / "results")
    page = (found.report / "index.html").read_text(encoding="utf-8")
    assert 'href="#probes"' in page and 'href="#course"' in page
    assert "orders (kept) on static, round 1" in page
    assert "Of the second order: none." in page
    assert f"{DIVERGED}: frozen, round 2." in page
    for name in ("probes", "course"):
        assert (found.report / f"plots/{name}.png").exists()
    rows = table(found.report / "tables/probes.csv")
    assert len(rows) == 3 * 3 * 17
    place = {"arm": "static", "round": "1", "attack": "orders", "mode": "kept"}
    (row,) = [one for one in rows if place.items() <= one.items()]
    assert float(row["score_gain"]) == pytest.approx(0.3, abs=0.02)
    assert float(row["quality_gain"]) == pytest.approx(-0.2, abs=0.02)
    assert float(row["score_low"]) > 0 > float(row["quality_high"])
    assert (row["over"], row["score_scored"], row["finding"]) == ("prompts", "24", "unearned")
    course = table(found.report / "tables/course.csv")
    assert {(r["arm"], r["round"]) for r in course if r["diverges"] == "True"} == {("frozen", "2")}


def test_pictures_are_drawn_also_of_a_single_round(fake_study, without_pictures):
    study = fake_study(arms=("coevolved",), rounds=1, probe=("coevolved",))
    with without_pictures("probes", "course"):
        found = write_comparison(study.plan, {}, study.root, study.root / "results")
    for name in ("probes", "course"):
        assert (found.report / f"plots/{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "true quality" in (found.report / "plots/probes.svg").read_text(encoding="utf-8")


def test_three_seeds_are_put_together_with_intervals_over_both(fake_study):
    study = fake_study(arms=("coevolved",), seeds=(1, 2, 3), rounds=1, probe=("coevolved",))
    start, last = read_probes(study.plan, study.root)
    assert last.seeds == (1, 2, 3)
    assert {a.score.estimate.over for a in last.attacks} == {"seeds and prompts"}
    assert {a.score.n_total for a in start.attacks} == {3 * study.prompts}


def test_plan_without_probes_has_no_such_section(fake_study, undrawn):
    study = fake_study(arms=("coevolved",), rounds=1)
    assert read_probes(study.plan, study.root) == ()
    found = write_comparison(study.plan, {}, study.root, study.root / "results")
    assert 'id="probes"' not in (found.report / "index.html").read_text(encoding="utf-8")


def test_missing_probe_is_named_and_left_out_of_a_partial_report(fake_study, undrawn):
    study = fake_study(arms=("coevolved",), rounds=1, probe=("coevolved",), write=False)
    for key in (*study.plan.starts, *study.plan.cells):
        study.write_cell(key)
    assert missing_probes(study.plan, study.root) == ("s1",)
    with pytest.raises(UserError, match="no probe@s1"):
        write_comparison(study.plan, {}, study.root, study.root / "results")
    found = write_comparison(study.plan, {}, study.root, study.root / "part", partial=True)
    assert "1 probe missing" in found.mark


def test_probe_of_other_artefacts_is_not_taken_for_this_studys(fake_study):
    study = fake_study(arms=("coevolved",), rounds=1, probe=("coevolved",))
    assert probe_faults(study.plan, study.root) == ()
    study.write_cell("coevolved-s1-r1", quality_shift=0.5)
    (fault,) = probe_faults(study.plan, study.root)
    assert (fault.key, fault.missing) == ("probe@s1", False)
    assert "other generators, responses" in fault.reason


def test_probe_whose_cell_is_missing_is_one_too(fake_study):
    study = fake_study(arms=("coevolved",), rounds=1, probe=("coevolved",))
    (fault,) = probe_faults(study.plan, study.root, {"coevolved-s1-r1"})
    assert "coevolved-s1-r1" in fault.reason


def _gain(rows):
    rows["attacks"][3]["score_gain"] += 0.1


def _twice(rows):
    rows["attacks"].append(rows["attacks"][0])


def _cell(rows):
    rows["attacks"] = [row for row in rows["attacks"] if row["cell"] != "coevolved-s1-r1"]


def _course(rows):
    rows["course"] = []


@pytest.mark.parametrize(
    ("alter", "said"),
    [(_gain, "score gained"), (_twice, "a set twice"), (_cell, "cells"), (_course, "cells")],
)
def test_table_that_contradicts_itself_or_the_plan_is_a_fault(fake_study, alter, said):
    study = fake_study(arms=("coevolved",), rounds=1, probe=("coevolved",))
    study.write_probes(alter=alter)
    faults = gather(study.plan, study.root).faults
    assert [fault.key for fault in faults] == ["probe@s1"]
    assert said in faults[0].reason
