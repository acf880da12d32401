"""Which rows of training data each step takes, in whole groups."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.seeds import generator_for
from dynamicrubric.training.rollout import RowGroup


def row_order(row_keys: Sequence[str], steps: int, rows_per_step: int, seed: int) -> list[str]:
    """Return the rows of all steps in order: one shuffle of the rows after another.

    TRL's sampler draws the orders of all epochs from one stream, which a resumed training starts
    again; here each epoch has its own. As there, the rows at an epoch's end that make no whole step
    are dropped, so that no step has a row twice.

    Args:
        row_keys: the rows.
        steps: number of steps.
        rows_per_step: rows of each.
        seed: seed of the order.

    Returns:
        `steps * rows_per_step` keys.

    Raises:
        UserError: there are fewer rows than one step takes.
    """
    if len(row_keys) < rows_per_step:
        raise UserError(
            doing="training with GRPO",
            got=f"prompts_per_step = {rows_per_step} and {len(row_keys)} rows of training data",
            expected="at least as many rows as one step takes",
            remedy="lower prompts_per_step",
        )
    usable = len(row_keys) // rows_per_step * rows_per_step
    rows: list[str] = []
    for epoch in range(math.ceil(steps * rows_per_step / usable)):
        shuffled = generator_for(seed, "epoch", epoch).permutation(len(row_keys))
        rows += [row_keys[index] for index in shuffled[:usable]]
    return rows[: steps * rows_per_step]


def groups_per_process(prompts_per_step: int, num_processes: int) -> int:
    """Return how many of a step's groups each process rolls out.

    >>> groups_per_process(8, 4)
    2

    Raises:
        UserError: a group would be cut.
    """
    groups, left = divmod(prompts_per_step, num_processes)
    if left or not groups:
        raise UserError(
            doing="training in several processes",
            got=f"prompts_per_step = {prompts_per_step} and {num_processes} processes",
            expected="the same number of whole groups on each",
            remedy="make prompts_per_step a multiple of runtime.processes",
        )
    return groups


def whole_groups(prompts: Sequence[str], group_size: int) -> list[RowGroup]:
    """Return the groups of a step's rows, asserting that none is cut in two.

    Raises:
        InstrumentError: rows of one group are not together and complete on this process.
    """
    groups: list[RowGroup] = []
    for start in range(0, len(prompts), group_size):
        rows = prompts[start : start + group_size]
        if len(rows) != group_size or len(set(rows)) != 1:
            raise InstrumentError(
                f"a group of {group_size} rows was cut: this process got {list(rows)}; the batch "
                "of each process has to be a multiple of the group size"
            )
        groups.append(RowGroup(rows[0], group_size))
    return groups
