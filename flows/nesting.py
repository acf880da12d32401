"""Shows the flow of a stage's command inside the study that runs it, though DVC stands between.

The study's task for the stage hands its id down in the environment. The command's flow run is made
as a child of that task run, so it appears in the study's graph and among its subflows.
"""

from __future__ import annotations

import os
from typing import Final, TypeVar
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas import FlowRun
from prefect.context import TagsContext
from prefect.exceptions import PrefectException
from prefect.flow_engine import run_flow
from prefect.states import Pending

from flows.stages import TASK_RUN

T = TypeVar("T")
_TROUBLE: Final = (PrefectException, httpx.HTTPError, OSError)


def run_nested(flow: Flow[..., T], **arguments: str | bool) -> None:
    """Run a stage's flow, under the study's task that runs it if there is one."""
    parent = os.environ.get(TASK_RUN)
    made = _make_run(flow, arguments, UUID(parent)) if parent else None
    if made is None:
        flow(**arguments)
    else:
        run_flow(flow, flow_run=made)


def _make_run(flow: Flow[..., T], arguments: dict[str, str | bool], parent: UUID) -> FlowRun | None:
    """Make the flow's run; None if the server has no such task (yet): then it stands alone."""
    try:
        with get_client(sync_client=True) as client:
            return client.create_flow_run(
                flow,
                parameters=arguments,
                parent_task_run_id=parent,
                tags=TagsContext.get().current_tags,
                state=Pending(),
            )
    except _TROUBLE:
        return None
