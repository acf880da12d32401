"""The lattice in words and as a table: which cells there are, and whose they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dynamicrubric.config import StudyConfig
from dynamicrubric.estimate import Estimate
from dynamicrubric.plan import Plan

if TYPE_CHECKING:
    from rich.table import Table

    from dynamicrubric.probes.planned import PlannedProbe


class LatticeRow(NamedTuple):
    """One arm and the seeds whose paths look alike.

    Attributes:
        arm: the arm.
        seeds: its seeds.
        cells: for each round the key of its cell, `s*` for several seeds.
    """

    arm: str
    seeds: tuple[int, ...]
    cells: tuple[str, ...]


def lattice_rows(plan: Plan) -> list[LatticeRow]:
    """Return the paths of a plan, the seeds of an arm together where they share alike."""
    found: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for (arm, seed), keys in plan.paths.items():
        marked = tuple(key.replace(f"-s{seed}-r", "-s*-r") for key in keys)
        found.setdefault((arm, marked), []).append(seed)
    return [
        LatticeRow(
            arm,
            tuple(seeds),
            keys if len(seeds) > 1 else tuple(k.replace("-s*-r", f"-s{seeds[0]}-r") for k in keys),
        )
        for (arm, keys), seeds in found.items()
    ]


def measured_lines(plan: Plan) -> list[str]:
    """Say which arms an audit and probes measure, and which of those named have none."""
    from dynamicrubric.audit.planned import planned_audits
    from dynamicrubric.probes.planned import planned_probes

    lines = []
    if plan.audit is not None:
        cells = {cell.key for one in planned_audits(plan).values() for cell in one.cells}
        there = [arm for (arm, _), keys in plan.paths.items() if cells & set(keys)]
        named = plan.audit.arms
        lines.append(
            _measured(
                "Audited", [arm for arm in there if named is None or arm in named], named or (),
                "not run, or without a generator that is trained for response sets",
            )
        )  # fmt: skip
    if plan.probe is not None:
        probed = {arm for one in planned_probes(plan).values() for arm in _arms_of(one)}
        named = tuple(plan.probe["arms"])
        lines.append(_measured("Probed", [arm for arm in named if arm in probed], named, "not run"))
    return lines


def _arms_of(probe: PlannedProbe) -> set[str]:
    return {arm for cell in probe.cells.values() for arm in cell.arms}


def _measured(what: str, there: Sequence[str], named: Sequence[str], why: str) -> str:
    there = list(dict.fromkeys(there))
    absent = [arm for arm in named if arm not in there]
    line = f"{what}: {', '.join(there) or 'nothing'}."
    return f"{line} Not {', '.join(absent)}: {why}." if absent else line


def lattice_table(plan: Plan) -> Table:
    """Return the lattice for a console: a row an arm, a column a round.

    A cell of the row's own arm is its key without the arm; one of another arm is that arm's name.
    """
    # Imported here: `validate` needs no table.
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("arm", no_wrap=True)
    table.add_column("seeds", no_wrap=True)
    rows = lattice_rows(plan)
    for number in range(max(len(row.cells) for row in rows)):
        table.add_column(f"round {number}", no_wrap=True)
    for row in rows:
        shown = (_place(row.arm, key) for key in row.cells)
        table.add_row(row.arm, ranges(row.seeds), *(Text(text) for text in shown))
    return table


def _place(arm: str, key: str) -> str:
    owner, _, rest = key.rpartition("-s")
    return f"s{rest}" if owner == arm else f"= {owner}"


def cost_lines(whole: Estimate | None, left: Estimate | None, slots: int) -> list[str]:
    """Say what a study costs and what is left of it, and what that is based on."""
    if whole is None or left is None:
        return ["Time and disk: no earlier run in this folder to estimate them from."]
    lines = [
        f"All of it: {duration(whole.seconds)} of work, {duration(whole.wall_seconds(slots))} with "
        f"{slots} side by side, {whole.size / 1e6:.0f} MB.",
        f"Left: {duration(left.seconds)} of work, {duration(left.wall_seconds(slots))} side by "
        f"side, {left.size / 1e6:.0f} MB.",
        f"Estimated from {whole.num_records} earlier steps in this folder: medians of steps of the "
        f"same shape, {whole.num_scaled} scaled from another shape.",
    ]
    if whole.unknown:
        named = ", ".join(f"{number} x {step}" for step, number in whole.unknown.items())
        lines.append(f"Not counted, since never run here: {named}.")
    return lines


def duration(seconds: float) -> str:
    """Return a rough duration for people.

    >>> duration(42), duration(600), duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def cell_count(study: StudyConfig, plan: Plan) -> str:
    """Set the number of cells against the full product of arms, seeds and rounds."""
    shared = plan.num_arm_rounds - len(plan.cells)
    seeds = {len(run.seeds) for run in study.runs}
    rounds = {run.rounds for run in study.runs}
    return (
        f"{_count([len(plan.cells)], 'cell')} to train for {_count([len(study.runs)], 'arm')} x "
        f"{_count(seeds, 'seed')} x {_count(rounds, 'round')} = {plan.num_arm_rounds}; "
        f"{shared} shared. {_count([len(plan.starts)], 'start')} to measure (round 0)."
    )


def ranges(numbers: Sequence[int]) -> str:
    """Return whole numbers in few letters, in their order.

    >>> ranges([1, 2, 3, 7, 9, 10])
    '1-3, 7, 9, 10'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )


def _count(numbers: Collection[int], noun: str) -> str:
    """Say how many, or from how many to how many."""
    low, high = min(numbers), max(numbers)
    text = str(high) if low == high else f"{low} to {high}"
    return f"{text} {noun}" if high == 1 else f"{text} {noun}s"
