"""Which GPUs a study may use, and the lock files that let one job at a time have one.

Locks of GPUs are the machine's, not the project's: two clones, or a workspace of `dvc exp --temp`,
have folders of their own but the same GPUs. So they lie in a folder of the user's under /tmp, and a
GPU is known by its UUID, which `CUDA_VISIBLE_DEVICES` takes as well. (Not under XDG_RUNTIME_DIR or
TMPDIR: a job of cron or of a scheduler has others than a terminal.) Other users, and containers
with a /tmp of their own, are not kept out.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Final

from dynamicrubric.errors import UserError
from tasks.disk import disk_errors

SHARED_DIR: Final = Path("/tmp")
_QUERY: Final = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
_MOST_GPUS: Final = 64


@dataclass(frozen=True)
class GpuSlot:
    """A place for one job.

    Attributes:
        device: the GPU of a job that needs one.
        lock: the lock file of whoever has it, whichever project that is.
        others: further GPUs, of a job in several processes.
        other_locks: their lock files.
    """

    device: str
    lock: Path
    others: tuple[str, ...] = ()
    other_locks: tuple[Path, ...] = ()

    def visible(self, num_processes: int) -> str:
        """Return what CUDA_VISIBLE_DEVICES is to be for a job of so many processes."""
        return ",".join([self.device, *self.others][:num_processes])


def gpu_slots(num_slots: int, gpus_a_slot: int = 1) -> list[GpuSlot]:
    """Return the slots in turn over the GPUs, [] on a machine without one.

    Raises:
        UserError: there are fewer GPUs than a slot needs, or the folder of the lock files belongs
            to somebody else.
    """
    names = visible_gpus()
    if not names:
        return []
    if gpus_a_slot > 1:
        names.sort()  # whoever takes several takes them in one order: nobody waits in a ring
    sets = [names[i : i + gpus_a_slot] for i in range(0, len(names) - gpus_a_slot + 1, gpus_a_slot)]
    if not sets:
        raise UserError(
            doing="choosing GPUs",
            got=f"runtime.processes {gpus_a_slot} and {len(names)} GPUs",
            expected="a GPU for each process",
            remedy="lower runtime.processes, or show more GPUs in CUDA_VISIBLE_DEVICES",
        )
    folder = _machine_folder()
    found = []
    for slot in range(num_slots):
        turn, index = divmod(slot, len(sets))
        clean = [re.sub(r"[^A-Za-z0-9-]", "_", name) for name in sets[index]]
        lock, *others = (folder / f"gpu-{name}-{turn}.lock" for name in clean)
        found.append(GpuSlot(sets[index][0], lock, tuple(sets[index][1:]), tuple(others)))
    return found


def visible_gpus() -> list[str]:
    """Return the GPUs by UUID where it is known, from CUDA_VISIBLE_DEVICES or the device files."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        files = [str(n) for n in range(_MOST_GPUS) if Path(f"/dev/nvidia{n}").exists()]
        return (list(_uuids().values()) or files) if files else []
    given = [name.strip() for name in visible.split(",") if name.strip()]
    return [_uuid_of(name) for name in takewhile(lambda name: name != "-1", given)]


def _uuid_of(name: str) -> str:
    """Return a GPU's UUID from its index or the first letters of its UUID; else the name as it is.

    An index is nvidia-smi's: CUDA's own order may be another, but the job gets the UUID too.
    """
    uuids = _uuids()
    matching = [uuid for uuid in uuids.values() if uuid.startswith(name)]
    return uuids.get(name) or (matching[0] if len(matching) == 1 else name)


@cache
def _uuids() -> Mapping[str, str]:
    """Ask the driver for each GPU's UUID, by index; {} if there is none to ask."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(_QUERY, capture_output=True, text=True, check=True, timeout=60)
        rows = [line.split(",") for line in done.stdout.splitlines() if line.count(",") == 1]
        return {index.strip(): uuid.strip() for index, uuid in rows}
    return {}


def _machine_folder() -> Path:
    """Return the user's folder of the machine's locks; make it if need be."""
    folder = SHARED_DIR / f"dynamicrubric-{os.getuid()}"
    with disk_errors("making the folder of the GPUs' locks", folder), suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise UserError(
            doing="locking a GPU",
            got=f"{folder} of user {state.st_uid} with mode {stat.filemode(state.st_mode)}",
            expected=f"a folder that user {os.getuid()} alone can read and write",
            remedy="remove it, then run the same command again",
        )
    return folder
