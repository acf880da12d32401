"""Which cells of a study are missing or damaged: all of them, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import RUN_IT, find_artefacts, load_cell
from dynamicrubric.report.celltables import read_tables


@dataclass(frozen=True)
class Fault:
    """A cell that cannot be reported on.

    Attributes:
        key: the cell.
        arms: the arms whose paths hold it.
        missing: nothing of it is there; else what is there is damaged, unfinished or another's.
        reason: what was found.
    """

    key: str
    arms: tuple[str, ...]
    missing: bool
    reason: str


def find_faults(plan: Plan, root: Path) -> tuple[Fault, ...]:
    """Read every cell of a plan, tables included, and return those that cannot be reported on.

    Args:
        plan: the lattice of cells.
        root: the project's folder.
    """
    keys = dict.fromkeys(key for path in plan.paths.values() for key in path)
    return tuple(fault for key in keys if (fault := _fault(plan, root, key)) is not None)


def refuse(faults: Sequence[Fault], num_cells: int) -> UserError:
    """Return the error that names every missing and every damaged cell."""
    missing = [fault.key for fault in faults if fault.missing]
    damaged = [fault for fault in faults if not fault.missing]
    parts = []
    if missing:
        parts.append(
            f"no finished evaluation of {len(missing)} of {num_cells} cells: {', '.join(missing)}"
        )
    if damaged:
        named = "; ".join(f"{fault.key} ({fault.reason})" for fault in damaged)
        parts.append(f"{len(damaged)} damaged, unfinished or another plan's: {named}")
    return UserError(
        doing="comparing the arms",
        got="; ".join(parts),
        expected="every cell of the plan",
        remedy=f"{RUN_IT}; `python -m flows compare --partial` draws the rest",
    )


def _fault(plan: Plan, root: Path, key: str) -> Fault | None:
    cell = plan.cell(key)
    arms = plan.arms_of(key)
    try:
        there = find_artefacts(root, cell) is not None
    except (OSError, ValueError) as error:
        return Fault(key, arms, False, f"a record that cannot be read: {error}")
    try:
        read_tables(plan, load_cell(root, cell))
    except UserError as error:
        reason = f"{error.got}; expected {error.expected}"
        return Fault(key, arms, not there, reason)
    except (OSError, ValueError, KeyError) as error:  # a file that is no parquet or JSON
        return Fault(key, arms, False, f"{type(error).__name__}: {error}")
    return None
