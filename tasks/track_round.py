"""Task: show a finished round in MLflow and on the run's page in the Prefect UI."""

from __future__ import annotations

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.logging import get_run_logger

from dynamicrubric.plan import Cell
from dynamicrubric.report.cellfiles import load_cell
from dynamicrubric.report.samples import rubric_samples
from tasks.shipjob import ship
from tasks.study import Study


@task(task_run_name="track_round")
def track_round(study: Study, cell: Cell, metrics: dict[str, float | None]) -> str | None:
    """Ship the round to MLflow, and its table and sample rubrics to Prefect.

    Returns:
        Why the tracker did not take it, or None: tracking trouble never stops a study.
    """
    outcome = ship(study, cell.key)
    if not outcome.ok:
        get_run_logger().warning("%s (shipped later, with the comparison)", outcome.reason)
    slug = cell.key.replace("_", "-")
    files = load_cell(study.root, cell)
    create_table_artifact(
        key=f"{slug}-metrics",
        table=[
            {
                "metric": name,
                "value": None if found.value is None else round(found.value, 4),
                "n_scored": found.n_scored,
                "n_total": found.n_total,
            }
            for name, found in files.round_metrics().items()
        ],
        description=f"Held-out figures of {cell.key} ({', '.join(study.plan.arms_of(cell.key))})",
    )
    create_markdown_artifact(
        key=f"{slug}-rubrics",
        markdown=rubric_samples(files),
        description=f"Sample rubrics of {cell.key}",
    )
    return None if outcome.ok else outcome.reason
