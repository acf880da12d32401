"""What this machine has: GPUs, memory, disk."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynamicrubric.preflight.facts import GIB

_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Device:
    """What tasks run on.

    Attributes:
        name: in words.
        num_gpus: 0 for a CPU.
        bytes: memory of one GPU, or of the machine.
        has_bfloat16: whether it computes in bfloat16 at full speed.
    """

    name: str
    num_gpus: int
    bytes: float
    has_bfloat16: bool = True

    @property
    def is_gpu(self) -> bool:
        """Whether it is GPUs."""
        return self.num_gpus > 0

    @property
    def words(self) -> str:
        """What it is, with its memory."""
        each = "each " if self.num_gpus > 1 else ""
        count = f"{self.num_gpus} x " if self.num_gpus > 1 else ""
        return f"{count}{self.name}, {each}{self.bytes / GIB:.1f} GiB"


def this_device() -> Device:
    """Return this machine's GPUs, those that CUDA_VISIBLE_DEVICES leaves; else its CPU."""
    from dynamicrubric.engines.gpus import visible_gpus

    gpus = visible_gpus()
    if gpus:
        least = min(gpus, key=lambda gpu: gpu.bytes)
        return Device(least.name, len(gpus), least.bytes, all(g.has_bfloat16 for g in gpus))
    return Device("this machine's CPU (no GPU)", 0, main_memory())


def main_memory() -> float:
    """Return the bytes of main memory that processes here may use."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:
        limit = _CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, float(limit)) if limit.isdecimal() else total


def free_disk(root: Path) -> float:
    """Return the bytes that are free in a folder's file system."""
    return float(shutil.disk_usage(root).free)
