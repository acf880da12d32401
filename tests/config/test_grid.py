"""Which grids a plan has, and what cells.yaml says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.config import ArmConfig, Config, load_config
from dynamicrubric.grid import (
    GENERATORS,
    LAST_ROUND,
    POLICIES,
    UNDER,
    grid_structure,
    planned_grids,
)
from dynamicrubric.plan import Plan, expand, plan_document, stage_structure
from dynamicrubric.versions import STEP_VERSIONS

ROOT = Path(__file__).resolve().parents[2]


def planned(**study: Any) -> Plan:
    """Expand the default study with changes of its arms, seeds or rounds."""
    config: Config = load_config(ROOT / "profiles/postcards.yaml")
    arms = study.pop("arms", ("coevolved", "stale", "frozen", "static"))
    chosen = {name: config.study.arms[name] for name in arms}
    all_run = {"groups": {}, "run": None}
    changed = config.study.model_copy(update={"arms": chosen, **all_run, **study})
    return expand(config.model_copy(update={"study": changed}))


def test_grid_of_each_seed_reads_the_pairs_first_two_rounds() -> None:
    grids = planned_grids(planned(seeds=(2, 1), rounds=3))
    assert list(grids) == ["s1", "s2"]
    grid = grids["s2"]
    assert grid.directory == "data/grid/s2"
    assert grid.generators == {
        "G_0": "data/warm/generator",
        "G_1": "data/runs/coevolved-s2-r1/generator",
        "G_2": "data/runs/coevolved-s2-r2/generator",
        "G~_2": "data/runs/stale-s2-r2/generator",
    }
    assert list(grid.generators) == list(GENERATORS)
    assert [cell.key for cell in grid.policies.values()] == [
        "coevolved-s2-r0", "coevolved-s2-r1", "coevolved-s2-r2"
    ]  # fmt: skip
    assert tuple(grid.policies) == POLICIES


def test_group_grid_trains_p_1_under_each_generator_of_the_grid() -> None:
    study = load_config(ROOT / "profiles/postcards.yaml").study
    (group,) = study.groups["grid"]
    assert set(group.arms) == set(UNDER.values())
    plan = planned(arms=group.arms, rounds=group.rounds)
    (grid,) = planned_grids(plan).values()
    assert {plan.paths[arm, grid.seed][1] for arm in group.arms} == {grid.cells[1].key}
    for generator, arm in UNDER.items():
        cell = plan.cell(plan.paths[arm, grid.seed][LAST_ROUND])
        trained = cell.recipe.generator_training is not None
        under = f"{cell.directory}/generator" if trained else cell.generator_dir
        assert under == grid.generators[generator]


def test_grid_is_the_same_whichever_arm_gave_the_cells_their_names() -> None:
    grids = planned_grids(planned(arms=("stale", "coevolved"), rounds=2))
    assert grids["s1"].generators["G_1"] == "data/runs/stale-s1-r1/generator"
    assert grids["s1"].generators["G_2"] == "data/runs/coevolved-s1-r2/generator"


@pytest.mark.parametrize(
    "study",
    [
        {"rounds": 1},
        {"arms": ("coevolved", "frozen", "static")},
        {"arms": ("stale", "frozen", "static")},
    ],
)
def test_plan_without_the_pair_or_its_rounds_has_no_grid(study: dict[str, Any]) -> None:
    plan = planned(**study)
    assert planned_grids(plan) == {}
    assert plan_document(plan)["grids"] == {}


@pytest.mark.parametrize(
    ("arm", "generator"),
    [
        ("stale", {"update": "once"}),  # it would show G_1 as G~_2
        ("stale", {"update": "stale", "steps": 30}),  # not with equal compute
        ("coevolved", {"update": "once"}),
    ],
)
def test_arm_that_has_the_name_alone_makes_no_grid(arm: str, generator: dict[str, Any]) -> None:
    config = load_config(ROOT / "profiles/postcards.yaml")
    other = ArmConfig.model_validate({"question": "Is it what its name says?"} | {
        "generator": generator
    })  # fmt: skip
    arms = {name: config.study.arms[name] for name in ("coevolved", "stale")} | {arm: other}
    study = config.study.model_copy(update={"arms": arms, "groups": {}, "run": None, "rounds": 2})
    plan = expand(config.model_copy(update={"study": study}))
    assert planned_grids(plan) == {}


def test_seed_of_one_of_the_two_arms_alone_has_no_grid() -> None:
    plan = planned(seeds=(1, 2), rounds=2)
    paths = {place: keys for place, keys in plan.paths.items() if place != ("stale", 2)}
    assert list(planned_grids(replace(plan, paths=paths))) == ["s1"]


def test_rubrics_that_do_not_read_the_responses_have_no_grid() -> None:
    plan = planned(rounds=2)
    cell = plan.cells["stale-s1-r2"]
    rubrics = cell.recipe.rubrics.model_copy(update={"evaluator": "static"})
    static = replace(cell, recipe=cell.recipe.model_copy(update={"rubrics": rubrics}))
    cells = {**plan.cells, cell.key: static}
    assert planned_grids(replace(plan, cells=cells)) == {}


def test_entry_of_a_grid_names_its_folders_and_the_steps_version() -> None:
    entry = plan_document(planned(rounds=2))["grids"]["s1"]
    assert entry == {
        "version": STEP_VERSIONS["evaluate_grid"],
        "start": "data/warm",
        "round_0": "data/runs/coevolved-s1-r0",
        "round_1": "data/runs/coevolved-s1-r1",
        "round_2": "data/runs/coevolved-s1-r2",
        "stale_2": "data/runs/stale-s1-r2",
    }


def test_structure_is_what_a_grid_reads_and_not_the_steps_version() -> None:
    document = plan_document(planned(rounds=2))
    before = stage_structure(document)
    assert before["grids/s1/stale_2"] == "data/runs/stale-s1-r2"
    document["grids"]["s1"]["version"] += 1
    assert stage_structure(document) == before
    document["grids"]["s1"]["stale_2"] = "data/runs/other-s1-r2"
    assert stage_structure(document) != before
    assert grid_structure({"grids": None}) == grid_structure({}) == {}
