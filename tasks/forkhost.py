"""The process that imports torch and TRL once and forks a child for each GPU job.

Started by `tasks.hosts` with one end of a socket pair, in a session of its own. For each job the
parent sends one end of a further socket pair; a shared host (`tasks.sharedhost`) listens as well,
and each connection is a job's socket. On that travel one JSON line a message:

    host   -> caller  hello (to a connection only: what this host is)
    caller -> host    the job, then perhaps "term" or "kill"
    child  -> caller  started, waiting, acquired, outcome
    host   -> caller  exited (after the job's process group was ended and the child was reaped)

A closed job socket ends that job; a closed control socket, which is how the parent's death looks
from here, ends all of them. The host starts no thread and touches no GPU before it forks: it only
imports. It waits for nobody: a caller that is stopped half-way holds up no other. (Not
multiprocessing's forkserver: that one ignores a preload module that is missing, imports the
parent's `__main__` again, and cannot end a job's process group before its pid is free for reuse.)
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


@dataclass(frozen=True)
class _Caller:
    """A socket whose job has not arrived yet."""

    channel: socket.socket
    received: bytearray


def main(
    control_fd: int,
    preload: Sequence[str],
    listener_fd: int | None = None,
    hello: Mapping[str, Any] | None = None,
) -> NoReturn:
    """Import `preload`, then serve jobs until the parent closes the control socket.

    Args:
        control_fd: our end of the parent's socket pair.
        preload: modules to import.
        listener_fd: a listening socket, if others than the parent may send jobs.
        hello: what to tell those others first.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = _adopt(control_fd)
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
    listener = None if listener_fd is None else _adopt(listener_fd)
    _Host(control, listener, dict(hello or {})).serve()
    raise SystemExit(0)


def send(channel: socket.socket, message: Mapping[str, Any]) -> None:
    """Send one message as a line of JSON."""
    channel.sendall(json.dumps(message).encode() + b"\n")


def _adopt(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)


class _Host:
    def __init__(
        self, control: socket.socket, listener: socket.socket | None, hello: Mapping[str, Any]
    ) -> None:
        self._control = control
        self._listener = listener
        self._hello = hello
        self._selector = selectors.DefaultSelector()
        self._callers: dict[int, _Caller] = {}  # by descriptor
        self._children: dict[int, _Child] = {}  # by pid
        self._selector.register(control, selectors.EVENT_READ)
        if listener is not None:
            self._selector.register(listener, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serve until the parent has gone; whatever ends this, no job is left."""
        try:
            self._serve()
        finally:
            self._end_all()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    if not self._receive():
                        return
                elif key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, _Caller):
                    self._read_job(key.data)
                elif key.data in self._children:
                    child = self._children[key.data]
                    if key.fileobj is child.channel:
                        self._obey(child)
                    else:
                        self._reap(child)

    def _receive(self) -> bool:
        """Take a job's socket from the parent; False when the parent has gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        except ConnectionResetError:  # it died with something from us unread
            return False
        if not data:
            return False
        self._expect(_adopt(descriptors[0]))
        return True

    def _accept(self) -> None:
        """Take a job's socket from somebody who has connected."""
        assert self._listener is not None
        with suppress(OSError):  # gone again already
            channel, _ = self._listener.accept()
            self._expect(channel)
            _send_now(channel, {"kind": "hello", "threads_started": _thread_names(), **self._hello})

    def _expect(self, channel: socket.socket) -> None:
        caller = _Caller(channel, bytearray())
        self._callers[channel.fileno()] = caller
        self._selector.register(channel, selectors.EVENT_READ, caller)

    def _read_job(self, caller: _Caller) -> None:
        """Read what has come of a job; fork once it is complete."""
        try:
            data = caller.channel.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        caller.received.extend(data)
        line, end, orders = bytes(caller.received).partition(b"\n")
        if data and not end:
            return
        self._selector.unregister(caller.channel)
        del self._callers[caller.channel.fileno()]
        if not end:  # it died, or wanted another host
            caller.channel.close()
            return
        self._act_on(self._start(line, caller.channel), orders)

    def _start(self, line: bytes, channel: socket.socket) -> _Child:
        """Fork a job's process."""
        host = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._leave_to_parent()
                run_job(json.loads(line), channel, host)
            finally:
                os._exit(1)  # never back into the host's loop, which would end the other jobs
        child = _Child(pid, os.pidfd_open(pid), channel)
        self._children[pid] = child
        self._selector.register(child.channel, selectors.EVENT_READ, pid)
        self._selector.register(child.pidfd, selectors.EVENT_READ, pid)
        return child

    def _leave_to_parent(self) -> None:
        """In a new child: close what belongs to the host and to the other jobs."""
        self._selector.close()
        self._control.close()
        if self._listener is not None:
            self._listener.close()
        for caller in self._callers.values():
            caller.channel.close()
        for other in self._children.values():
            other.channel.close()
            os.close(other.pidfd)

    def _obey(self, child: _Child) -> None:
        try:
            order = child.channel.recv(64)
        except OSError:
            order = b""
        if order:
            self._act_on(child, order)
        else:
            self._selector.unregister(child.channel)
            _signal_group(child.pid, signal.SIGKILL)

    def _act_on(self, child: _Child, orders: bytes) -> None:
        if b"kill" in orders:
            _signal_group(child.pid, signal.SIGKILL)
        elif b"term" in orders:
            _signal_group(child.pid, signal.SIGTERM)

    def _reap(self, child: _Child) -> None:
        # The child is a zombie still, so its pid cannot have been given to anybody else.
        _end_session(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        _send_now(
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


def _send_now(channel: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a message to a caller, who may have gone or may not be reading."""
    with suppress(OSError):
        channel.send(json.dumps(message).encode() + b"\n", socket.MSG_DONTWAIT)


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
