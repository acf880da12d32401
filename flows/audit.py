"""The audit of one seed: one measurement, after the rounds that it reads.

Command: `python -m flows audit s1` (DVC runs it, one stage a seed).
"""

from __future__ import annotations

from prefect import flow

from flows.lookup import audit_of
from tasks.audit_checkpoints import audit_checkpoints
from tasks.gpu import children_end_first
from tasks.study import StepResult, Study


@flow(name="audit", flow_run_name="audit-{key}", persist_result=False)
def run_audit(key: str) -> StepResult:
    """Measure the generators of a seed on their policies' held-out responses.

    Args:
        key: an audit of the plan, such as `s1`.

    Raises:
        UserError: there is no such audit.
    """
    study = Study.here()
    audit = audit_of(study, key)
    with children_end_first():
        return audit_checkpoints(study, audit)
