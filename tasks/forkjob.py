"""What a forked child does: own session, own log, a slot, then one function."""

from __future__ import annotations

import faulthandler
import importlib
import json
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from dynamicrubric.errors import InstrumentError, UserError
from tasks.disk import disk_error
from tasks.locks import SlotLock
from tasks.process import die_with_parent


def run_job(job: Mapping[str, Any], channel: socket.socket, host_pid: int) -> NoReturn:
    """Run one job in this newly forked process and end the process."""
    code = 1
    try:
        os.setsid()
        die_with_parent(host_pid)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = _run_reporting(job, channel)
    finally:
        # Not sys.exit: this is a copy of the host, whose clean-up is not ours to run.
        os._exit(code)


def _run_reporting(job: Mapping[str, Any], channel: socket.socket) -> int:
    try:
        _open_log(Path(job["log_path"]), f"{job['what']}: {job['target']}")
        _tell(channel, kind="started", pid=os.getpid())
        _prepare(job)
        returned = _run(job, channel)
        outcome: dict[str, Any] = {"result": "ok", "returned": returned}
    except BaseException as error:  # the boundary: everything becomes a message and a log entry
        with suppress(OSError):  # a full disk takes no traceback; the parent is told all the same
            traceback.print_exc()
        outcome = outcome_of(error, f"running {job['what']}")
    with suppress(OSError):
        _flush_log()
    _tell(channel, kind="outcome", **outcome)
    return 0 if outcome["result"] == "ok" else 1


def _run(job: Mapping[str, Any], channel: socket.socket) -> int | None:
    lock = SlotLock.at([Path(path) for path in job["locks"]])

    def on_wait(holders: str) -> None:
        _tell(channel, kind="waiting", holders=holders)

    with ExitStack() as stack:
        held = stack.enter_context(lock.acquire(job["what"], on_wait=on_wait, owns_session=True))
        for path in job["more_locks"][held.slot] if job["more_locks"] else ():
            one = SlotLock.at([Path(path)])
            stack.enter_context(one.acquire(job["what"], on_wait=on_wait, owns_session=True))
        if job["devices"]:
            os.environ["CUDA_VISIBLE_DEVICES"] = job["devices"][held.slot]
        _tell(channel, kind="acquired", slot=held.slot)
        function = find_function(job["target"])
        returned = function(**job["kwargs"])
    return returned if isinstance(returned, int) else None


def find_function(target: str) -> Callable[..., object]:
    """Return the function that "package.module:function" names."""
    module_name, _, name = target.partition(":")
    function = getattr(importlib.import_module(module_name), name)
    if not callable(function):
        raise TypeError(f"{target} is not a function")
    found: Callable[..., object] = function
    return found


def _open_log(path: Path, title: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    for number, name in ((1, "stdout"), (2, "stderr")):
        # New objects, unclosed until the process ends: the host's may hold text in their buffers.
        setattr(sys, name, os.fdopen(number, "w", 1, "utf-8", "backslashreplace", closefd=False))
    faulthandler.enable(sys.stderr)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    print(f"--- {now} process {os.getpid()} {title}")


def _flush_log() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.fsync(1)


def _prepare(job: Mapping[str, Any]) -> None:
    os.chdir(job["cwd"])
    sys.path[:] = job["sys_path"]
    for name in os.environ.keys() - job["env"].keys():
        del os.environ[name]
    os.environ.update(job["env"])  # the caller's, not the host's
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(job["threads"])


def outcome_of(error: BaseException, doing: str) -> dict[str, Any]:
    """Return what a job says about the error that ended it."""
    if isinstance(error, UserError):
        fields = {name: getattr(error, name) for name in ("doing", "got", "expected", "remedy")}
        return {"result": "user_error", "fields": fields}
    if isinstance(error, InstrumentError):
        return {"result": "instrument_error", "message": str(error)}
    explained = disk_error(error, doing)
    if explained is not None:
        return outcome_of(explained, doing)
    return {"result": "crashed", "message": f"{type(error).__name__}: {error}"}


def _tell(channel: socket.socket, **message: object) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")
