"""Flow runs that a killed process left behind in the Prefect server."""

from __future__ import annotations

import logging

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import State, StateType
from prefect.states import Crashed

logger = logging.getLogger(__name__)


def close_dead_runs() -> int:
    """Mark runs that the server still shows as running as crashed; return how many.

    A killed process tells nobody. Whoever calls this holds the study's lock, so that no run of this
    study's server can be alive.
    """
    alive = FlowRunFilter(
        state=FlowRunFilterState(
            type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])
        )
    )
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(flow_run_filter=alive)
        for run in runs:
            state: State[object] = Crashed(message="its process ended without a word")
            client.set_flow_run_state(run.id, state=state, force=True)
    if runs:
        logger.info("%d runs of killed processes are marked as crashed", len(runs))
    return len(runs)
