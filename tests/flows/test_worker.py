"""What a worker starts: the study that DVC makes, its pages nested, and ended with the worker."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.settings import PREFECT_API_URL, temporary_settings

from dynamicrubric.yamlio import load_yaml
from flows.driver import lock_path
from tasks.locks import read_lease, try_exclusive
from tasks.study import Study

pytestmark = pytest.mark.slow
Wait = Callable[..., Any]
WORKER = (sys.executable, "-m", "flows", "worker")


@contextmanager
def working(project: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a worker for the body; `kill` ends it as Ctrl-C does.

    Not SIGINT: what a script starts in the background ignores that, these tests perhaps too.
    """
    worker = project.start(*WORKER, output=None)
    try:
        yield worker
    finally:
        if worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
            worker.wait(1800)  # a bound for a failure


@pytest.fixture
def client(server: str) -> Iterator[Any]:
    with temporary_settings({PREFECT_API_URL: server}), get_client(sync_client=True) as found:
        yield found
        for name in ("ablation", "round", "compare"):  # one server for the projects of all tests
            deployment = client_deployment(found, name)
            found.delete_deployment(deployment)


def client_deployment(client: Any, name: str) -> UUID:
    found: UUID = client.read_deployment_by_name(f"study/{name}").id
    return found


def start(client: Any, name: str, **parameters: Any) -> UUID:
    run = client.create_flow_run_from_deployment(
        client_deployment(client, name), parameters=parameters
    )
    found: UUID = run.id
    return found


def ended(client: Any, run: UUID) -> Any:
    state = client.read_flow_run(run).state
    return state if state.is_final() else None


def shape(path: Path) -> dict[str, Any]:
    """Return what dvc.lock says of each stage but for hashes: files have wall-clock times."""
    stages = load_yaml(path)["stages"]
    return {
        name: {
            "cmd": stage["cmd"],
            "params": stage.get("params"),
            "paths": [entry["path"] for kind in ("deps", "outs") for entry in stage.get(kind, [])],
        }
        for name, stage in stages.items()
    }


def test_run_by_a_worker_is_the_study_that_dvc_makes_and_a_second_is_skipped(
    prepared: Any, finished: Any, client: Any, tmp_path: Path, wait: Wait
) -> None:
    project = prepared.copy(tmp_path / "project")
    project.flow("deploy")
    with working(project):
        first = start(client, "ablation", arms=["coevolved", "frozen"], seeds=[1], rounds=1)
        lock = lock_path(Study(project.root))
        wait(lambda: lock.exists() and read_lease(lock), "the study to begin")
        second = start(client, "ablation", rounds=2)
        skipped = wait(lambda: ended(client, second), "the second run to end")
        state = wait(lambda: ended(client, first), "the study to end")
    assert skipped.is_cancelled()
    assert "that Prefect runs as" in skipped.message
    log = (project.root / "work" / "logs" / "prefect-worker.log").read_text()
    assert "Traceback" not in log
    assert state.is_completed(), state.message
    assert shape(project.root / "dvc.lock") == shape(finished.root / "dvc.lock")
    for cell in ("coevolved-s1-r1", "frozen-s1-r1"):
        for part in ("responses", "generator", "policy", "evaluation"):
            ours, dvcs = (p.record(f"data/runs/{cell}/{part}") for p in (project, finished))
            assert ours["content_hash"] == dvcs["content_hash"]
    assert "up to date" in project.run(sys.executable, "-m", "dvc", "status")
    children = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[first]))
    )
    assert {"coevolved-s1-r1", "frozen-s1-r1", "coevolved-s1-r0"} <= {c.name for c in children}


def test_runs_end_with_a_worker_that_is_killed_outright(
    prepared: Any, client: Any, tmp_path: Path, wait: Wait, is_running: Callable[[int], bool]
) -> None:
    project = prepared.copy(tmp_path / "project")
    project.flow("deploy")
    lock = lock_path(Study(project.root))
    with working(project) as worker:
        start(client, "ablation")
        lease = wait(lambda: lock.exists() and read_lease(lock), "the study to begin")
        worker.kill()
        worker.wait()
        wait(lambda: not is_running(lease.pid), "the study's process to end")
    # Not at once: a process whose first thread is gone may have others that the kernel still ends,
    # and its descriptors, the lock's among them, are closed with the last.
    held = wait(lambda: try_exclusive(lock, "the next study"), "the killed study's lock to be free")
    held.release()
