"""Jobs for the launcher's tests: what GPU work does, without a GPU; children import them."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dynamicrubric.errors import InstrumentError, UserError


def write_file(path: str, text: str) -> None:
    print("printed to stdout")
    print("printed to stderr", file=sys.stderr)
    logging.getLogger("jobs").info("logged")
    os.write(1, b"written by native code\n")
    Path(path).write_text(text, encoding="utf-8")


def report_environment(path: str) -> None:
    facts = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "leads_its_session": os.getsid(0) == os.getpid(),
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "omp": os.environ.get("OMP_NUM_THREADS"),
        "extra": os.environ.get("EXTRA"),
        "cwd": os.getcwd(),
        "main": getattr(sys.modules["__main__"], "__file__", None),
        "preloaded": "xml.dom.minidom" in sys.modules,
    }
    Path(path).write_text(json.dumps(facts), encoding="utf-8")


def report_sockets(path: str) -> None:
    names = os.listdir("/proc/self/fd")
    links = [
        os.readlink(f"/proc/self/fd/{name}")
        for name in names
        if name.isdigit() and os.path.lexists(f"/proc/self/fd/{name}")
    ]
    Path(path).write_text(str(sum(link.startswith("socket:") for link in links)))


def kill_itself() -> None:
    print("marker before the kill")
    os.kill(os.getpid(), signal.SIGKILL)


def exit_at_once(code: int) -> None:
    os._exit(code)


def raise_user_error() -> None:
    raise UserError(doing="reading a set", got="1 response", expected="2 or more", remedy="set K")


def raise_instrument_error() -> None:
    raise InstrumentError("the verifier is down")


def raise_bug() -> None:
    raise KeyError("no such column")


def raise_disk_full_in_native_words() -> None:
    raise RuntimeError(f"I/O error: {os.strerror(errno.ENOSPC)} (os error 28)")


def sleep_natively(pid_path: str) -> None:
    _announce(pid_path)
    time.sleep(600)


def sleep_deaf_to_sigterm(pid_path: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep_natively(pid_path)


def sleep_with_grandchild(pid_path: str, grandchild_path: str) -> None:
    """Start a process that would outlive this one (an engine), then sleep."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code])
    Path(grandchild_path).write_text(str(child.pid), encoding="utf-8")
    sleep_natively(pid_path)


def die_leaving_grandchild(grandchild_path: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(grandchild_path).write_text(str(child.pid), encoding="utf-8")
    os.kill(os.getpid(), signal.SIGKILL)


def overlap(folder: str) -> None:
    """Fail if another job is in here at the same time; stay until the others are said to wait."""
    inside = Path(folder) / "inside"
    inside.touch(exist_ok=False)
    give_up = time.monotonic() + 240.0
    while not (Path(folder) / "others-wait").exists() and time.monotonic() < give_up:
        time.sleep(0.01)
    inside.unlink()


def _announce(pid_path: str) -> None:
    half_written = Path(pid_path + ".part")
    half_written.write_text(str(os.getpid()), encoding="utf-8")
    half_written.rename(pid_path)


def _rank() -> int:
    return int(os.environ["RANK"])


def report_rank(folder: str) -> None:
    import psutil

    from dynamicrubric.training import processes

    def listening(pid: int) -> list[str]:
        found = psutil.Process(pid).net_connections(kind="inet")
        return [one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN]

    facts = {
        "is_first": processes.is_first(),
        "gathered": processes.gathered([[_rank(), place] for place in range(2)]),
        "from_first": processes.from_first(_rank()),
        "listening": listening(os.getpid()),
        "launcher_listening": listening(os.getppid()),
    }
    processes.wait_for_all()
    Path(folder, f"rank-{_rank()}.json").write_text(json.dumps(facts), encoding="utf-8")


def _wait_for_the_second(folder: str) -> None:
    from dynamicrubric.training import processes

    if _rank() == 0:
        Path(folder, "waiting").write_text(str(os.getpid()), encoding="utf-8")
    processes.wait_for_all()  # both are here
    if _rank() == 0:
        processes.wait_for_all()  # where the second never comes


def fail_on_second(folder: str) -> None:
    _wait_for_the_second(folder)
    raise InstrumentError(f"the verifier is down on process {_rank()}")


def kill_second(folder: str) -> None:
    _wait_for_the_second(folder)
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_ever(folder: str) -> None:
    Path(folder, "launcher").write_text(str(os.getppid()), encoding="utf-8")
    Path(folder, f"pid-{_rank()}").write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(3600)
