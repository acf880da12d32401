"""The process that imports torch and TRL once and forks a child for each GPU job.

Started by `tasks.gpu` with one end of a socket pair, in a session of its own. For each job the
parent sends one end of a further socket pair; on it travel one JSON line a message:

    parent -> host    the job, then perhaps "term" or "kill"
    child  -> parent  started, waiting, acquired, outcome
    host   -> parent  exited (after the job's process group was ended and the child was reaped)

A closed job socket ends that job; a closed control socket, which is how the parent's death looks
from here, ends all of them. The host starts no thread and touches no GPU before it forks: it only
imports. (Not multiprocessing's forkserver: that one ignores a preload module that is missing,
imports the parent's `__main__` again, and cannot end a job's process group before its pid is free
for reuse.)
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from tasks.forkjob import run_job
from tasks.process import session_members

_LEFTOVER_SECONDS = 5.0


@dataclass(frozen=True)
class _Child:
    pid: int
    pidfd: int
    channel: socket.socket


def main(control_fd: int, preload: Sequence[str]) -> NoReturn:
    """Import `preload`, then serve jobs until the parent closes the control socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(control_fd, False)
    control = socket.socket(fileno=control_fd)
    for name in preload:
        try:
            importlib.import_module(name)
        except Exception as error:
            traceback.print_exc()
            send(control, {"kind": "broken", "module": name, "error": repr(error)})
            raise SystemExit(1) from error
    gc.collect()
    gc.freeze()  # else a child's first collection would copy every page of the imported modules
    send(control, {"kind": "ready", "threads": _thread_names()})
    _Host(control).serve()
    raise SystemExit(0)


def send(channel: socket.socket, message: Mapping[str, Any]) -> None:
    """Send one message as a line of JSON."""
    channel.sendall(json.dumps(message).encode() + b"\n")


class _Host:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}  # by pid
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    if not self._start():
                        self._end_all()
                        return
                elif key.data in self._children:
                    child = self._children[key.data]
                    if key.fileobj is child.channel:
                        self._obey(child)
                    else:
                        self._reap(child)

    def _start(self) -> bool:
        """Fork the next job; False when the parent has gone."""
        data, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        if not data:
            return False
        os.set_inheritable(descriptors[0], False)
        channel = socket.socket(fileno=descriptors[0])
        with channel.makefile("rb", buffering=0) as stream:  # unbuffered: orders may follow
            line = stream.readline()
        if not line.endswith(b"\n"):  # the parent died while it was writing
            channel.close()
            return True
        host = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._leave_to_parent(channel)
            run_job(json.loads(line), channel, host)
        child = _Child(pid, os.pidfd_open(pid), channel)
        self._children[pid] = child
        self._selector.register(child.channel, selectors.EVENT_READ, pid)
        self._selector.register(child.pidfd, selectors.EVENT_READ, pid)
        return True

    def _leave_to_parent(self, mine: socket.socket) -> None:
        """In a new child: close what belongs to the host and to the other jobs."""
        self._selector.close()
        self._control.close()
        for other in self._children.values():
            other.channel.close()
            os.close(other.pidfd)

    def _obey(self, child: _Child) -> None:
        order = child.channel.recv(64)
        if b"kill" in order or not order:
            _signal_group(child.pid, signal.SIGKILL)
            self._selector.unregister(child.channel)
        elif b"term" in order:
            _signal_group(child.pid, signal.SIGTERM)

    def _reap(self, child: _Child) -> None:
        # The child is a zombie still, so its pid cannot have been given to anybody else.
        _end_session(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        with suppress(OSError):  # the parent may have closed its end
            send(
                child.channel,
                {
                    "kind": "exited",
                    "code": os.waitstatus_to_exitcode(status),
                    "cpu_seconds": usage.ru_utime + usage.ru_stime,
                    "peak_bytes": usage.ru_maxrss * 1024,
                },
            )
        with suppress(KeyError):
            self._selector.unregister(child.channel)
        self._selector.unregister(child.pidfd)
        child.channel.close()
        os.close(child.pidfd)
        del self._children[child.pid]

    def _end_all(self) -> None:
        for pid in self._children:
            _signal_group(pid, signal.SIGKILL)
        for child in list(self._children.values()):
            self._reap(child)


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        # It was forked a moment ago and does not lead its group yet.
        os.kill(pid, number)


def _end_session(session: int) -> None:
    """End what a finished job left running, and wait until it is gone."""
    give_up = time.monotonic() + _LEFTOVER_SECONDS
    while (members := session_members(session)) and time.monotonic() < give_up:
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _thread_names() -> list[str]:
    names = []
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            with open(f"/proc/self/task/{task}/comm", encoding="utf-8") as stream:
                names.append(stream.read().strip())
    return names
