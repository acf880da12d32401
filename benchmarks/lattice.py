"""What a finished study cost as a lattice, and what its arms would have cost one by one.

Command: `python benchmarks/lattice.py` in the folder of a finished study. Nothing is run: it reads
the records of the study's steps.

An arm run apart trains its warm starts, its round 0 and every round of each of its seeds. All
seconds are those that the steps took in this study, side by side with others as they were: what DVC
and Prefect take around a step is in the study's wall clock and in none of the sums.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from dynamicrubric.boundary import run_with_boundary
from dynamicrubric.config import load_config
from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan, expand

SHARED = ("data/prepared", "data/warm/policy", "data/warm/generator")


class Step(NamedTuple):
    """A finished step: what it is, where it lies, when it ended, how long it worked."""

    identity: tuple[str, str]
    folder: str
    ended: float
    seconds: float


def steps_under(root: Path, folder: str) -> list[Step]:
    """Return the steps whose artefacts lie in a folder, or are it."""
    return [
        _step(path, path.parent.relative_to(root).as_posix())
        for path in sorted((root / folder).glob("**/record.json"))
    ]


def _step(path: Path, folder: str) -> Step:
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    made = record["provenance"]
    inputs = json.dumps(record["inputs"], sort_keys=True)
    return Step(
        (record["step"], record["identity_hash"] + inputs),
        folder,
        datetime.fromisoformat(made["created"]).timestamp(),
        float(made["seconds"]),
    )


def run_apart(plan: Plan, seconds: dict[str, float], shared: float) -> dict[str, float]:
    """Return what each arm takes by itself: warm starts once, then the paths of all its seeds."""
    apart = dict.fromkeys((arm for arm, _ in plan.paths), shared)
    for (arm, _), keys in plan.paths.items():
        apart[arm] += sum(seconds[plan.cell(key).directory] for key in keys)
    return apart


def measure(root: Path) -> None:
    """Print cells, repeated trainings and hours of the study in a folder.

    Raises:
        UserError: a cell has no finished steps.
    """
    plan = expand(load_config(root / "params.yaml"))
    cells = [cell.directory for cell in (*plan.starts.values(), *plan.cells.values())]
    found = {folder: steps_under(root, folder) for folder in (*SHARED, *cells)}
    missing = [folder for folder, steps in found.items() if not steps]
    if missing:
        raise UserError(
            doing="measuring a study",
            got=f"no finished step in {', '.join(missing[:3])} and {len(missing[3:])} more",
            expected="a finished study in this folder",
            remedy="run `make study` first",
        )
    done = {(step.identity, step.ended): step for steps in found.values() for step in steps}
    everything = list(done.values())  # a step that is found again keeps its record
    seconds = {folder: sum(step.seconds for step in steps) for folder, steps in found.items()}
    first = min(everything, key=lambda step: step.ended - step.seconds)
    wall = max(step.ended for step in everything) - (first.ended - first.seconds)
    apart = run_apart(plan, seconds, sum(seconds[folder] for folder in SHARED))
    repeated = len(everything) - len({step.identity for step in everything})
    table = Table("what", "figure", title=f"{len(apart)} arms, {len(plan.paths)} paths")
    for what, figure in {
        "cells trained": f"{len(plan.cells)}",
        "arms x seeds x rounds": f"{plan.num_arm_rounds}",
        "steps": f"{len(everything)}",
        "steps with equal identity done twice": f"{repeated}",
        "steps found, not done again": f"{sum(map(len, found.values())) - len(everything)}",
        "wall clock, first step to last": _hours(wall),
        "seconds of all steps": _hours(sum(step.seconds for step in everything)),
        "seconds of all arms run apart": _hours(sum(apart.values())),
        "wall clock / arms apart": f"{wall / sum(apart.values()):.3f}",
    }.items():
        table.add_row(what, figure)
    Console().print(table)


def _hours(seconds: float) -> str:
    return f"{seconds:,.0f} s = {seconds / 3600:.2f} h"


def main(root: Annotated[Path, typer.Argument(help="folder of a study")] = Path()) -> None:
    """Print what the lattice saved in a finished study."""
    raise typer.Exit(run_with_boundary(lambda: measure(root)))


if __name__ == "__main__":
    typer.run(main)
