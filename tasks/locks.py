"""Locks that the kernel releases when their holder dies, and that say who holds them.

A lock is `flock` on a file that is never removed. The file's content is a lease in JSON (`pid`,
`what`, `since`, `machine`, ...): it serves the messages of those who wait, and the next holder, who
ends what a killed holder left running. The lock itself is the kernel's, so a stale lease locks
nobody out.

Descriptors do not survive exec (Python opens them close-on-exec) and are closed in a forked child,
so a grandchild that outlives the holder does not keep the lock.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from dynamicrubric.errors import UserError
from tasks.disk import disk_errors
from tasks.process import machine_id, session_members, start_ticks

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2
LEFTOVER_SECONDS = 20.0


@dataclass(frozen=True)
class Lease:
    """Who holds a lock."""

    pid: int
    what: str
    since: str  # local time, ISO 8601 with offset
    machine: str  # boot and process namespace, see `machine_id`
    started: int | None  # start time of `pid` in clock ticks since boot
    owns_session: bool  # `pid` leads a session made for this work: all of it may be ended

    @classmethod
    def mine(cls, what: str, *, owns_session: bool = False) -> Lease:
        """Return this process's lease on something, starting now."""
        pid = os.getpid()
        now = datetime.now(UTC).astimezone().isoformat(timespec="seconds")
        return cls(pid, what, now, machine_id(), start_ticks(pid), owns_session)

    def __str__(self) -> str:
        return f"{self.what} (process {self.pid}) since {self.since}"


class HeldLock:
    """A lock this process holds; a context manager that releases it on exit."""

    def __init__(self, path: Path, descriptor: int, slot: int = 0) -> None:
        self.path = path
        self.slot = slot
        self._descriptor = descriptor
        _HELD.add(self)

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            self._close()
            _HELD.discard(self)

    def _write(self, lease: Lease) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(asdict(lease)).encode(), 0)

    def _close(self) -> None:
        # Closing, never LOCK_UN: in a forked child that would unlock the parent's lock as well.
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> HeldLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


_HELD: set[HeldLock] = set()


def _forget_in_child() -> None:
    for lock in _HELD:
        lock._close()
    _HELD.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def slot_paths(directory: Path, num_slots: int) -> list[Path]:
    """Return the lock files of a folder's slots."""
    if num_slots < 1:
        raise UserError(doing="making locks", got=f"{num_slots} slots", expected="1 or more")
    return [directory / f"slot-{slot}.lock" for slot in range(num_slots)]


class SlotLock:
    """`num_slots` interchangeable locks `slot-<n>.lock` in a folder, e.g. one for each GPU."""

    def __init__(self, directory: Path, num_slots: int) -> None:
        self.paths = slot_paths(directory, num_slots)

    @classmethod
    def at(cls, paths: Sequence[Path]) -> SlotLock:
        """Return the locks that these files are."""
        found = cls(paths[0].parent, len(paths))
        found.paths = list(paths)
        return found

    def acquire(
        self,
        what: str,
        *,
        on_wait: Callable[[str], None] | None = None,
        owns_session: bool = False,
    ) -> HeldLock:
        """Take any free slot, or wait for one.

        Args:
            what: what the slot is for, as others will read it ("train_policy of coevolved-r2").
            on_wait: called when waiting begins, and whenever the holders change, with one line
                that says who holds the slots and since when.
            owns_session: this process leads a session made for this work (`os.setsid`), so whoever
                finds it dead may end what is left of that session.

        Raises:
            UserError: the lock files cannot be written.
        """
        told = ""
        waiting = threading.Event()  # never set: a wait that a signal can interrupt
        while True:
            held = self._try(Lease.mine(what, owns_session=owns_session))
            if held is not None:
                return held
            holders = "; ".join(describe_holder(path) for path in self.paths)
            if holders != told:
                told = holders
                logger.info("%s waits for %s", what, holders)
                if on_wait is not None:
                    on_wait(holders)
            waiting.wait(POLL_SECONDS)

    def _try(self, lease: Lease) -> HeldLock | None:
        for slot, path in enumerate(self.paths):
            held = _lock(path, slot)
            if held is None:
                continue
            try:
                end_leftovers(read_lease(path))
                held._write(lease)
            except BaseException:
                held._close()  # and keep the lease: the next one has to try again
                raise
            return held
        return None


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[HeldLock]:
    """Hold the lock file `path` while the body runs; fail at once if somebody else does.

    Raises:
        UserError: another process holds it (it is named), or the file cannot be written.
    """
    held = try_exclusive(path, what)
    if held is None:
        raise UserError(
            doing=f"starting {what}",
            got=f"{path} held by {describe_holder(path)}",
            expected="no other to be running",
            remedy="wait until it ends, or stop it, then run the same command again",
        )
    with held:
        yield held


def try_exclusive(path: Path, what: str) -> HeldLock | None:
    """Take the lock file `path`; None if somebody else holds it.

    Raises:
        UserError: the file cannot be written.
    """
    held = _lock(path)
    if held is not None:
        try:
            held._write(Lease.mine(what))
        except BaseException:
            held.release()
            raise
    return held


def read_lease(path: Path) -> Lease | None:
    """Return the lease in a lock file; None if nobody left one (or it is only half written)."""
    try:
        return Lease(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def describe_holder(path: Path) -> str:
    """Say who holds a lock file and since when."""
    return str(read_lease(path) or "a process that has not said its name yet")


def end_leftovers(lease: Lease | None) -> None:
    """Kill what a dead holder left running in the session it made for its work.

    An engine that outlives its task keeps the GPU's memory, and the next task would fail with a
    misleading out-of-memory error. Only processes in a session recorded in our lease are touched.
    """
    if lease is None or not lease.owns_session or lease.machine != machine_id():
        return
    if start_ticks(lease.pid) not in (None, lease.started):
        return  # the pid belongs to somebody else by now, so nothing of ours is left
    give_up = time.monotonic() + LEFTOVER_SECONDS
    while members := session_members(lease.pid):
        if time.monotonic() > give_up:
            raise UserError(
                doing="taking over a lock",
                got=f"processes {members} left running by {lease}, which cannot be ended",
                remedy="end them (they may hold the GPU's memory), then run the same command again",
            )
        for pid in members:
            logger.warning("ending process %d, left running by %s", pid, lease)
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        threading.Event().wait(POLL_SECONDS)


def _lock(path: Path, slot: int = 0) -> HeldLock | None:
    with disk_errors("making a lock file", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return HeldLock(path, descriptor, slot)
