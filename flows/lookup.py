"""Looking up the cell, the grid or the role that a command names, before anything is started.

Imports nothing of Prefect: what is not there is said at once, not by a flow on a server that took
half a minute to start.
"""

from __future__ import annotations

from collections.abc import Collection

from dynamicrubric.audit.planned import NEEDS as AUDIT_NEEDS
from dynamicrubric.audit.planned import PlannedAudit, planned_audits
from dynamicrubric.engines.ready import check_ready
from dynamicrubric.errors import UserError
from dynamicrubric.grid import NEEDS, PlannedGrid, planned_grids
from dynamicrubric.plan import ROLES, Cell
from dynamicrubric.probes.planned import PlannedProbe, planned_probes
from tasks.study import Study


def training_round(study: Study, key: str) -> Cell:
    """Return a cell that trains.

    Raises:
        UserError: there is no such cell, or it is a start, whose artefacts a round would spoil.
    """
    return _of_kind(study, key, "round", "start")


def start_of_arms(study: Study, key: str) -> Cell:
    """Return a cell that measures the untrained policy: round 0.

    Raises:
        UserError: there is no such cell, or it is a training round.
    """
    return _of_kind(study, key, "start", "round")


def _of_kind(study: Study, key: str, kind: str, other: str) -> Cell:
    plan = study.plan
    cell = plan.cell(key)
    wanted = plan.cells if kind == "round" else plan.starts
    if key not in wanted:
        raise UserError(
            doing=f"running the flow `{kind}`",
            got=f"{key}, round {cell.recipe.round} of its arm",
            expected=f"one of {', '.join(wanted)}",
            remedy=f"run `python -m flows {other} {key}`",
        )
    return cell


def grid_of(study: Study, key: str) -> PlannedGrid:
    """Return a grid of the plan by key, such as `s1`.

    Raises:
        UserError: there is no such grid.
    """
    grids = planned_grids(study.plan)
    if key not in grids:
        raise UserError(
            doing="running the flow `grid`",
            got=repr(key),
            expected=f"one of {', '.join(grids)}" if grids else f"a plan with {NEEDS}",
            remedy="run `dynamicrubric plan` if params.yaml was changed",
        )
    return grids[key]


def audit_of(study: Study, key: str) -> PlannedAudit:
    """Return an audit of the plan by key, such as `s1`.

    Raises:
        UserError: there is no such audit.
    """
    audits = planned_audits(study.plan)
    if key not in audits:
        raise UserError(
            doing="running the flow `audit`",
            got=repr(key),
            expected=f"one of {', '.join(audits)}" if audits else f"a plan with {AUDIT_NEEDS}",
            remedy="run `dynamicrubric plan` if params.yaml was changed",
        )
    return audits[key]


def probe_of(study: Study, key: str) -> PlannedProbe:
    """Return the probes of a seed by key, such as `s1`.

    Raises:
        UserError: there are none.
    """
    probes = planned_probes(study.plan)
    if key not in probes:
        raise UserError(
            doing="running the flow `probe`",
            got=repr(key),
            expected=f"one of {', '.join(probes)}"
            if probes
            else "a plan with `probe` and its arms",
            remedy="run `dynamicrubric plan` if params.yaml was changed",
        )
    return probes[key]


def check_engines(study: Study, stages: Collection[str]) -> None:
    """Return if the engines of the cells that are to be run could be opened.

    Args:
        study: the study, in the current folder.
        stages: names of the stages that have something to do.

    Raises:
        UserError: an interpreter, a key or a package is missing.
    """
    plan = study.plan
    cells = {f"start@{key}": cell for key, cell in plan.starts.items()}
    cells |= {f"round@{key}": cell for key, cell in plan.cells.items()}
    recipes = [cell.recipe for name, cell in cells.items() if name in stages]
    check_ready(recipes, study.config.runtime)


def check_role(study: Study, role: str) -> None:
    """Return if a warm start of this role is planned.

    Raises:
        UserError: it is none, or cells.yaml and cells.json are not as params.yaml wants them.
    """
    if role not in ROLES:
        raise UserError(
            doing="running a warm start",
            got=repr(role),
            expected=f"one of {', '.join(ROLES)}",
            remedy=f"run `python -m flows warm_start {ROLES[0]}`, say",
        )
    study.warm_steps(role)
