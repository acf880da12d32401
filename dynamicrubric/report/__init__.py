"""Comparison of arms: figures, paired differences, tables and the picture.

`write_comparison` reads the cells of a plan and writes results/metrics.csv, results/table.md,
results/study.png (and .svg) and results/report (the page, its pictures and tables). No torch, no
tracker; heavy imports happen when something is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan
from dynamicrubric.report.build import Material, write_report
from dynamicrubric.report.differences import TABLES, Difference, corrected, paired_differences
from dynamicrubric.report.faults import Fault, refuse
from dynamicrubric.report.gather import gather
from dynamicrubric.report.outcomes import (
    Outcome,
    OutcomeTable,
    collect_outcomes,
    write_metrics_csv,
)
from dynamicrubric.report.page import Section
from dynamicrubric.report.picture import draw_study
from dynamicrubric.report.table import console, markdown

__all__ = [
    "Comparison",
    "Difference",
    "Fault",
    "Outcome",
    "OutcomeTable",
    "Section",
    "collect_outcomes",
    "compare_arms",
    "console",
    "draw_study",
    "markdown",
    "paired_differences",
    "write_comparison",
    "write_metrics_csv",
]

FIRST_CHOICE: Final = "coevolved"
"""The arm that the others are compared to, if the study has it; else the study's first arm."""


@dataclass(frozen=True)
class Comparison:
    """A finished comparison and its files.

    Attributes:
        outcomes: every figure.
        differences: the first arm against each other one, p-values corrected over all of them.
        questions: the question of each arm.
        files: metrics.csv, table.md, study.png, study.svg.
        report: the folder of the page, its pictures and tables; None if nothing was written.
        faults: cells that are not in it; empty unless it is partial.
    """

    outcomes: OutcomeTable
    differences: tuple[Difference, ...]
    questions: Mapping[str, str]
    files: tuple[Path, ...] = ()
    report: Path | None = None
    faults: tuple[Fault, ...] = ()

    @property
    def mark(self) -> str:
        """The sentence that marks a partial comparison wherever it is shown; else empty."""
        count = len(self.faults)
        if not count:
            return ""
        return f"PARTIAL: {count} cell{'s' * (count > 1)} missing or damaged; not a finished study"


def compare_arms(
    plan: Plan, questions: Mapping[str, str], root: Path, faults: Sequence[Fault] = ()
) -> Comparison:
    """Read the figures of a plan and pair its arms; nothing is written.

    Args:
        plan: the lattice of cells.
        questions: the question of each arm, from params.yaml.
        root: the project's folder, which holds data/runs.
        faults: cells to leave out; the comparison is partial then.

    Raises:
        UserError: cells are missing (all are named) or their figures are impossible.
    """
    without = {fault.key for fault in faults}
    outcomes = collect_outcomes(plan, root, without)
    arm = FIRST_CHOICE if FIRST_CHOICE in outcomes.arms else outcomes.arms[0]
    differences = corrected(
        [
            found
            for metric in TABLES
            for found in paired_differences(plan, root, arm=arm, metric=metric, without=without)
        ]
    )
    return Comparison(outcomes, differences, dict(questions), faults=tuple(faults))


def write_comparison(
    plan: Plan,
    questions: Mapping[str, str],
    root: Path,
    results: Path,
    *,
    partial: bool = False,
    sections: Sequence[Section] = (),
) -> Comparison:
    """Compare the arms of a plan and write the results.

    Args:
        plan: the lattice of cells.
        questions: the question of each arm, from params.yaml.
        root: the project's folder, which holds data/runs.
        results: folder to write into.
        partial: leave out what is missing or damaged, and say so on everything that is written.
        sections: sections that the page has beside the report's own.

    Raises:
        UserError: cells are missing or damaged (all are named); with `partial`, all of them are.
    """
    gathered = gather(plan, root)
    if gathered.faults and not partial:
        raise refuse(gathered.faults, gathered.num_cells)
    if not gathered.cells:
        raise UserError(
            doing="drawing a partial comparison",
            got=f"none of {gathered.num_cells} cells",
            expected="at least one finished cell",
            remedy="run the study first",
        )
    found = compare_arms(plan, questions, root, gathered.faults)
    figures, table = results / "metrics.csv", results / "table.md"
    write_metrics_csv(found.outcomes, figures)
    text = markdown(found.outcomes, found.differences, questions, found.mark)
    table.write_text(text, encoding="utf-8")
    png, svg = draw_study(found.outcomes, results / "study.png", found.mark)
    material = Material(
        found.outcomes, found.differences, found.questions, gathered, found.mark, sections
    )
    report = write_report(material, results)
    return replace(found, files=(figures, table, png, svg), report=report)
