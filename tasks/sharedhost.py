"""One fork host for all processes of a study: importing torch and TRL is paid once, not by cell.

The study's driver starts the host, which listens on a socket that only its user can reach, and
names it in an environment variable. A process below connects; the connection is its job's channel,
so a job ends when the process that launched it dies, and all of them when the driver does.
A host that is gone, busy or another than what is needed is no error: one's own takes its place.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tasks.disk import disk_errors
from tasks.hosts import ForkHost, Host, host_for

logger = logging.getLogger(__name__)

VARIABLE: Final = "DYNAMICRUBRIC_FORK_HOST"
THREADS: Final = "DYNAMICRUBRIC_FORK_HOST_THREADS"
SOCKET_NAME: Final = "forkhost.sock"
IMPORT_SECONDS: Final = 180.0
"""How long to wait for a host that is still importing."""


@contextmanager
def shared_host(preload: Sequence[str], threads: int, folder: Path) -> Iterator[ForkHost]:
    """Share a fork host with all processes started in the body; it imports meanwhile.

    Args:
        preload: modules that it imports.
        threads: CPU threads of its jobs.
        folder: gets the socket and the log; nobody else shares a host there at the same time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = (folder / SOCKET_NAME).absolute()
    hello = _description(tuple(preload), threads)
    with _listening(path) as listener:
        host = ForkHost(tuple(preload), threads, folder, listener=listener, hello=hello)
    os.environ.update({VARIABLE: str(path), THREADS: str(threads)})
    try:
        yield host
    finally:
        del os.environ[VARIABLE], os.environ[THREADS]
        path.unlink(missing_ok=True)
        host.close()


def is_shared() -> bool:
    """Say whether this process was given a shared host."""
    return bool(os.environ.get(VARIABLE))


def shared_threads() -> int | None:
    """Return the CPU threads of the shared host's jobs; None if this process was given no host."""
    threads = os.environ.get(THREADS)
    return int(threads) if is_shared() and threads else None


def open_channel(
    preload: tuple[str, ...], threads: int, log_dir: Path
) -> tuple[Host, socket.socket]:
    """Return a fork host, shared or our own, and a socket for one job.

    Raises:
        InstrumentError: a module cannot be imported; it is named.
    """
    path = os.environ.get(VARIABLE)
    if path:
        try:
            return _CONNECTED, _connect(Path(path), _description(preload, threads))
        except (OSError, ValueError) as error:
            logger.warning("not the study's fork host but one of our own: %s", error)
    host = host_for(preload, threads, log_dir)
    return host, host.open_channel()


class _ConnectedHost:
    """A host that is not our child: its end shows in the closed socket."""

    def alive(self) -> bool:
        return True


_CONNECTED: Final = _ConnectedHost()


def _description(preload: tuple[str, ...], threads: int) -> dict[str, Any]:
    """Return what has to fit for a host to stand in for one's own: it may import more."""
    code = str(Path(__file__).resolve().parent)
    return {"preload": list(preload), "threads": threads, "python": sys.executable, "code": code}


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """Listen on a socket file that only our user can connect to."""
    path.unlink(missing_ok=True)  # of a killed study
    with socket.socket(socket.AF_UNIX) as listener:
        with disk_errors("sharing the fork host", path), _short(path) as name:
            listener.bind(name)
        path.chmod(0o600)  # before `listen`, so nobody was let in
        listener.listen()
        yield listener


def _connect(path: Path, wanted: dict[str, Any]) -> socket.socket:
    """Connect to a shared host once it has imported its modules.

    Raises:
        OSError: it is gone, or does not answer.
        ValueError: it is another host than the one wanted.
    """
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.settimeout(IMPORT_SECONDS)
        with _short(path) as name:
            channel.connect(name)
        line = bytearray()
        while not line.endswith(b"\n"):  # it says one line, then waits for the job
            data = channel.recv(4096)
            if not data:
                raise ConnectionResetError("it ended before it was ready")
            line += data
        hello = json.loads(line)
        missing = set(wanted.pop("preload")) - set(hello.pop("preload"))
        different = [key for key, value in wanted.items() if hello.get(key) != value]
        if missing or different:
            raise ValueError(f"it has {_in_words(missing, different)}")
        if hello["threads_started"]:
            logger.warning("the fork host has started threads: %s", hello["threads_started"])
        channel.settimeout(None)
    except BaseException:
        channel.close()
        raise
    return channel


def _in_words(missing: set[str], different: list[str]) -> str:
    lacks = [f"not imported {name}" for name in sorted(missing)]
    return ", ".join(lacks + [f"another {name}" for name in different])


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Name a socket file in fewer than 108 bytes, which is all that the kernel takes."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        with suppress(OSError):
            os.close(folder)
