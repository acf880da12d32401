"""Which cells of a plan are probed: those on the paths of the chosen arms, one step a seed.

Read by the plan, the tasks and the report; no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dynamicrubric.probes.names import Reference

if TYPE_CHECKING:
    from dynamicrubric.cells import Cell
    from dynamicrubric.lattice import Plan

PROBES_DIR: Final = "data/probes"


@dataclass(frozen=True)
class ProbedCell:
    """A cell whose evaluator is attacked.

    Attributes:
        cell: the cell.
        arms: the probed arms whose path it is on.
        older: the cells that its policy is compared with, by reference: that of the round before,
            and that of round 0; none in round 0.
    """

    cell: Cell
    arms: tuple[str, ...]
    older: Mapping[Reference, Cell]

    @property
    def generator_dir(self) -> str:
        """Folder of the generator that writes its rubrics, relative to the project."""
        home = self.cell.directory if self.cell.recipe.round > 0 else self.cell.prev
        return f"{home}/generator"

    @property
    def evaluation_dir(self) -> str:
        """Folder of its evaluation, which has its policy's held-out responses."""
        return f"{self.cell.directory}/evaluation"


@dataclass(frozen=True)
class PlannedProbe:
    """The probes of one seed.

    Attributes:
        seed: the seed.
        cells: what is probed, by cell key, each after those that it is compared with.
        settings: what is done, as values: without the arms, which `cells` has.
    """

    seed: int
    cells: Mapping[str, ProbedCell]
    settings: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Name of its DVC stage and its folder."""
        return f"s{self.seed}"

    @property
    def directory(self) -> str:
        """Folder of its artefact, relative to the project."""
        return f"{PROBES_DIR}/{self.key}"

    @property
    def inputs(self) -> dict[str, str]:
        """The artefacts that it reads by name, relative to the project."""
        found = {f"{key}/evaluation": one.evaluation_dir for key, one in self.cells.items()}
        return found | {f"{key}/generator": one.generator_dir for key, one in self.cells.items()}

    @property
    def entry(self) -> dict[str, Any]:
        """What cells.yaml says of it: everything that its DVC stage depends on."""
        return {
            "cells": {key: list(one.arms) for key, one in self.cells.items()},
            "settings": dict(self.settings),
        }


def planned_probes(plan: Plan) -> dict[str, PlannedProbe]:
    """Return the probes of a plan by key, seeds rising; none unless params.yaml asks for them."""
    if plan.probe is None:
        return {}
    chosen = plan.probe["arms"]
    settings = {name: value for name, value in plan.probe.items() if name != "arms"}
    found = {}
    for seed in sorted({seed for arm, seed in plan.paths if arm in chosen}):
        arms = {
            arm: keys for (arm, own), keys in plan.paths.items() if own == seed and arm in chosen
        }
        cells: dict[str, ProbedCell] = {}
        for key in dict.fromkeys(key for keys in arms.values() for key in keys):
            path = next(keys for keys in arms.values() if key in keys)
            cells[key] = probed(plan, path, key, [arm for arm, keys in arms.items() if key in keys])
        found[f"s{seed}"] = PlannedProbe(seed, cells, settings)
    return found


def probed(plan: Plan, path: tuple[str, ...], key: str, arms: list[str]) -> ProbedCell:
    """Return a cell of a path as it is probed."""
    cell, place = plan.cell(key), path.index(key)
    older: dict[Reference, Cell] = {}
    if place:
        older = {"before": plan.cell(path[place - 1]), "start": plan.cell(path[0])}
    return ProbedCell(cell, tuple(arms), older)


def is_watched(cell: Cell) -> bool:
    """Say whether a run ends with this round if its evaluator and the truth go apart in it."""
    recipe = cell.recipe
    is_trained = recipe.round > 0 and recipe.rubrics.evaluator != "oracle"
    return is_trained and recipe.evaluation.stop_on_divergence


def probe_structure(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what DVC's graph depends on in the probes of a cells.yaml: which there are.

    Each depends on the folder of all cells, since DVC takes no list of a stage's folders from a
    file; what it reads of them is in its record.
    """
    return {f"probes/{key}": PROBES_DIR for key in document.get("probes") or {}}
