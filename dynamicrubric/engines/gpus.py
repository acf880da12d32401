"""The GPUs that this process may use."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Gpu(NamedTuple):
    """A GPU: its name, all of its memory in bytes, and whether it computes in bfloat16."""

    name: str
    bytes: int
    has_bfloat16: bool


_AMPERE = 8
"""Compute capability from which on bfloat16 is in hardware (CUDA C++ Programming Guide, 17)."""


def visible_gpus() -> list[Gpu]:
    """Return the GPUs, [] on a machine without one; none of their memory is touched."""
    if not torch.cuda.is_available():
        return []
    found = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    return [Gpu(one.name, one.total_memory, one.major >= _AMPERE) for one in found]
