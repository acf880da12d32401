"""The study as DVC stages, and what DVC shows of a finished cell."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.arms import AuditConfig
from dynamicrubric.audit.planned import planned_audits
from dynamicrubric.config import load_config
from dynamicrubric.grid import planned_grids
from dynamicrubric.plan import Plan, expand, plan_document
from dynamicrubric.probes.planned import planned_probes
from dynamicrubric.probesettings import ProbeConfig
from dynamicrubric.report.cellfiles import load_cell
from dynamicrubric.yamlio import load_yaml
from flows.stages import Stage, _reason, stages_of, steps_of
from flows.staleness import unaffected
from tasks.publish_metrics import CURVES, training_table

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return expand(load_config(ROOT / "profiles/postcards.yaml"))


@pytest.fixture(scope="module")
def stages(plan: Plan) -> list[Stage]:
    return stages_of(plan, {"policy": 100, "generator": 200})


def test_stages_come_after_what_they_wait_for(stages: list[Stage]) -> None:
    seen: set[str] = set()
    for stage in stages:
        assert set(stage.after) <= seen, stage
        seen.add(stage.name)
    assert len(seen) == len(stages)


def test_stages_are_those_of_dvc_yaml(plan: Plan, stages: list[Stage]) -> None:
    declared = load_yaml(ROOT / "dvc.yaml")["stages"]
    expected = set()
    for name, entry in declared.items():
        each = entry.get("foreach")
        groups = {"starts": plan.starts, "cells": plan.cells, "grids": planned_grids(plan)}
        groups |= {"audits": planned_audits(plan)}
        groups["probes"] = planned_probes(plan)
        keys = groups.get(str(each).strip("${}"), each or ())
        expected |= {f"{name}@{key}" for key in keys} if each else {name}
    assert {stage.name for stage in stages} == expected


def test_round_waits_for_the_round_before_round_zero_for_the_warm_starts(
    plan: Plan, stages: list[Stage]
) -> None:
    by_name = {stage.name: stage for stage in stages}
    for cell in plan.cells.values():
        (before,) = by_name[f"round@{cell.key}"].after
        kind, _, key = before.partition("@")
        assert f"data/runs/{key}" == cell.before
        assert kind == ("start" if cell.recipe.round == 1 else "round")
    for key in plan.starts:
        assert by_name[f"start@{key}"].after == ("warm_start@policy", "warm_start@generator")


def test_compare_waits_for_every_cell_and_grid(plan: Plan, stages: list[Stage]) -> None:
    compare = stages[-1]
    assert compare.name == "compare"
    cells = {f"round@{key}" for key in plan.cells} | {f"start@{key}" for key in plan.starts}
    assert cells | {f"grid@{key}" for key in planned_grids(plan)} <= set(compare.after)


def test_grid_waits_for_the_stages_whose_folders_it_reads(plan: Plan, stages: list[Stage]) -> None:
    (grid,) = (stage for stage in stages if stage.name == "grid@s1")
    declared = load_yaml(ROOT / "dvc.yaml")["stages"]["grid"]["do"]
    assert declared["outs"] == ["data/grid/${key}"]
    read = {name.partition("/")[0].strip("${}").removeprefix("item.") for name in declared["deps"]}
    folders = {
        folder for name, folder in plan_document(plan)["grids"]["s1"].items() if name in read
    }
    assert folders - {"data/warm"} == {f"data/runs/{name.partition('@')[2]}" for name in grid.after}
    assert {name.partition("@")[0] for name in grid.after} == {"start", "round"}


def test_dvc_reads_of_a_grid_what_its_step_reads(plan: Plan) -> None:
    declared = load_yaml(ROOT / "dvc.yaml")["stages"]["grid"]["do"]["deps"]
    grid = planned_grids(plan)["s1"]
    found = set()
    for place in declared:
        for name, folder in grid.entry.items():
            place = place.replace(f"${{item.{name}}}", str(folder))
        found.add(place)
    evaluations = {f"{cell.directory}/evaluation" for cell in grid.policies.values()}
    assert found == set(grid.generators.values()) | evaluations


def test_audit_waits_for_every_cell_and_compare_for_it(plan: Plan) -> None:
    audited = replace(plan, audit=AuditConfig(checkpoints=2))
    found = {one.name: one for one in stages_of(audited, {"policy": 1, "generator": 1})}
    cells = {f"round@{key}" for key in plan.cells} | {f"start@{key}" for key in plan.starts}
    keys = planned_audits(audited)
    assert keys and planned_audits(plan) == {}
    for key in keys:
        assert set(found[f"audit@{key}"].after) == cells
        assert f"audit@{key}" in found["compare"].after
    declared = load_yaml(ROOT / "dvc.yaml")["stages"]["audit"]["do"]
    assert declared["outs"] == ["data/audit/${key}"]
    read = [f"{cell.directory}/generator" for one in keys.values() for cell in one.cells]
    read += [policy.sets for one in keys.values() for policy in one.policies]
    assert all(any(f"{place}/".startswith(f"{dep}/") for dep in declared["deps"]) for place in read)


def test_probes_wait_for_all_rounds_and_compare_for_them() -> None:
    config = load_config(ROOT / "profiles/postcards.yaml")
    probe = ProbeConfig(arms=("static", "coevolved"))
    plan = expand(config.model_copy(update={"probe": probe}))
    by_name = {one.name: one for one in stages_of(plan, {"policy": 100, "generator": 200})}
    rounds = {f"round@{key}" for key in plan.cells} | {f"start@{key}" for key in plan.starts}
    assert set(by_name["probe@s1"].after) == rounds
    assert "probe@s1" in by_name["compare"].after
    declared = load_yaml(ROOT / "dvc.yaml")["stages"]["probe"]["do"]
    assert declared["outs"] == ["data/probes/${key}"]
    folders = tuple(declared["deps"])
    read = {"data/prepared", *planned_probes(plan)["s1"].inputs.values()}
    assert all(name.startswith(folders) for name in read)


def test_steps_of_a_cell_are_those_of_what_it_trains(plan: Plan) -> None:
    for cell in plan.cells.values():
        generator = cell.recipe.generator_training
        policy = cell.recipe.policy_training
        assert policy is not None
        assert steps_of(cell) == policy.steps + (generator.steps if generator else 0)
    assert all(steps_of(cell) == 0 for cell in plan.starts.values())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("noise\nerror: the disk is full.\nERROR: failed to reproduce\n", "the disk is full."),
        ("error: first\nerror: second\n", "second"),
        ("ERROR: failed to run: python\nERROR: more\n", "failed to run: python"),
        (
            "'./dvc.lock' is invalid (possible merge conflicts).\n\nWhile scanning a simple key\n"
            "  3 <<<<<<< HEAD\n\nCould not find expected ':', in line 4\n  4   plan:\n",
            "'./dvc.lock' is invalid (possible merge conflicts).",
        ),
        ("'./dvc.lock' validation failed.\n\nx\n", "'./dvc.lock' validation failed."),
        ("'./dvc.lock' is invalid.\nerror: ours\n", "ours"),
        ("noise\nlast words\n\n", "last words"),
        ("", ""),
    ],
)
def test_reason_of_a_failed_stage_is_the_sentence_it_ended_with(text: str, reason: str) -> None:
    assert _reason(text) == reason


def test_training_table_has_every_column_and_a_row_a_step(
    fake_study: Callable[..., Any],
) -> None:
    study = fake_study(arms=("coevolved", "frozen"), rounds=1, steps=4)
    for key in study.plan.cells:
        table = training_table(load_cell(study.root, study.plan.cell(key)))
        rows = list(csv.DictReader(table.splitlines()))
        assert [int(row["step"]) for row in rows] == [1, 2, 3, 4]
        for row in rows:
            assert list(row) == ["step", *CURVES]
            trained = key.startswith("coevolved")
            for column, (role, _) in CURVES.items():
                assert bool(row[column]) == (trained or role == "policy"), column
            assert 0.0 <= float(row["policy_reward"]) <= 1.0


def test_dvc_plots_a_column_that_every_table_has(fake_study: Callable[..., Any]) -> None:
    declared = load_yaml(ROOT / "dvc.yaml")["stages"]["round"]["do"]["plots"]
    drawn = [(entry["x"], entry["y"]) for plot in declared for entry in plot.values()]
    assert {x for x, _ in drawn} == {"step"}
    assert {y for _, y in drawn} <= set(CURVES)


def test_stages_up_to_date_are_those_that_come_after_no_changed_one(
    plan: Plan, stages: list[Stage]
) -> None:
    changed = {"round@coevolved-s1-r2"}
    waiting = {"round@coevolved-s1-r2", "round@coevolved-s1-r3", "grid@s1", "compare"}
    assert {stage.name for stage in stages} - unaffected(stages, changed) == waiting
    assert unaffected(stages, set()) == {stage.name for stage in stages}
    assert unaffected(stages, {"plan"}) == frozenset()
