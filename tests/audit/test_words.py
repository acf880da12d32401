"""The page says what the figures say, in words too."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.audit.findings import audit_of
from dynamicrubric.audit.page import write_page
from dynamicrubric.audit.words import answer, grids, notes

LINE = [(0.10, -3.0, 0.8), (0.12, -2.5, 0.7), (0.11, -2.0, 0.6), (0.15, -1.5, 0.5)]
"""eta_res = 0.2 - 0.2 J_anchor."""


def test_generators_on_one_line_are_told_so(synthetic: Any) -> None:
    groups = [synthetic.group(LINE, number=number, policy=f"p{number}") for number in (1, 2)]
    audit = audit_of(synthetic.measured(*groups))
    assert audit.by_policy.mean.beta == pytest.approx(0.2)
    said = answer(audit)
    assert "8 generators" in said and "2 policies" in said and "rounds 1 and 2" in said
    assert "at most 0.300" in said and "100 % less" in said and "better than no anchors" in said
    assert "beta = c_K = 2.40" in said and "worse than no anchors at all" in said
    assert "0.083 by the mean slack" in said  # 0.2 / 2.4
    assert "is 0.050 on the rewards: its match, beta = 0.120" in said  # 0.02 / 0.4
    assert "1.00 in round 1 and 1.00 in round 2" in said


def test_anchors_that_help_nobody_are_told_so(synthetic: Any) -> None:
    against = [(disc, anchor, 1.3 - eta) for disc, anchor, eta in LINE]
    said = answer(audit_of(synthetic.measured(synthetic.group(against))))
    assert "hardly better than no anchors at all" in said
    assert "1 policy" in said and "round 1" in said
    assert "-1.00 in round 1" in said


def test_offsets_that_seeds_share_leave_more_slack(synthetic: Any) -> None:
    moved = [(disc, anchor, eta + 0.5) for disc, anchor, eta in LINE]
    audit = audit_of(synthetic.measured(synthetic.group(LINE), synthetic.group(moved, seed=2)))
    assert (audit.by_policy.num_offsets, audit.by_round.num_offsets) == (2, 1)
    assert audit.by_policy.largest.largest == pytest.approx(0.0, abs=1e-9)
    assert audit.by_round.largest.largest >= 0.5


def test_sets_of_different_sizes_and_nothing_at_all_are_refused(synthetic: Any) -> None:
    from dataclasses import replace

    one = synthetic.group(LINE)
    with pytest.raises(ValueError, match="different sizes"):
        audit_of(synthetic.measured(one, replace(one, c_k=2.0, seed=2)))
    with pytest.raises(ValueError, match="no policy"):
        audit_of(synthetic.measured())


def test_page_has_question_answer_picture_and_tables(synthetic: Any, tmp_path: Path) -> None:
    groups = [synthetic.group(LINE, seed=seed, noise=0.1) for seed in (1, 2, 3)]
    audit = audit_of(synthetic.measured(*groups))
    files = write_page(audit, tmp_path / "audit", "PARTIAL: 1 of 4 audits are missing.")
    names = {path.name for path in files}
    assert names == {
        "index.html", "answer.md", "audit.png", "audit.svg", "audit_generators.csv",
        "audit_bound.csv", "audit_rounds.csv", "audit_ends.csv", "audit_pairs.csv",
    }  # fmt: skip
    assert all(path.stat().st_size for path in files)
    page = (tmp_path / "audit/index.html").read_text()
    assert "Is there such a beta" in page and "PARTIAL: 1 of 4" in page
    assert "data:image/svg+xml" in page and "<script" not in page
    for grid in grids(audit):
        assert grid.heads[1] in page
    with (tmp_path / "audit/audit_generators.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 12
    for row in rows:
        value = float(row["eta_res"])
        assert float(row["eta_res_low"]) < value < float(row["eta_res_high"])
        gap = synthetic.C_K * float(row["r_disc"]) - value
        assert float(row["delta_gap"]) == pytest.approx(gap)
    again = write_page(audit, tmp_path / "again", "PARTIAL: 1 of 4 audits are missing.")
    for one, other in zip(files, again, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_notes_name_generators_that_hardly_wrote_a_rubric(synthetic: Any) -> None:
    from dataclasses import replace

    one = synthetic.group(LINE)
    few = replace(one.checkpoints[0], sets=3)
    group = replace(one, checkpoints=(few, *one.checkpoints[1:]))
    said = dict(notes(audit_of(synthetic.measured(group))))
    assert f"{few.name} 3 of 48" in said["a generator"]
    assert "uniform over the pairs" in said["P of Δ gap"]


def test_slack_that_chance_takes_off_too_is_told_so(synthetic: Any) -> None:
    # Of two generators, any that have J_anchor and -eta_res in one order are on one line.
    found = audit_of(synthetic.measured(synthetic.group(LINE[:2])))
    assert found.by_policy.largest.largest == pytest.approx(0.0, abs=1e-9)
    assert found.by_policy.chance.largest_as_much == pytest.approx(0.5, abs=0.06)
    assert found.by_policy.chance.largest_off == pytest.approx(0.5, abs=0.06)
    said = answer(found)
    assert "100 % less): no better than chance may do" in said
    many = [synthetic.group(LINE, policy=f"p{n}") for n in range(3)]
    sure = audit_of(synthetic.measured(*many))
    assert sure.by_policy.chance.largest_as_much < 0.01
    assert "100 % less): better than no anchors" in answer(sure)


def test_best_betas_have_intervals_that_noise_widens(synthetic: Any) -> None:
    def intervals(noise: float) -> Any:
        groups = [synthetic.group(LINE, policy=f"p{n}", number=n, noise=noise) for n in (1, 2)]
        return audit_of(synthetic.measured(*groups)).by_policy.intervals

    for name in ("largest", "mean"):
        exact, loud = getattr(intervals(0.0), name), getattr(intervals(0.5), name)
        assert exact == pytest.approx((0.2, 0.2))
        assert loud[0] < 0.2 < loud[1] and loud[0] >= 0.0


def test_generators_that_trainings_end_with_are_told_by_objective(synthetic: Any) -> None:
    from dataclasses import replace

    def group(seed: int) -> Any:
        one = synthetic.group(LINE, seed=seed)
        start, kept, full, disc = one.checkpoints
        ended = (
            replace(start, step=0), kept, replace(full, step=60), replace(disc, step=60, anchor=0.0)
        )  # fmt: skip
        shifted = {name: values + seed for name, values in one.values.items()}
        return replace(one, checkpoints=ended, values=shifted)

    audit = audit_of(synthetic.measured(*map(group, (1, 2, 3))))
    found = {one.objective: one for one in audit.rounds[0].ends}
    assert list(found) == ["before training", "full", "disc only"]
    assert [one.generators for one in found.values()] == [3, 3, 3]
    assert found["full"].figures["j_anchor"].value == pytest.approx(-2.0 + 2)  # not the kept one's
    one = found["disc only"].figures["r_disc"]
    assert one.over == "seeds" and one.value == pytest.approx(2.15)
    assert one.low is not None and one.high is not None
    assert one.low < 2.15 < one.high
