from __future__ import annotations

import json
import logging
import os
import signal
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from dynamicrubric.errors import InstrumentError
from tasks import gpu
from tasks.gpu import StepCrashed, launch
from tasks.sharedhost import SOCKET_NAME, VARIABLE, shared_host


@pytest.fixture
def run(bench, tmp_path):
    return partial(
        launch,
        log_path=tmp_path / "job.log",
        deadline_seconds=600,
        slots_dir=tmp_path / "slots",
        num_slots=3,
        what="a job",
        grace_seconds=1.0,
    )


@pytest.fixture
def host(tmp_path):
    with shared_host((), 1, tmp_path / "locks") as host:
        yield host


@pytest.fixture(scope="module", autouse=True)
def own_hosts():
    yield
    gpu.close_hosts()


CELL = """
import sys
from pathlib import Path
from tasks import gpu
folder, name = Path(sys.argv[1]), sys.argv[2]
paths = {"pid_path": str(folder / name), "grandchild_path": str(folder / f"{name}-grandchild")}
gpu.launch("jobs:sleep_with_grandchild", paths, log_path=folder / f"{name}.log",
           deadline_seconds=600, slots_dir=folder / "slots", num_slots=3, what=name)
"""
DRIVER = """
import subprocess, sys
from pathlib import Path
from tasks.sharedhost import shared_host
cell, folder = sys.argv[1:]
with shared_host((), 1, Path(folder) / "locks") as host:
    cells = [subprocess.Popen([sys.executable, "-c", cell, folder, name]) for name in "ab"]
    for cell in cells:
        (Path(folder) / "part").write_text(f"{host.pid} {cells[0].pid} {cells[1].pid}")
        (Path(folder) / "part").rename(Path(folder) / "pids")
        cell.wait()
"""


@pytest.fixture
def study(bench, tmp_path):
    """A driver with two cells, each with a job that has a child: (driver, host, cells, jobs)."""
    driver = bench.python(DRIVER, CELL, tmp_path)
    jobs = [bench.pid_in(tmp_path / name) for name in ("a", "b", "a-grandchild", "b-grandchild")]
    pids = tmp_path / "pids"
    bench.wait_for(pids.exists, "the pids of host and cells")
    host, *cells = map(int, pids.read_text().split())
    yield driver, host, cells, jobs
    for pid in [*cells, host]:
        if bench.alive(pid):
            with suppress(ProcessLookupError):  # it may end in between
                os.kill(pid, signal.SIGKILL)


@contextmanager
def short(path: Path) -> Iterator[str]:
    """Name a socket file as briefly as the kernel wants it, however deep pytest's folders are."""
    folder = os.open(path.parent, os.O_PATH)
    yield f"/proc/self/fd/{folder}/{path.name}"
    os.close(folder)


def connect(caller: socket.socket) -> None:
    """Connect to the shared host of this process."""
    with short(Path(os.environ[VARIABLE])) as name:
        caller.connect(name)


def parent_of(facts: Path) -> int:
    return int(json.loads(facts.read_text())["parent"])


def test_shared_host_serves_several_launches_and_ends_with_its_context(run, bench, tmp_path):
    with shared_host((), 1, tmp_path / "locks") as host:
        for number in range(2):
            run("jobs:report_environment", {"path": str(tmp_path / f"{number}")})
        assert os.environ[VARIABLE]
    assert parent_of(tmp_path / "0") == parent_of(tmp_path / "1") == host.pid
    assert not bench.alive(host.pid)
    assert VARIABLE not in os.environ
    assert not (tmp_path / "locks" / SOCKET_NAME).exists()


def test_shared_host_preloads_while_the_launch_waits(run, tmp_path):
    with shared_host(("xml.dom.minidom",), 1, tmp_path / "locks") as host:
        path = tmp_path / "facts"
        run("jobs:report_environment", {"path": str(path)}, preload=["xml.dom.minidom"])
    assert json.loads(path.read_text())["preloaded"]
    assert parent_of(path) == host.pid


def test_shared_host_that_imports_more_than_needed_is_used(run, tmp_path):
    with shared_host(("xml.dom.minidom", "json"), 1, tmp_path / "locks") as host:
        run("jobs:report_environment", {"path": str(tmp_path / "facts")}, preload=["json"])
    assert parent_of(tmp_path / "facts") == host.pid


def test_shared_host_socket_is_for_its_user_only_whatever_the_path_length(run, tmp_path):
    folder = tmp_path / ("long" * 30)
    with shared_host((), 1, folder) as host:
        assert stat.S_IMODE((folder / SOCKET_NAME).stat().st_mode) == 0o600
        run("jobs:report_environment", {"path": str(tmp_path / "facts")})
    assert parent_of(tmp_path / "facts") == host.pid


def test_shared_host_replaces_the_socket_of_a_killed_study(run, tmp_path):
    (tmp_path / "locks").mkdir()
    with (
        socket.socket(socket.AF_UNIX) as old,
        short(tmp_path / "locks" / SOCKET_NAME) as name,
    ):
        old.bind(name)
    with shared_host((), 1, tmp_path / "locks") as host:
        run("jobs:report_environment", {"path": str(tmp_path / "facts")})
    assert parent_of(tmp_path / "facts") == host.pid


