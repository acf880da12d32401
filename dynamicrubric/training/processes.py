"""Several processes that train one model: who they are, and what they tell each other.

`accelerate launch` starts them (`tasks.ranks`); each has whole groups of a step's rows. In a single
process everything here does nothing, so callers need not ask.

TRL 1.16 seeds every process with its own number, so what it samples itself depends on how many
there are. Nothing of ours does: each completion's stream is named by row and sample (`seeds`).
Objects travel pickled, between the processes of one training alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

import torch
from torch import distributed

T = TypeVar("T")

MAX_WAIT: Final = timedelta(days=7)
"""For the slowest process, whose rollout may take long; what hangs is ended by the step's own
deadline."""


def join(store: Path) -> None:
    """Join the other processes of this launch, before any model is loaded.

    Each takes a GPU of its own, if there are any. They find each other through a file: the store
    that torch uses by default listens on every address of the machine.

    Args:
        store: a file that only this launch uses; the first process makes it.
    """
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    size = int(os.environ["WORLD_SIZE"])
    distributed.init_process_group(
        "nccl" if has_gpu else "gloo",
        init_method=f"file://{store.absolute()}",
        rank=int(os.environ["RANK"]),
        world_size=size,
        timeout=MAX_WAIT,
    )


def leave() -> None:
    """Wait until all are done and take leave."""
    if joined():
        wait_for_all()
        distributed.destroy_process_group()


def joined() -> bool:
    """Say whether there are other processes to talk to."""
    return distributed.is_available() and distributed.is_initialized()


def num_processes() -> int:
    """Return how many processes train together."""
    return distributed.get_world_size() if joined() else 1


def is_first() -> bool:
    """Say whether this is the process that writes artefacts, logs and checkpoints."""
    return not joined() or distributed.get_rank() == 0


def gathered(rows: Sequence[T]) -> list[T]:
    """Return the rows of all processes, in the order of the processes; all have to call it."""
    if not joined():
        return list(rows)
    parts: list[list[T]] = [[] for _ in range(num_processes())]
    distributed.all_gather_object(parts, list(rows))
    return [row for part in parts for row in part]


def from_first(value: T) -> T:
    """Return what the first process passes; all have to call it."""
    if not joined():
        return value
    values = [value]
    distributed.broadcast_object_list(values, src=0)
    return values[0]


def wait_for_all() -> None:
    """Return when every process has called this."""
    if joined():
        distributed.barrier()
