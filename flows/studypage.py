"""The page of a study's run in the Prefect UI: its cells, how far each is, where each is shown.

An artifact of the flow run that is written anew while the study goes on. Trouble with it stops
nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.exceptions import PrefectException
from prefect.utilities.urls import url_for

from dynamicrubric.plan import Plan
from flows.progress import MARKS, Progress
from tasks.study import Study
from tasks.trackerpages import Links, TrackerPages

logger = logging.getLogger(__name__)

KEY: Final = "study"
UPDATE_SECONDS: Final = 10.0
_PAGE: Final = 200
_TROUBLE: Final = (PrefectException, httpx.HTTPError, OSError)


@contextmanager
def study_page(study: Study, progress: Progress, flow_run: UUID) -> Iterator[None]:
    """Keep the page of a flow run up to date for the body, in a thread."""
    done = threading.Event()
    page = _Page(study, progress, flow_run)
    thread = threading.Thread(target=page.follow, args=(done,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class _Page:
    def __init__(self, study: Study, progress: Progress, flow_run: UUID) -> None:
        self._plan = study.plan
        self._progress = progress
        self._flow_run = flow_run
        self._tracker = TrackerPages(study.plan, study.root)
        self._artifact: UUID | None = None
        self._shown = ""

    def follow(self, done: threading.Event) -> None:
        with get_client(sync_client=True) as client:
            while not done.is_set():
                self._show(client)
                done.wait(UPDATE_SECONDS)
            self._show(client, last=True)

    def _show(self, client: SyncPrefectClient, *, last: bool = False) -> None:
        try:
            rounds = _flow_runs(client, self._flow_run)
            links = self._tracker.links(now=last)
            text = page_text(self._plan, self._progress, rounds, links)
            if text != self._shown:
                self._write(client, text)
                self._shown = text
        except _TROUBLE as error:
            logger.warning("the study's page is not up to date: %s", error)

    def _write(self, client: SyncPrefectClient, text: str) -> None:
        if self._artifact is not None:
            client.update_artifact(self._artifact, ArtifactUpdate(data=text))
            return
        artifact = ArtifactCreate(
            key=KEY,
            type="markdown",
            description="Cells of the study",
            data=text,
            flow_run_id=self._flow_run,
        )
        self._artifact = client.create_artifact(artifact).id


def _flow_runs(client: SyncPrefectClient, parent: UUID) -> dict[str, str]:
    """Return the addresses of the flow runs of cells under a study's, by name."""
    wanted = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[parent]))
    found: dict[str, str] = {}
    seen = 0
    while runs := client.read_flow_runs(flow_run_filter=wanted, limit=_PAGE, offset=seen):
        seen += len(runs)
        found |= {run.name: str(url_for("flow-run", obj_id=run.id)) for run in runs}
    return found


def page_text(plan: Plan, progress: Progress, rounds: Mapping[str, str], tracker: Links) -> str:
    """Return the page as markdown: how far the study is, then a row a cell.

    Args:
        plan: the lattice.
        progress: the state of each stage.
        rounds: addresses of the cells' flow runs in this study.
        tracker: the cells' runs in the tracker.
    """
    lines = [
        progress.summary(),
        *(f"- {line}" for line in progress.doing()),
        "",
        "| cell | arms | state | round | MLflow |",
        "| --- | --- | --- | --- | --- |",
    ]
    states = progress.states()
    for name, state in states.items():
        kind, _, key = name.partition("@")
        if kind not in ("round", "start"):
            continue
        runs = [f"[{title}]({address})" for title, address in tracker.get(key, ())]
        flow = f"[flow run]({rounds[key]})" if key in rounds else ""
        arms = ", ".join(plan.arms_of(key))
        lines.append(f"| {key} | {arms} | {MARKS[state]} {state} | {flow} | {', '.join(runs)} |")
    return "\n".join(lines) + "\n"
