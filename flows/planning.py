"""Bringing cells.yaml, cells.json and the folders of cells in line with params.yaml."""

from __future__ import annotations

import os
from pathlib import Path

from dynamicrubric.audit.planned import AUDIT_DIR, planned_audits
from dynamicrubric.config import load_config
from dynamicrubric.errors import UserError
from dynamicrubric.grid import GRID_DIR, planned_grids
from dynamicrubric.plan import RUNS_DIR, Plan, expand, read_structure, write_plan
from dynamicrubric.probes.planned import PROBES_DIR, planned_probes
from dynamicrubric.yamlio import load_yaml
from flows.settings import Say
from tasks.keeping import keep_artefacts
from tasks.study import Study


def settle_plan(study: Study, *, say: Say) -> Plan:
    """Write cells.yaml and cells.json if need be, and set aside folders of cells that are gone."""
    plan = expand(load_config(study.root / "params.yaml"))
    if write_plan(plan, study.root / "cells.yaml"):
        say("params.yaml has changed: cells.yaml and cells.json are written anew")
    keep_artefacts(study.root, study.work / "steps")
    _set_aside(study, plan, say)
    return plan


def check_dvc_lock(root: Path) -> None:
    """Refuse a dvc.lock that DVC could not read, before it fails in every stage.

    Raises:
        UserError: names the line, and what to do after a merge.
    """
    path = root / "dvc.lock"
    if not path.exists() or not path.read_bytes().strip():  # DVC starts an empty one anew
        return
    try:
        load_yaml(path)
    except UserError as error:
        raise UserError(
            doing="reading dvc.lock, which says what each stage was last run with",
            got=error.got,
            expected="the file as DVC wrote it",
            remedy="after a merge with conflicts take a side (`git checkout --ours dvc.lock`): "
            "stages that the other side had finished are run again; or restore it from git",
        ) from None


def plan_stage(study: Study) -> None:
    """Run DVC's first stage: cells.yaml and cells.json as params.yaml wants them.

    DVC has read cells.json before this runs. Changed values reach the stages all the same; a
    changed graph (cells that come, go or start elsewhere) does not, so that is refused.

    Raises:
        UserError: DVC has to be started again, because its graph is the old plan's.
    """
    path = study.root / "cells.yaml"
    before = read_structure(path)
    plan = settle_plan(study, say=print)
    after = read_structure(path)
    if after != before:
        new = sorted(after.keys() - before.keys()) or "none"
        gone = sorted(before.keys() - after.keys()) or "none"
        raise UserError(
            doing="planning the study",
            got=f"a plan with other cells than before (new: {new}, gone: {gone})",
            expected="the plan that this run of DVC had read",
            remedy="run the same `dvc` command again: cells.yaml and cells.json are up to date now",
        )
    print(f"{len(plan.cells)} cells to train, {plan.num_arm_rounds} without sharing")


def work_left(left: int, total: int, slots: int) -> str:
    """Say how many of the cells are not up to date: DVC restores those that were trained before."""
    number = f"{left} of {total}" if left < total else f"{left}"
    cells = "cell" if number == "1" else "cells"
    return f"{number} {cells} to train or restore, {slots} side by side; logs in work/logs"


def _set_aside(study: Study, plan: Plan, say: Say) -> None:
    """Move folders of cells, grids, audits and probes that are not planned any more aside."""
    planned = {cell.directory for group in (plan.starts, plan.cells) for cell in group.values()}
    planned |= {grid.directory for grid in planned_grids(plan).values()}
    planned |= {audit.directory for audit in planned_audits(plan).values()}
    planned |= {probe.directory for probe in planned_probes(plan).values()}
    places = {RUNS_DIR: "", GRID_DIR: "grid-", AUDIT_DIR: "audit-", PROBES_DIR: "probe-"}
    folders = [path for name in places for path in (study.root / name).glob("[!.]*/")]
    for folder in sorted(folders):
        if folder.relative_to(study.root).as_posix() in planned or not folder.is_dir():
            continue
        retired = study.work / "retired"
        retired.mkdir(parents=True, exist_ok=True)
        kind = places[folder.parent.relative_to(study.root).as_posix()]
        name = f"{kind}{folder.name}"
        target = retired / name
        number = 1
        while target.exists():
            number += 1
            target = retired / f"{name}.{number}"
        os.rename(folder, target)
        say(f"{folder.relative_to(study.root)} is not planned any more: moved to {target}")
