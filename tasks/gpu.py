"""The one place that launches GPU work: a child process with a log, a slot and a deadline.

`launch` runs a function in a process forked from a host that has imported the heavy libraries once
(`tasks.forkhost`), for one process or for all of a study. Whatever happens to the caller, the work
ends with it: the host sees the caller's sockets close, and the kernel kills the work if the host
dies. `launch` may be called from several threads. Wrap a flow's body in `children_end_first`, so
that Ctrl-C and SIGTERM end the work before they unwind the flow; a thread that waits for work
cannot be interrupted otherwise.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from dynamicrubric.errors import DynamicRubricError, InstrumentError, UserError
from tasks.hosts import Host, StepCrashed, close_hosts, job_environment, search_path
from tasks.locks import slot_paths
from tasks.logtail import LogTail, last_lines
from tasks.sharedhost import open_channel

__all__ = [
    "StepCrashed",
    "StepStopped",
    "StepTimedOut",
    "Usage",
    "any_running",
    "children_end_first",
    "close_hosts",
    "launch",
    "stop_all",
]

logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.25


class StepTimedOut(DynamicRubricError):
    """The work ran past its deadline and was ended."""


class StepStopped(DynamicRubricError):
    """The work was ended because its flow is stopping."""


@dataclass(frozen=True)
class Usage:
    """What a job took."""

    seconds: float  # wall clock from the moment it had its slot
    cpu_seconds: float
    peak_bytes: int  # largest resident size of its process; shared pages of the host included
    returned: int | None = None  # what its function returned, if a number


def launch(
    target: str,
    kwargs: Mapping[str, Any],
    *,
    log_path: Path,
    deadline_seconds: float,
    slots_dir: Path,
    num_slots: int,
    what: str,
    threads: int = 1,
    devices: Sequence[str] = (),
    locks: Sequence[Path] = (),
    more_locks: Sequence[Sequence[Path]] = (),
    env: Mapping[str, str] | None = None,
    preload: Sequence[str] = (),
    grace_seconds: float = 10.0,
    on_wait: Callable[[str], None] | None = None,
    on_line: Callable[[str], None] | None = None,
    on_run: Callable[[float], None] | None = None,
) -> Usage:
    """Run a function in a child process and return when it has ended well.

    Args:
        target: "package.module:function"; it has to be importable by that name.
        kwargs: its arguments, values that JSON can hold.
        log_path: all its output is appended here, line by line.
        deadline_seconds: how long it may run once it has a slot.
        slots_dir: folder of the slots' lock files and of the host's log.
        num_slots: how many jobs run at a time, as a rule one for each GPU.
        what: what it is, in messages and for those who wait ("train_policy of coevolved-r2").
        threads: CPU threads of the job.
        devices: CUDA_VISIBLE_DEVICES of each slot; empty leaves the variable alone (CPU).
        locks: lock file of each slot, if others than those in `slots_dir`: of GPUs, which all
            projects of the machine share.
        more_locks: further lock files of each slot, taken after its own, one after another.
        env: environment variables beside this process's own, which the job gets as they are now.
        preload: modules that the host imports once, for all jobs with the same preload.
        grace_seconds: time between SIGTERM and SIGKILL.
        on_wait: told who holds the slots, while the job waits for one.
        on_line: given each line of the log soon after it is written.
        on_run: told again and again, and at its end, how many seconds the job has had its slot.

    Raises:
        UserError: raised by the function, or its log or lock cannot be written.
        InstrumentError: raised by the function, or a preload module cannot be imported.
        StepTimedOut: the deadline passed; no process is left.
        StepCrashed: any other end; names the exception, signal or exit code, and the log.
        StepStopped: `stop_all` ended it.
    """
    for kind, given in (("devices", devices), ("locks", locks), ("more_locks", more_locks)):
        if given and len(given) != num_slots:
            got, expected = f"{len(given)} {kind}", f"{num_slots}, one for each slot"
            raise UserError(doing=f"launching {what}", got=got, expected=expected)
    job = {
        "target": target,
        "kwargs": dict(kwargs),
        "log_path": str(log_path.absolute()),
        "locks": [str(path.absolute()) for path in locks or slot_paths(slots_dir, num_slots)],
        "more_locks": [[str(path.absolute()) for path in paths] for paths in more_locks],
        "what": what,
        "threads": threads,
        "devices": list(devices),
        "env": job_environment(threads) | dict(env or {}),
        "cwd": os.getcwd(),
        "sys_path": search_path(),
    }
    line = json.dumps(job, allow_nan=False).encode() + b"\n"
    host, channel = open_channel(tuple(preload), threads, slots_dir)
    tail = LogTail(log_path, on_line)
    run = _Run(host, what, log_path, deadline_seconds, grace_seconds, on_wait, on_run, tail)
    with channel as run.channel:  # closing it ends the job, whatever raised
        _RUNNING.add(run)
        try:
            run.channel.sendall(line)
            return run.follow()
        except BaseException:
            run.end_now()
            raise
        finally:
            _RUNNING.discard(run)
            run.done.set()


def any_running() -> bool:
    """Say whether a job of this process is running."""
    return bool(_RUNNING)


def stop_all() -> None:
    """End all running jobs of this process; their `launch` calls raise `StepStopped`.

    Returns when the jobs of other threads have ended (the calling thread's own job ends as soon
    as an exception unwinds its `launch`).
    """
    running = list(_RUNNING)
    for run in running:
        run.stop()
    for run in running:
        if run.thread != threading.get_ident():
            run.done.wait(run.grace_seconds + 2 * _POLL_SECONDS + 5.0)


@contextmanager
def children_end_first() -> Iterator[None]:
    """In the body, SIGINT, SIGTERM and exceptions end the running jobs before anything else.

    Signal handlers can be set in the main thread only; elsewhere only exceptions are covered.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.getsignal(number)
            signal.signal(number, _stopping_first(before[number]))
    try:
        yield
    except BaseException:
        stop_all()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_Handler = Callable[[int, FrameType | None], Any] | int | None


