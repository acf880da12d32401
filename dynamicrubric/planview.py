"""The lattice in words and as a table: which cells there are, and whose they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dynamicrubric.config import StudyConfig
from dynamicrubric.plan import Plan


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
