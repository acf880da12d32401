"""What all cells start from: prepared data and warm starts. DVC runs each as a stage."""

from __future__ import annotations

from prefect import flow

from flows.lookup import check_role
from tasks.gpu import children_end_first
from tasks.shared_steps import prepare, warm_start
from tasks.study import Study


@flow(name="prepare", persist_result=False)
def run_prepare() -> None:
    """Write the world's data and train its tokenizer."""
    with children_end_first():
        prepare(Study.here())


@flow(name="warm_start", flow_run_name="warm-start-{role}", persist_result=False)
def run_warm_start(role: str) -> None:
    """Train P_0 or G_0.

    Args:
        role: `policy` or `generator`.

    Raises:
        UserError: it is neither.
    """
    study = Study.here()
    check_role(study, role)
    with children_end_first():
        warm_start(study, role)
