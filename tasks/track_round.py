"""Task: show a finished round in MLflow and on the run's page in the Prefect UI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import httpx
from prefect import task
from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_table_artifact,
)
from prefect.exceptions import PrefectException
from prefect.logging import get_run_logger

from dynamicrubric.plan import Cell
from dynamicrubric.report.cellfiles import CellFiles, load_cell
from dynamicrubric.report.samples import rubric_samples
from tasks.shipjob import ship
from tasks.study import Study
from tasks.trackerpages import run_address

_PAGE_TROUBLE: Final = (PrefectException, httpx.HTTPError, OSError, RuntimeError)
"""What a Prefect server that is away, busy or of another version looks like. RuntimeError: the
temporary one that Prefect starts itself did not answer in time."""


@task(task_run_name="track_round")
def track_round(study: Study, cell: Cell, metrics: dict[str, float | None]) -> str | None:
    """Ship the round to MLflow, and its table, sample rubrics and a link there to Prefect.

    Returns:
        Why the tracker did not take it, or None: tracking trouble never stops a study.
    """
    outcome = ship(study, cell.key)
    if not outcome.ok:
        get_run_logger().warning("%s (shipped later, with the comparison)", outcome.reason)
    arms = study.plan.arms_of(cell.key)
    links = [run_address(study.root, run_id) for run_id in outcome.run_ids]
    _show(cell, arms, load_cell(study.root, cell), links)
    return None if outcome.ok else outcome.reason


def _show(cell: Cell, arms: tuple[str, ...], files: CellFiles, links: Sequence[str]) -> None:
    """Put the round's table, rubrics and MLflow runs on its page; trouble with it stops nothing."""
    slug = cell.key.replace("_", "-")
    table = [
        {
            "metric": name,
            "value": None if found.value is None else round(found.value, 4),
            "n_scored": found.n_scored,
            "n_total": found.n_total,
        }
        for name, found in files.round_metrics().items()
    ]
    samples = rubric_samples(files)
    try:
        for arm, link in zip(arms, links, strict=False):  # no links if the tracker is away
            create_link_artifact(
                key=f"{slug}-mlflow-{arm.replace('_', '-')}",
                link=link,
                link_text=f"{cell.key} in MLflow, as a round of {arm}",
                description=f"MLflow run of {cell.key} under {arm}",
            )
        create_table_artifact(
            key=f"{slug}-metrics",
            table=table,
            description=f"Held-out figures of {cell.key} ({', '.join(arms)})",
        )
        create_markdown_artifact(
            key=f"{slug}-rubrics",
            markdown=samples,
            description=f"Sample rubrics of {cell.key}",
        )
    except _PAGE_TROUBLE as error:
        reason = f"{type(error).__name__}: {error}"
        get_run_logger().warning("%s is not on the run's page: %s", cell.key, reason)
