"""What of a study is missing or damaged: all cells, grids and probes, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import RUN_IT, CellFiles, find_artefacts, load_cell

T = TypeVar("T")


@dataclass(frozen=True)
class Fault:
    """A cell, a G x P grid or a seed's probes that cannot be reported on.

    Attributes:
        key: the cell; of a grid or a probe its stage, `grid@s1`.
        arms: the arms whose paths hold it, or which a grid is made of.
        missing: nothing of it is there; else what is there is damaged, unfinished or another's.
        reason: what was found.
        kind: which of the three it is.
    """

    key: str
    arms: tuple[str, ...]
    missing: bool
    reason: str
    kind: Literal["cell", "grid", "probe"] = "cell"


NOT_WHAT_WAS_WRITTEN: Final = (OSError, ValueError, KeyError, TypeError, AttributeError)
"""What reading a file raises that is no parquet, no JSON, or JSON of another shape."""


def reason_of(error: Exception) -> str:
    """Return in one phrase which file is wrong and how."""
    if isinstance(error, UserError):
        return f"{error.doing}: got {error.got}; expected {error.expected}"
    return f"{type(error).__name__}: {error}"


def counted(faults: Sequence[Fault]) -> str:
    """Return how many cells, grids and probes there are, in words; empty if there are none.

    >>> counted([Fault("a-s1-r1", ("a",), True, ""), Fault("grid@s1", ("a",), True, "", "grid")])
    '1 cell and 1 grid'
    """
    kinds = [fault.kind for fault in faults]
    numbers = [(kind, kinds.count(kind)) for kind in dict.fromkeys(kinds)]
    return " and ".join(f"{number} {kind}{'s' * (number > 1)}" for kind, number in numbers)


def refuse(faults: Sequence[Fault], num_cells: int) -> UserError:
    """Return the error that names every missing and every damaged cell, grid and probe."""
    missing = [fault.key for fault in faults if fault.missing and fault.kind == "cell"]
    grids = [fault.key for fault in faults if fault.missing and fault.kind != "cell"]
    damaged = [fault for fault in faults if not fault.missing]
    parts = []
    if missing:
        parts.append(
            f"no finished evaluation of {len(missing)} of {num_cells} cells: {', '.join(missing)}"
        )
    if grids:
        parts.append(f"no {', '.join(grids)}")
    if damaged:
        named = "; ".join(f"{fault.key} ({fault.reason})" for fault in damaged)
        parts.append(f"{len(damaged)} damaged, unfinished or another plan's: {named}")
    return UserError(
        doing="comparing the arms",
        got="; ".join(parts),
        expected="every cell, grid and probe of the plan",
        remedy=f"{RUN_IT}; `python -m flows compare --partial` draws the rest",
    )


def attempt(plan: Plan, root: Path, key: str, read: Callable[[CellFiles], T]) -> T | Fault:
    """Return what `read` makes of a finished cell, or what is wrong with the cell.

    Args:
        plan: the lattice of cells.
        root: the project's folder.
        key: the cell.
        read: reads it; raises a UserError for what it finds damaged.
    """
    cell, arms = plan.cell(key), plan.arms_of(key)
    try:
        there = find_artefacts(root, cell) is not None
    except NOT_WHAT_WAS_WRITTEN as error:
        return Fault(key, arms, False, f"a record that cannot be read: {reason_of(error)}")
    try:
        return read(load_cell(root, cell))
    except UserError as error:
        return Fault(key, arms, not there, reason_of(error))
    except NOT_WHAT_WAS_WRITTEN as error:
        return Fault(key, arms, False, reason_of(error))