def _stopping_first(previous: _Handler) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        stop_all()
        if callable(previous):
            previous(number, frame)
        elif previous is not signal.SIG_IGN:
            raise SystemExit(128 + number)

    return handle


@dataclass(eq=False)
class _Run:
    """One job, followed from the thread that launched it."""

    host: Host
    what: str
    log_path: Path
    deadline_seconds: float
    grace_seconds: float
    on_wait: Callable[[str], None] | None
    on_run: Callable[[float], None] | None
    tail: LogTail
    channel: socket.socket = field(init=False)
    thread: int = field(default_factory=threading.get_ident)
    done: threading.Event = field(default_factory=threading.Event)
    stopped: bool = False
    timed_out: bool = False
    acquired_at: float | None = None
    ending_since: float | None = None
    outcome: dict[str, Any] | None = None
    _unread: bytes = b""

    def follow(self) -> Usage:
        """Read messages until the job has ended; enforce the deadline meanwhile."""
        while True:
            for message in self._receive(_POLL_SECONDS):
                self._note(message)
                if message["kind"] == "exited":
                    self.tail.read_on()
                    self._tell_seconds()
                    return self._conclude(message)
            self.tail.read_on()
            self._tell_seconds()
            self._enforce()

    def stop(self) -> None:
        """Ask the job to end; safe in signal handlers and other threads."""
        self.stopped = True
        self._order(b"term\n")

    def end_now(self) -> None:
        """Kill the job and wait, for a while, until the host says that nothing is left."""
        self._order(b"kill\n")
        give_up = time.monotonic() + 10.0
        with suppress(OSError, StepCrashed):  # the host is gone, and the job with it
            while time.monotonic() < give_up:
                if any(message["kind"] == "exited" for message in self._receive(_POLL_SECONDS)):
                    return

    def _seconds(self) -> float:
        return 0.0 if self.acquired_at is None else time.monotonic() - self.acquired_at

    def _tell_seconds(self) -> None:
        if self.on_run is not None and self.acquired_at is not None:
            self.on_run(self._seconds())

    def _order(self, order: bytes) -> None:
        with suppress(OSError):  # closed already: then it has ended
            self.channel.send(order, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _receive(self, seconds: float) -> list[dict[str, Any]]:
        self.channel.settimeout(seconds)
        try:
            data = self.channel.recv(65536)
        except TimeoutError:
            if self.host.alive():
                return []
            data = b""
        if not data:
            raise StepCrashed(f"{self.what}: its fork host ended; the log is {self.log_path}")
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def _note(self, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "waiting":
            logger.info("%s waits for a slot held by %s", self.what, message["holders"])
            if self.on_wait is not None:
                self.on_wait(message["holders"])
        elif kind == "acquired":
            self.acquired_at = time.monotonic()
            logger.info("%s has slot %d, log %s", self.what, message["slot"], self.log_path)
        elif kind == "outcome":
            self.outcome = message

    def _enforce(self) -> None:
        now = time.monotonic()
        if self.ending_since is not None:
            if now > self.ending_since + self.grace_seconds:
                self._order(b"kill\n")
        elif self.stopped:  # and told so by `stop`
            self.ending_since = now
        elif self.acquired_at is not None and now > self.acquired_at + self.deadline_seconds:
            self.timed_out = True
            self._order(b"term\n")
            self.ending_since = now

    def _conclude(self, exited: dict[str, Any]) -> Usage:
        if self.outcome is not None and self.outcome["result"] == "ok" and exited["code"] == 0:
            taken = exited["cpu_seconds"], exited["peak_bytes"]
            return Usage(self._seconds(), *taken, self.outcome["returned"])
        if self.timed_out:
            limit = f"{self.deadline_seconds:g} s"
            raise StepTimedOut(f"{self.what}: ended at its deadline of {limit}; {self._see()}")
        if self.stopped:
            raise StepStopped(f"{self.what}: ended because the flow is stopping; {self._see()}")
        if self.outcome is None or self.outcome["result"] == "ok":
            raise StepCrashed(f"{self.what}: {_how_it_ended(exited['code'])}; {self._see()}")
        if self.outcome["result"] == "user_error":
            raise UserError(**self.outcome["fields"])
        if self.outcome["result"] == "instrument_error":
            raise InstrumentError(self.outcome["message"])
        raise StepCrashed(f"{self.what}: {self.outcome['message']}; {self._see()}")

    def _see(self) -> str:
        lines = "".join(f"\n    {line}" for line in last_lines(self.log_path, 10))
        return f"the log {self.log_path} ends with{lines or ' nothing'}"


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code} before the work was done"
    name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
    hint = " (sent by a person, or by the kernel when memory runs out)" if code == -9 else ""
    return f"its process was ended by {name}{hint}"


_RUNNING: Final[set[_Run]] = set()
os.register_at_fork(after_in_child=_RUNNING.clear)
