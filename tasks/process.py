"""Linux process facts that the launcher and the locks share: who lives, who belongs to whom."""

from __future__ import annotations

import ctypes
import functools
import os
import select
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel send this process SIGKILL as soon as its parent ends, however it ends.

    Args:
        parent_pid: the parent as it was known before the fork. If that parent is gone already, the
            signal would never come, so this process ends itself.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def die_with(pid: int) -> None:
    """Have this process ended by SIGKILL as soon as `pid`, which need not be its parent, has ended.

    A thread waits for it, so this is not for a process that forks itself later.

    Raises:
        ProcessLookupError: there is no such process.
    """
    ended = select.poll()
    ended.register(os.pidfd_open(pid), select.POLLIN)

    def watch() -> None:
        ended.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="die_with", daemon=True).start()


@functools.cache
def machine_id() -> str:
    """Return a name for this boot and process namespace: outside it a pid means nothing."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{os.readlink('/proc/self/ns/pid')}"


def start_ticks(pid: int) -> int | None:
    """Return when `pid` started, in clock ticks since boot, or None if there is no such process.

    A pid and its start time together name one process for ever; a pid alone is used again.
    """
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def ancestors(pid: int) -> Iterator[int]:
    """Yield the parent of `pid`, its parent, and so on."""
    while fields := _stat_fields(pid):
        pid = int(fields[1])
        if pid == 0:
            return
        yield pid


def session_members(session: int) -> list[int]:
    """Return the pids of the living processes in `session` (zombies are not alive)."""
    members = []
    for entry in os.listdir("/proc"):
        fields = _stat_fields(int(entry)) if entry.isdigit() else None
        if fields and fields[0] not in "ZX" and int(fields[3]) == session:
            members.append(int(entry))
    return members


def _stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the third (state) on, see proc(5)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets and may itself hold brackets and spaces.
    return text.rpartition(")")[2].split()
