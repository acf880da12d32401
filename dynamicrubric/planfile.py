"""cells.yaml: the plan written down for DVC, and compared with params.yaml."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dynamicrubric.cells import Cell, digest
from dynamicrubric.config import Config
from dynamicrubric.errors import UserError
from dynamicrubric.grid import grid_structure, planned_grids
from dynamicrubric.lattice import Plan, expand
from dynamicrubric.yamlio import dump_yaml, parse_yaml, read_text, yaml_text

HEADER: Final = (
    "# Generated from params.yaml by `dynamicrubric plan`; do not edit.\n"
    "# arms: the path of each arm and seed, round 0 first. cells: one DVC stage each.\n"
    "# grids: of each seed the folders of rounds 0 to 2 that the G x P grid reads.\n"
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
    }


def _entry(cell: Cell) -> dict[str, Any]:
    return {"id": cell.id, "prev": cell.prev, "recipe": cell.recipe.model_dump(mode="json")}


def is_written(plan: Plan, path: Path) -> bool:
    """Return whether a cells.yaml holds exactly this plan."""
    document = plan_document(plan)
    try:
        text = read_text(path)
        return _has_sums(document, text) or parse_yaml(text, str(path)) == document
    except UserError:  # absent, or broken by a merge: either way to be written anew
        return False


def write_plan(plan: Plan, path: Path) -> bool:
    """Write cells.yaml if it differs from the plan; return whether it was written."""
    if is_written(plan, path):
        return False
    document = plan_document(plan)
    sums = _sums(document, yaml_text(document))
    dump_yaml(document, path, header=f"{HEADER}{_SUMS}{sums}\n")
    return True


def _has_sums(document: Mapping[str, Any], text: str) -> bool:
    """Say whether a cells.yaml was written for this plan, and is as it was written."""
    before, mark, rest = text.partition(_SUMS)
    sums, _, body = rest.partition("\n")
    return before == HEADER and bool(mark) and sums == _sums(document, body)


def _sums(document: Mapping[str, Any], body: str) -> str:
    return f"{digest(document)[:16]} {hashlib.sha256(body.encode('utf-8')).hexdigest()[:16]}"


def stage_structure(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what DVC's graph depends on: each cell's key and where it starts, what grids read.

    A change of values alone leaves the graph as it is, and a running `dvc repro` picks the values
    up; a change of structure needs a new run of DVC.
    """
    return {
        f"{group}/{key}": str(entry.get("prev"))
        for group in ("starts", "cells")
        for key, entry in (document.get(group) or {}).items()
    } | grid_structure(document)


def load_plan(config: Config, path: Path) -> Plan:
    """Return the plan of `config` after checking that cells.yaml says the same.

    Raises:
        UserError: cells.yaml is missing, edited by hand, or older than params.yaml.
    """
    plan = expand(config)
    text, document = read_text(path), plan_document(plan)
    if not _has_sums(document, text) and parse_yaml(text, str(path)) != document:
        raise UserError(
            doing=f"reading {path}",
            got="a plan that does not match params.yaml",
            expected="the plan that `dynamicrubric plan` writes",
            remedy="run `dynamicrubric plan`, then the same command again",
        )
    return plan
