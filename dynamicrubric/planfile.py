"""cells.yaml and cells.json: the plan written down for people and for DVC.

Both hold the same. DVC reads the parameters of a stage from their file anew for each stage, and a
YAML file of 200 cells takes it a second each time; JSON takes a millisecond.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dynamicrubric.audit.planned import audit_structure, planned_audits
from dynamicrubric.cells import Cell, digest
from dynamicrubric.config import Config
from dynamicrubric.errors import UserError
from dynamicrubric.grid import grid_structure, planned_grids
from dynamicrubric.lattice import Plan, expand
from dynamicrubric.probes.planned import planned_probes, probe_structure
from dynamicrubric.yamlio import dump_yaml, parse_yaml, read_text, replace_text, yaml_text

HEADER: Final = (
    "# Generated from params.yaml by `dynamicrubric plan`; do not edit.\n"
    "# arms: the path of each arm and seed, round 0 first. cells: one DVC stage each.\n"
    "# grids: of each seed the folders of rounds 0 to 2 that the G x P grid reads.\n"
    "# audits: of each seed the cells whose generators are measured on each policy's responses.\n"
    "# probes: of each seed the cells whose evaluators are attacked.\n"
)
_SUMS: Final = "# sums: "
"""Begins the header's last line: the hashes of the plan and of the text below, so that a file that
is as it was written need not be parsed; a large study's takes a second."""


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the plan as the mapping that cells.yaml holds."""
    paths: dict[str, dict[str, list[str]]] = {}
    for (arm, seed), keys in plan.paths.items():
        paths.setdefault(arm, {})[f"s{seed}"] = list(keys)
    return {
        "arms": paths,
        "shared": plan.shared,
        "starts": {key: _entry(cell) for key, cell in plan.starts.items()},
        "cells": {key: _entry(cell) for key, cell in plan.cells.items()},
        "grids": {key: grid.entry for key, grid in planned_grids(plan).items()},
        "audits": {key: audit.entry for key, audit in planned_audits(plan).items()},
        "probes": {key: probe.entry for key, probe in planned_probes(plan).items()},
    }


def _entry(cell: Cell) -> dict[str, Any]:
    before = {} if cell.before is None else {"before": cell.before}
    recipe = cell.recipe.model_dump(mode="json")
    return {"id": cell.id, "prev": cell.prev, **before, "recipe": recipe}


def json_path(path: Path) -> Path:
    """Return where the JSON beside a cells.yaml is."""
    return path.with_suffix(".json")


def read_structure(path: Path) -> dict[str, str]:
    """Return what DVC's graph depends on in the plan beside a cells.yaml; empty if there is none.

    See `stage_structure`.
    """
    try:
        document = json.loads(read_text(json_path(path)))
    except (UserError, ValueError):  # absent, or broken by a merge: DVC could not read it either
        return {}
    return stage_structure(document) if isinstance(document, dict) else {}


def differing(plan: Plan, path: Path) -> tuple[Path, ...]:
    """Return which of cells.yaml and the JSON beside it are absent or hold another plan."""
    document = plan_document(plan)
    checks = {path: _is_in_yaml, json_path(path): _is_in_json}
    return tuple(one for one, holds in checks.items() if not holds(document, one))


def write_plan(plan: Plan, path: Path) -> bool:
    """Write cells.yaml and the JSON if they differ from the plan; return whether they did."""
    if not differing(plan, path):
        return False
    document = plan_document(plan)
    sums = _sums(document, yaml_text(document))
    dump_yaml(document, path, header=f"{HEADER}{_SUMS}{sums}\n")
    replace_text(json_path(path), _json_text(document))
    return True


def _json_text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _is_in_yaml(document: Mapping[str, Any], path: Path) -> bool:
    try:
        text = read_text(path)
        return _has_sums(document, text) or parse_yaml(text, str(path)) == document
    except UserError:  # absent, or broken by a merge: either way to be written anew
        return False


def _is_in_json(document: Mapping[str, Any], path: Path) -> bool:
    try:
        return read_text(path) == _json_text(document)
    except UserError:
        return False


def _has_sums(document: Mapping[str, Any], text: str) -> bool:
    """Say whether a cells.yaml was written for this plan, and is as it was written."""
    before, mark, rest = text.partition(_SUMS)
    sums, _, body = rest.partition("\n")
    return before == HEADER and bool(mark) and sums == _sums(document, body)


def _sums(document: Mapping[str, Any], body: str) -> str:
    return f"{digest(document)[:16]} {hashlib.sha256(body.encode('utf-8')).hexdigest()[:16]}"


def stage_structure(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what DVC's graph depends on: each cell's key, what it reads, what grids and probes do.

    A change of values alone leaves the graph as it is, and a running `dvc repro` picks the values
    up; a change of structure needs a new run of DVC.
    """
    return (
        {
            f"{group}/{key}": f"{entry.get('prev')} {entry.get('before')}"
            for group in ("starts", "cells")
            for key, entry in (document.get(group) or {}).items()
        }
        | grid_structure(document)
        | audit_structure(document)
        | probe_structure(document)
    )


def load_plan(config: Config, path: Path) -> Plan:
    """Return the plan of `config` after checking that cells.yaml and cells.json say the same.

    Raises:
        UserError: one of them is missing, edited by hand, or older than params.yaml; names it.
    """
    plan = expand(config)
    if wrong := differing(plan, path):
        raise UserError(
            doing=f"reading {wrong[0]}",
            got="a plan that does not match params.yaml" if wrong[0].exists() else "no such file",
            expected="the plan that `dynamicrubric plan` writes",
            remedy="run `dynamicrubric plan`, then the same command again",
        )
    return plan
