"""Comparison of arms: figures, paired differences, tables and the picture.

`write_comparison` reads the cells of a plan and writes results/metrics.csv, results/table.md and
results/study.png (and .svg), and of the G x P grid results/grid.csv and results/grid.png (and
.svg). No torch, no tracker; heavy imports happen when something is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dynamicrubric.durable import naming
from dynamicrubric.grid import COEVOLVED
from dynamicrubric.plan import Plan
from dynamicrubric.report.coevolution import CoEvolution, read_coevolution
from dynamicrubric.report.differences import TABLES, Difference, corrected, paired_differences
from dynamicrubric.report.gridtable import write_grid_csv
from dynamicrubric.report.heatmap import draw_grid, heat_map
from dynamicrubric.report.outcomes import (
    Outcome,
    OutcomeTable,
    collect_outcomes,
    write_metrics_csv,
)
from dynamicrubric.report.picture import draw_study
from dynamicrubric.report.table import console, markdown

__all__ = [
    "CoEvolution",
    "Comparison",
    "Difference",
    "Outcome",
    "OutcomeTable",
    "collect_outcomes",
    "compare_arms",
    "console",
    "draw_study",
    "heat_map",
    "markdown",
    "paired_differences",
    "write_comparison",
    "write_metrics_csv",
]

FIRST_CHOICE: Final = COEVOLVED
"""The arm that the others are compared to, if the study has it; else the study's first arm."""


@dataclass(frozen=True)
class Comparison:
    """A finished comparison and its files.

    Attributes:
        outcomes: every figure.
        differences: the first arm against each other one, p-values corrected over all of them.
        questions: the question of each arm.
        coevolution: the G x P grid, and P_1 -> P_2 under each generator.
        files: metrics.csv, table.md, study.png, study.svg, grid.csv, grid.png, grid.svg.
    """

    outcomes: OutcomeTable
    differences: tuple[Difference, ...]
    questions: Mapping[str, str]
    coevolution: CoEvolution
    files: tuple[Path, ...] = ()


def compare_arms(plan: Plan, questions: Mapping[str, str], root: Path) -> Comparison:
    """Read the figures of a plan and pair its arms; nothing is written.

    Raises:
        UserError: cells are missing (all are named) or their figures are impossible.
    """
    outcomes = collect_outcomes(plan, root)
    arm = FIRST_CHOICE if FIRST_CHOICE in outcomes.arms else outcomes.arms[0]
    differences = corrected(
        [
            found
            for metric in TABLES
            for found in paired_differences(plan, root, arm=arm, metric=metric)
        ]
    )
    return Comparison(outcomes, differences, dict(questions), read_coevolution(plan, root))


def write_comparison(
    plan: Plan, questions: Mapping[str, str], root: Path, results: Path
) -> Comparison:
    """Compare the arms of a plan and write the results.

    Args:
        plan: the lattice of cells.
        questions: the question of each arm, from params.yaml.
        root: the project's folder, which holds data/runs.
        results: folder to write into.

    Raises:
        UserError: as `compare_arms`.
    """
    found = compare_arms(plan, questions, root)
    figures, table = results / "metrics.csv", results / "table.md"
    table_text = markdown(found.outcomes, found.differences, questions, found.coevolution)
    grid, picture, grid_map = (results / name for name in ("grid.csv", "study.png", "grid.png"))
    with naming(figures):
        write_metrics_csv(found.outcomes, figures)
    with naming(table):
        table.write_text(table_text, encoding="utf-8")
    with naming(picture):
        pictures = draw_study(found.outcomes, picture)
    with naming(grid):
        write_grid_csv(found.coevolution.table, grid)
    with naming(grid_map):
        maps = draw_grid(found.coevolution.table, grid_map)
    return replace(found, files=(figures, table, *pictures, grid, *maps))
