"""What a plan will cost, from records of earlier steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.config import Config
from dynamicrubric.estimate import Shape, earlier_costs, estimate_plan
from dynamicrubric.plan import Plan, expand
from dynamicrubric.planview import cost_lines, lattice_rows
from dynamicrubric.yamlio import load_yaml

STUDY = Path(__file__).parent / "study.yaml"


def plan_of(**study: Any) -> Plan:
    document = load_yaml(STUDY)
    document["study"] |= study
    return expand(Config.model_validate(document))


def record(folder: Path, step: str, seconds: float, size: int = 1000, **identity: Any) -> None:
    folder.mkdir(parents=True)
    document = {
        "step": step,
        "identity": identity,
        "provenance": {"seconds": seconds},
        "files": {"a": {"bytes": size}, "b": {"bytes": size}},
    }
    (folder / "record.json").write_text(json.dumps(document))


def policy(folder: Path, seconds: float, steps: int = 60, evaluator: str = "dynamic") -> None:
    record(
        folder, "train_policy", seconds, responses_per_set=8,
        rubrics={"evaluator": evaluator}, training={"steps": steps, "prompts_per_step": 8},
    )  # fmt: skip


def test_estimate_without_an_earlier_run_says_so(tmp_path: Path) -> None:
    found = estimate_plan(plan_of(), tmp_path)
    assert found is None
    assert "no earlier run" in cost_lines(found, found, 2)[0]


def test_estimate_takes_the_median_of_the_same_shape_and_names_what_was_never_run(
    tmp_path: Path,
) -> None:
    for number, seconds in enumerate((10.0, 20.0, 90.0)):
        policy(tmp_path / f"data/runs/cell{number}/policy", seconds)
    found = estimate_plan(plan_of(run=["frozen"]), tmp_path)
    assert found is not None
    # Three rounds of 20 s; two files of 1000 bytes each.
    assert (found.seconds, found.longest, found.size) == (60.0, 60.0, 6000)
    assert (found.num_records, found.num_scaled) == (3, 0)
    assert found.unknown == {
        "prepare": 1, "warm_start": 2, "sample_responses": 3, "evaluate_round": 4,
    }  # fmt: skip
    assert any("4 x evaluate_round" in line for line in cost_lines(found, found, 2))


def test_estimate_scales_other_shapes_of_the_same_step(tmp_path: Path) -> None:
    policy(tmp_path / "work/retired/cell/policy", 10.0, steps=30)
    policy(tmp_path / "work/retired/other/policy", 99.0, steps=60, evaluator="static")
    found = estimate_plan(plan_of(run=["frozen"]), tmp_path)
    assert found is not None
    assert found.num_scaled == 3
    assert found.seconds == pytest.approx(3 * 20.0)


def test_estimate_of_what_is_left_leaves_finished_cells_out(tmp_path: Path) -> None:
    policy(tmp_path / "data/runs/cell/policy", 20.0)
    plan = plan_of(run=["frozen"], seeds=[1, 2])
    left = estimate_plan(plan, tmp_path, {"frozen-s1-r1", "frozen-s1-r2", "frozen-s2-r1"})
    assert left is not None
    assert (left.seconds, left.longest) == (60.0, 40.0)
    assert left.wall_seconds(2) == 40.0  # seed 2 has two rounds to go, one after the other
    assert "prepare" not in left.unknown


def test_estimate_counts_each_seeds_grid_unless_it_is_measured(tmp_path: Path) -> None:
    policy(tmp_path / "data/runs/cell/policy", 20.0)
    record(tmp_path / "data/grid/s9", "evaluate_grid", 30.0, seed=9)
    plan = plan_of(run=["coevolved", "stale"], seeds=[1, 2])
    cells = {*plan.starts, *plan.cells}
    one, none = (
        estimate_plan(plan, tmp_path, cells | grids)
        for grids in ({"data/grid/s1"}, {"data/grid/s1", "data/grid/s2"})
    )
    whole = estimate_plan(plan, tmp_path)
    assert whole is not None and one is not None and none is not None
    assert (one.seconds, none.seconds) == (30.0, 0.0)
    assert "evaluate_grid" not in whole.unknown
    assert whole.seconds == len(plan.cells) * 20.0 + 60.0


def test_estimate_of_the_longest_chain_has_one_warm_start_and_the_grid_that_waits_for_it(
    tmp_path: Path,
) -> None:
    plan = plan_of(run=["coevolved", "stale"], seeds=[1, 2], rounds=2)
    record(tmp_path / "data/prepared", "prepare", 5.0)
    for role, seconds in (("policy", 100.0), ("generator", 40.0)):
        settings = plan.shared["warm_start"][role]["settings"]
        record(tmp_path / f"data/warm/{role}", "warm_start", seconds, settings=settings)
    policy(tmp_path / "data/runs/cell/policy", 20.0)
    record(tmp_path / "data/grid/s9", "evaluate_grid", 30.0, seed=9)
    found = estimate_plan(plan, tmp_path)
    assert found is not None
    assert found.longest == 5.0 + 100.0 + 2 * 20.0 + 30.0
    assert found.seconds == 5.0 + 140.0 + len(plan.cells) * 20.0 + 2 * 30.0
    assert found.wall_seconds(2) == found.longest


@pytest.mark.parametrize("text", ["", "{", "[]", '{"step": "train_policy"}'])
def test_estimate_passes_over_records_it_cannot_read(tmp_path: Path, text: str) -> None:
    policy(tmp_path / "data/runs/whole/policy", 20.0)
    (tmp_path / "data/runs/broken/policy").mkdir(parents=True)
    (tmp_path / "data/runs/broken/policy/record.json").write_text(text)
    assert earlier_costs(tmp_path).keys() == {Shape("train_policy", "dynamic", 60 * 8 * 8)}


def test_lattice_rows_put_the_seeds_of_an_arm_together() -> None:
    plan = plan_of(run=["stale", {"arms": ["static"], "seeds": [4]}], seeds=[1, 2, 3], rounds=2)
    rows = {row.arm: row for row in lattice_rows(plan)}
    assert rows["stale"].seeds == (1, 2, 3)
    assert rows["stale"].cells == ("coevolved-s*-r0", "coevolved-s*-r1", "stale-s*-r2")
    assert rows["static"].cells == ("static-s4-r0", "static-s4-r1", "static-s4-r2")
