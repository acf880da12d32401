"""The parent's end of the fork hosts: one for each set of preloaded modules and thread count.

A process whose starter shares a host (`tasks.sharedhost`) does without its own.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from dynamicrubric.errors import DynamicRubricError, InstrumentError
from tasks.disk import disk_errors

logger = logging.getLogger(__name__)

_BOOTSTRAP: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from tasks.forkhost import main; "
    "main(**json.loads(sys.argv[2]))"
)
# The host starts no thread before it forks, and its children see the same order of sets. TRL would
# import the whole of MLflow (3 s of CPU) because it is there; training does not use it. Jobs write
# to log files, where progress bars are noise.
_QUIET_HOST: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "PYTHONHASHSEED": "0",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
_CLOSE_SECONDS: Final = 15.0


class StepCrashed(DynamicRubricError):
    """The work ended by an exception, a signal or an exit code; its log says more."""


def thread_env(threads: int) -> dict[str, str]:
    """Return the variables that limit a process's CPU threads."""
    return {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}


def search_path() -> list[str]:
    """Return where this process finds modules, without relative entries."""
    return [entry or os.getcwd() for entry in sys.path]


def job_environment(threads: int) -> dict[str, str]:
    """Return this process's environment as a job with so many threads is to have it."""
    return os.environ | thread_env(threads) | _QUIET_HOST


class ForkHost:
    """The parent's end of a fork host."""

    def __init__(
        self,
        preload: tuple[str, ...],
        threads: int,
        log_dir: Path,
        *,
        listener: socket.socket | None = None,
        hello: Mapping[str, object] | None = None,
    ) -> None:
        """Start it; `await_ready` before its first job, unless all come through `listener`."""
        self._control, theirs = socket.socketpair()
        self._sending = threading.Lock()
        self._ready = False  # or not known yet
        shared = [] if listener is None else [listener.fileno()]
        with theirs, disk_errors("starting the fork host", log_dir):
            log_dir.mkdir(parents=True, exist_ok=True)
            self.log_path = log_dir / "forkhost.log"
            arguments = {
                "control_fd": theirs.fileno(),
                "preload": preload,
                "listener_fd": shared[0] if shared else None,
                "hello": hello,
            }
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-c",
                        _BOOTSTRAP,
                        *map(json.dumps, (search_path(), arguments)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[theirs.fileno(), *shared],
                    start_new_session=True,  # it has to outlive a killed process group, to clean up
                    env=job_environment(threads),
                )

    @property
    def pid(self) -> int:
        """The host's process."""
        return self._process.pid

    def alive(self) -> bool:
        """Say whether the host's process is still there."""
        return self._process.poll() is None

    def open_channel(self) -> socket.socket:
        """Have the host expect a job; return the socket to send it and talk about it."""
        ours, theirs = socket.socketpair()
        with theirs, self._sending:
            try:
                socket.send_fds(self._control, [b"j"], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise StepCrashed(f"the fork host ended, see {self.log_path}") from error
        return ours

    def close(self) -> None:
        """End the host, which ends its jobs first."""
        if not select.select([self._control], [], [], 0)[0] and not self._ready:
            self._process.kill()  # in the middle of a long import, so there are no jobs
        self._control.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel then kills its jobs
            self._process.wait()

    def forget(self) -> None:
        """In a forked copy of the parent: the host must not take this copy for its parent."""
        self._control.close()

    def await_ready(self) -> None:
        """Wait until the host has imported its modules.

        Raises:
            InstrumentError: it cannot; no process is left.
        """
        try:
            self._read_readiness()
        except BaseException:
            self._process.kill()  # it may be in the middle of a long import
            self.close()
            raise
        self._ready = True

    def _read_readiness(self) -> None:
        with self._control.makefile("rb") as stream:
            line = stream.readline()
        message = json.loads(line) if line.endswith(b"\n") else {"kind": "dead"}
        if message["kind"] == "ready":
            if message["threads"]:
                logger.warning("the fork host has started threads: %s", message["threads"])
            return
        if message["kind"] == "broken":
            raise InstrumentError(
                f"starting the fork host: importing {message['module']} failed with "
                f"{message['error']}, see {self.log_path}. Install what is missing and run again."
            )
        raise InstrumentError(f"the fork host ended while it was starting, see {self.log_path}")


class Host(Protocol):
    """What `tasks.gpu.launch` needs of a fork host."""

    def alive(self) -> bool:
        """Say whether jobs sent to it can still be alive."""
        ...


_HOSTS: Final[dict[tuple[tuple[str, ...], int], ForkHost]] = {}
_HOSTS_LOCK = threading.Lock()


def host_for(preload: tuple[str, ...], threads: int, log_dir: Path) -> ForkHost:
    """Return the living host for these modules and threads; start one if there is none.

    Raises:
        InstrumentError: a module cannot be imported; it is named.
    """
    with _HOSTS_LOCK:
        host = _HOSTS.get((preload, threads))
        if host is None or not host.alive():
            host = ForkHost(preload, threads, log_dir)
            host.await_ready()
            _HOSTS[preload, threads] = host
        return host


def close_hosts() -> None:
    """End the hosts and with them every job; the next `launch` starts a new host."""
    with _HOSTS_LOCK:
        for host in _HOSTS.values():
            host.close()
        _HOSTS.clear()


def _forget_in_child() -> None:
    global _HOSTS_LOCK
    _HOSTS_LOCK = threading.Lock()
    for host in _HOSTS.values():
        host.forget()
    _HOSTS.clear()


os.register_at_fork(after_in_child=_forget_in_child)
atexit.register(close_hosts)
