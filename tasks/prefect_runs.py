"""Flow runs on the Prefect server: whose they are, and those that a killed process left behind.

The server may be one that others use too (PREFECT_API_URL), so our runs carry tags that name the
project, the host and the process, and nothing without them is ever touched.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prefect import tags
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import Crashed

from tasks.process import machine_id, start_ticks

logger = logging.getLogger(__name__)

_PROCESS: Final = "process:"
_PAGE: Final = 100


@contextmanager
def runs_of(root: Path) -> Iterator[None]:
    """Tag the runs that the body starts as this process's, of the project at `root`."""
    with tags(*process_tags(root)):
        yield


def process_tags(root: Path) -> tuple[str, ...]:
    """Return the tags of this process's runs, of the project at `root`."""
    pid = os.getpid()
    return (*place_tags(root), f"{_PROCESS}{machine_id()}/{pid}/{start_ticks(pid)}")


def close_dead_runs(root: Path) -> int:
    """Mark the project's runs whose process is gone as crashed; return how many.

    A killed process tells nobody, so the server still shows its runs as running.
    """
    with get_client(sync_client=True) as client:
        dead = [run for run in _open_runs(client, root) if _is_dead(run.tags)]
        for run in dead:
            state: State[object] = Crashed(message="its process ended without a word")
            client.set_flow_run_state(run.id, state=state, force=True)
    if dead:
        logger.info("%d runs of killed processes are marked as crashed", len(dead))
    return len(dead)


def place_tags(root: Path) -> tuple[str, str]:
    """Return the tags of a project, whoever starts its runs."""
    return f"project:{root.resolve()}", f"host:{socket.gethostname()}"


def _open_runs(client: SyncPrefectClient, root: Path) -> list[FlowRun]:
    """Return the project's runs on this host that are not said to have ended."""
    wanted = FlowRunFilter(
        tags=FlowRunFilterTags(all_=list(place_tags(root))),
        state=FlowRunFilterState(
            type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])
        ),
    )
    found: list[FlowRun] = []
    while page := client.read_flow_runs(flow_run_filter=wanted, limit=_PAGE, offset=len(found)):
        found += page
    return found


def _is_dead(run_tags: Iterable[str]) -> bool:
    """Say whether the processes that a run's tags name are certainly gone.

    A run that was started again from the UI names one for each attempt.
    """
    processes = [tag for tag in run_tags if tag.startswith(_PROCESS)]
    return bool(processes) and all(map(_is_gone, processes))


def _is_gone(tag: str) -> bool:
    boot, namespace, pid, started = tag.removeprefix(_PROCESS).split("/")
    our_boot, our_namespace = machine_id().split("/")
    if boot != our_boot:
        return True  # the machine was started anew since then
    # Pids of another container on this machine mean nothing here: it may well be alive.
    return namespace == our_namespace and str(start_ticks(int(pid))) != started
