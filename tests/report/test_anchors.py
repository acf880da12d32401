"""A study in which nobody knows true quality: ranked answers to held-out prompts measure it."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.errors import UserError
from dynamicrubric.metrics import ANCHOR_METRICS
from dynamicrubric.report import write_comparison

ORDERED = ("delta_gap", "r_dir", "r_cov", "rank_accuracy", "tie_rate")
"""Figures of rubrics that need the order of true quality."""


def unknown_quality(accuracy: float) -> Callable[[dict[str, list[dict[str, Any]]]], None]:
    """Return what takes true quality from the tables, and adds those of anchors."""

    def alter(tables: dict[str, list[dict[str, Any]]]) -> None:
        for row in tables["responses"]:
            row["true_quality"] = None
        for row in tables["rubrics"]:
            row |= dict.fromkeys(ORDERED)
        tables["anchors"] = [
            {
                "rubric_id": row["rubric_id"], "prompt_id": row["prompt_id"],
                "set_index": row["set_index"], "anchor_delta_gap": 0.1, "anchor_r_anchor": -1.0,
                "anchor_rank_accuracy": accuracy + 0.01 * (index % 7), "num_verdicts": 12,
                "num_unscored": 3,
            }
            for index, row in enumerate(tables["rubrics"])
        ]  # fmt: skip

    return alter


def write_cells(study: Any, *, drop: tuple[str, ...] = ()) -> None:
    """Write every cell; the evaluators that are trained rank better after it."""
    sets, responses = 2 * study.prompts, 6 * study.prompts
    nothing = {"value": None, "n_scored": 0}
    for cell in [*study.plan.starts.values(), *study.plan.cells.values()]:
        accuracy = 0.7 if cell.key == "coevolved-s1-r1" else 0.5
        rows = [accuracy + 0.01 * (index % 7) for index in range(sets)]
        whole = {"n_scored": sets, "n_total": sets}
        study.write_cell(
            cell.key,
            drop=drop,
            alter=unknown_quality(accuracy),
            metrics={
                "true_quality": {**nothing, "n_total": responses},
                **{name: {**nothing, "n_total": sets} for name in ORDERED},
                "anchor_rank_accuracy": {"value": sum(rows) / sets, **whole},
                "anchor_delta_gap": {"value": 0.1, **whole},
                "anchor_r_anchor": {"value": -1.0, **whole},
                "anchor_unscored_rate": {
                    "value": 0.25, "n_scored": 12 * sets, "n_total": 12 * sets,
                },
            },
        )  # fmt: skip


def test_report_shows_evaluators_before_and_after_and_no_figure_of_true_quality(
    fake_study, tmp_path: Path
) -> None:
    study = fake_study(arms=("coevolved", "frozen"), rounds=1, write=False)
    write_cells(study)
    found = write_comparison(study.plan, study.questions, study.root, tmp_path / "results")
    table = (tmp_path / "results" / "table.md").read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if line.startswith(("| coevolved", "| frozen"))]
    changes = [row for row in rows if " to " in row]
    assert [row.split(" | ")[:4] for row in changes] == [
        ["| coevolved", "0.529", "0.729", "+0.2000"],
        ["| frozen", "0.529", "0.529", "+0.0000"],
    ]
    assert all(one.mean is None for one in found.differences)
    with (tmp_path / "results" / "metrics.csv").open() as stream:
        figures = list(csv.DictReader(stream))
    assert ANCHOR_METRICS.keys() <= {row["metric"] for row in figures}
    assert {row["value"] for row in figures if row["metric"] == "true_quality"} == {""}
    page = (tmp_path / "results" / "report" / "index.html").read_text(encoding="utf-8")
    assert "Nobody knows the true quality" in page
    assert "True quality is known" not in page
    assert "Evaluators on held-out anchors" in page


def test_cell_with_some_figures_of_anchors_alone_is_refused(fake_study, tmp_path: Path) -> None:
    study = fake_study(arms=("coevolved", "frozen"), rounds=1, write=False)
    write_cells(study, drop=("anchor_delta_gap",))
    with pytest.raises(UserError) as caught:
        write_comparison(study.plan, study.questions, study.root, tmp_path / "results")
    assert "anchor_delta_gap" in str(caught.value)
