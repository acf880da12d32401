"""The G x P grid of one seed: one measurement, after the rounds that it reads.

Command: `python -m flows grid s1` (DVC runs it, one stage a seed).
"""

from __future__ import annotations

from prefect import flow

from dynamicrubric.errors import UserError
from dynamicrubric.grid import NEEDS, planned_grids
from tasks.evaluate_grid import evaluate_grid
from tasks.gpu import children_end_first
from tasks.study import StepResult, Study


@flow(name="grid", flow_run_name="grid-{key}", persist_result=False)
def run_grid(key: str) -> StepResult:
    """Measure each generator on each policy's held-out responses.

    Args:
        key: a grid of cells.yaml, such as `s1`.

    Raises:
        UserError: there is no such grid.
    """
    study = Study.here()
    grids = planned_grids(study.plan)
    if key not in grids:
        raise UserError(
            doing="running the flow `grid`",
            got=repr(key),
            expected=f"one of {', '.join(grids)}" if grids else f"a plan with {NEEDS}",
            remedy="run `dynamicrubric plan` if params.yaml was changed",
        )
    with children_end_first():
        return evaluate_grid(study, grids[key])
