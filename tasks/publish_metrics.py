"""Task: what a finished cell says of itself: `cell.json`, `metrics.json` and `training.csv`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from prefect import task

from dynamicrubric.durable import naming
from dynamicrubric.plan import Cell
from dynamicrubric.report.cellfiles import CELL_FILE, CellFiles, find_artefacts
from tasks.study import METRICS_FILE, StepResult, Study

TRAINING_FILE: Final = "training.csv"
CURVES: Final[Mapping[str, tuple[str, str]]] = {
    "policy_reward": ("policy", "reward"),
    "policy_kl": ("policy", "kl"),
    "policy_length": ("policy", "length"),
    "generator_r_disc": ("generator", "r_disc"),
    "generator_r_anchor": ("generator", "r_anchor"),
    "generator_kl": ("generator", "kl"),
    "invalid_rubric_rate": ("generator", "rate/invalid_rubric"),
}
"""Column of training.csv to (role, training metric)."""


@task(task_run_name="publish_metrics")
def publish_metrics(study: Study, cell: Cell, evaluation: StepResult) -> dict[str, float | None]:
    """Write which cell this is, and its metrics and curves for `dvc metrics` and `dvc plots`."""
    files = find_artefacts(study.root, cell)
    assert files is not None, f"{evaluation.path} was finished a moment ago"
    metrics = {name: found.value for name, found in files.round_metrics().items()}
    folder = study.cell_dir(cell)
    if cell.recipe.policy_training is not None:
        _replace(folder / TRAINING_FILE, training_table(files))
    _replace(folder / CELL_FILE, json.dumps(files.document, indent=1) + "\n")
    _replace(folder / METRICS_FILE, json.dumps(metrics, indent=1) + "\n")
    return metrics


def training_table(files: CellFiles) -> str:
    """Return the training curves as CSV, a row a step, every column always there."""
    rows: dict[int, dict[str, float]] = {}
    names = {place: column for column, place in CURVES.items()}
    for found in files.training_steps():
        for metric, value in found.metrics.items():
            column = names.get((found.role, metric))
            if column is not None:
                rows.setdefault(found.step, {})[column] = value
    text = io.StringIO()
    writer = csv.DictWriter(text, ["step", *CURVES], restval="", lineterminator="\n")
    writer.writeheader()
    for step in sorted(rows):
        writer.writerow({"step": step, **rows[step]})
    return text.getvalue()


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with naming(path):
        temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