def test_shared_host_job_has_the_environment_of_its_own_launch(run, host, tmp_path, monkeypatch):
    for value in ("first", "second"):
        monkeypatch.setenv("EXTRA", value)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        run("jobs:report_environment", {"path": str(tmp_path / value)})
        facts = json.loads((tmp_path / value).read_text())
        assert (facts["extra"], facts["devices"], facts["parent"]) == (value, value, host.pid)
    monkeypatch.delenv("EXTRA")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    run("jobs:report_environment", {"path": str(tmp_path / "third")}, devices=["x", "y", "z"])
    facts = json.loads((tmp_path / "third").read_text())
    assert (facts["extra"], facts["devices"]) == (None, "x")


def test_shared_host_jobs_hold_no_socket_but_their_own(run, host, bench, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(run, "jobs:sleep_natively", {"pid_path": str(tmp_path / "pid")})
        bench.pid_in(tmp_path / "pid")
        with socket.socket(socket.AF_UNIX) as silent:
            connect(silent)
            assert b"hello" in silent.recv(4096)
            run("jobs:report_sockets", {"path": str(tmp_path / "sockets")})
        gpu.stop_all()
        assert other.exception(timeout=bench.patience) is not None
    assert (tmp_path / "sockets").read_text() == "1"


def test_shared_host_half_a_job_from_a_dying_caller_starts_nothing(run, host, tmp_path):
    with socket.socket(socket.AF_UNIX) as dying:
        connect(dying)
        dying.sendall(b'{"target": "jobs:kill')
    run("jobs:report_environment", {"path": str(tmp_path / "facts")})
    assert parent_of(tmp_path / "facts") == host.pid


def test_shared_host_nonsense_from_a_caller_ends_no_other_job(run, host, bench, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(run, "jobs:sleep_natively", {"pid_path": str(tmp_path / "pid")})
        job = bench.pid_in(tmp_path / "pid")
        with socket.socket(socket.AF_UNIX) as caller:
            connect(caller)
            caller.sendall(b"nonsense\n")
            with caller.makefile("rb") as stream:
                assert [b"hello" in line or b"exited" in line for line in stream] == [True, True]
        assert bench.alive(job)
        gpu.stop_all()
        assert other.exception(timeout=bench.patience) is not None


@pytest.mark.parametrize(
    ("wanted", "difference"),
    [({"threads": 2}, "another threads"), ({"preload": ["json"]}, "not imported json")],
)
def test_launch_that_needs_another_host_takes_its_own(
    run, host, tmp_path, caplog, wanted, difference
):
    with caplog.at_level(logging.WARNING):
        run("jobs:report_environment", {"path": str(tmp_path / "facts")}, **wanted)
    assert parent_of(tmp_path / "facts") != host.pid
    assert f"one of our own: it has {difference}" in caplog.text


def test_launch_when_the_shared_host_is_gone_takes_its_own(run, host, bench, tmp_path, caplog):
    os.kill(host.pid, signal.SIGKILL)
    bench.wait_for(lambda: not host.alive(), "the host's end")
    with caplog.at_level(logging.WARNING):
        run("jobs:report_environment", {"path": str(tmp_path / "facts")})
    assert parent_of(tmp_path / "facts") != host.pid
    assert "one of our own" in caplog.text


def test_launch_when_the_shared_host_cannot_import_names_the_module(run, tmp_path):
    with (
        shared_host(("no_such_preload",), 1, tmp_path / "locks"),
        pytest.raises(InstrumentError, match="no_such_preload"),
    ):
        run("jobs:kill_itself", {}, preload=["no_such_preload"])


def test_shared_host_killed_under_a_job_is_a_crash_that_says_so(run, host, bench, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run, "jobs:sleep_natively", {"pid_path": str(tmp_path / "pid")})
        job = bench.pid_in(tmp_path / "pid")
        os.kill(host.pid, signal.SIGKILL)
        with pytest.raises(StepCrashed, match="fork host ended"):
            future.result(timeout=bench.patience)
    bench.gone(job)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_driver_killed_ends_host_and_all_jobs(study, bench, number):
    driver, host, _, jobs = study
    assert all(map(bench.alive, jobs))
    driver.send_signal(number)
    for pid in [host, *jobs]:
        bench.gone(pid)


def test_cell_killed_ends_its_job_alone(study, bench):
    _, host, cells, (job_a, job_b, grandchild_a, grandchild_b) = study
    os.kill(cells[0], signal.SIGKILL)
    bench.gone(job_a)
    bench.gone(grandchild_a)
    assert all(map(bench.alive, (host, cells[1], job_b, grandchild_b)))


def test_cell_stopped_half_way_holds_up_no_other(study, bench, run, tmp_path, monkeypatch):
    _, host, cells, _ = study
    os.kill(cells[0], signal.SIGSTOP)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "locks" / SOCKET_NAME))
    run("jobs:report_environment", {"path": str(tmp_path / "facts")})
    assert parent_of(tmp_path / "facts") == host
