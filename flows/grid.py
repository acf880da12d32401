"""The G x P grid of one seed: one measurement, after the rounds that it reads.

Command: `python -m flows grid s1` (DVC runs it, one stage a seed).
"""

from __future__ import annotations

from prefect import flow

from flows.lookup import grid_of
from tasks.evaluate_grid import evaluate_grid
from tasks.gpu import children_end_first
from tasks.study import StepResult, Study


@flow(name="grid", flow_run_name="grid-{key}", persist_result=False)
def run_grid(key: str) -> StepResult:
    """Measure each generator on each policy's held-out responses.

    Args:
        key: a grid of the plan, such as `s1`.

    Raises:
        UserError: there is no such grid.
    """
    study = Study.here()
    grid = grid_of(study, key)
    with children_end_first():
        return evaluate_grid(study, grid)
