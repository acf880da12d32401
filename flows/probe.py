"""Attacks on the evaluators of one seed, after all rounds.

Command: `python -m flows probe s1` (DVC runs it, one stage a seed).
"""

from __future__ import annotations

from prefect import flow

from flows.lookup import probe_of
from tasks.gpu import children_end_first
from tasks.probe_evaluators import probe_evaluators
from tasks.study import StepResult, Study


@flow(name="probe", flow_run_name="probe-{key}", persist_result=False)
def run_probe(key: str) -> StepResult:
    """Attack the evaluator of every probed cell, and compare it with what is true.

    Args:
        key: a probe of the plan, such as `s1`.

    Raises:
        UserError: there is no such probe.
    """
    study = Study.here()
    probe = probe_of(study, key)
    with children_end_first():
        return probe_evaluators(study, probe)
