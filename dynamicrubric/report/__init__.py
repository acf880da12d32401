"""Comparison of arms: figures, paired differences, tables and the picture.

`write_comparison` reads the cells of a plan and writes results/metrics.csv, results/table.md and
results/study.png (and .svg), of the G x P grid results/grid.csv and results/grid.png (and .svg),
and results/report (the page, its pictures and tables). No torch, no tracker; heavy imports happen
when something is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dynamicrubric.durable import naming
from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan
from dynamicrubric.report.anchorchange import anchor_change_grids, anchor_sections
from dynamicrubric.report.auditsection import read_audit_state
from dynamicrubric.report.build import Material, write_report
from dynamicrubric.report.coevolution import CoEvolution, read_coevolution
from dynamicrubric.report.differences import TABLES, Difference, corrected, paired_differences
from dynamicrubric.report.evidence import Grid
from dynamicrubric.report.faults import Fault, counted, refuse
from dynamicrubric.report.findings import FIRST_ARM, family_of
from dynamicrubric.report.gather import gather
from dynamicrubric.report.gridtable import write_grid_csv
from dynamicrubric.report.heatmap import draw_grid, heat_map
from dynamicrubric.report.outcomes import (
    Outcome,
    OutcomeTable,
    collect_outcomes,
    write_metrics_csv,
)
from dynamicrubric.report.page import Section
from dynamicrubric.report.picture import draw_study
from dynamicrubric.report.probetable import read_probes
from dynamicrubric.report.table import console, markdown

__all__ = [
    "CoEvolution",
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
    "heat_map",
    "markdown",
    "paired_differences",
    "write_comparison",
    "write_metrics_csv",
]


@dataclass(frozen=True)
class Comparison:
    """A finished comparison and its files.

    Attributes:
        outcomes: every figure.
        differences: the first arm against each other one, p-values corrected by family: the arms of
            the paper's findings, the other arms, and each further metric.
        questions: the question of each arm.
        coevolution: the G x P grid, and P_1 -> P_2 under each generator.
        files: metrics.csv, table.md, study.png, study.svg, grid.csv, grid.png, grid.svg.
        report: the folder of the page, its pictures and tables; None if nothing was written.
        faults: cells and grids that are not in it; empty unless it is partial.
        anchors: evaluators before and after training, where held-out prompts have anchor lists.
    """

    outcomes: OutcomeTable
    differences: tuple[Difference, ...]
    questions: Mapping[str, str]
    coevolution: CoEvolution
    files: tuple[Path, ...] = ()
    report: Path | None = None
    faults: tuple[Fault, ...] = ()
    anchors: tuple[Grid, ...] = ()

    @property
    def mark(self) -> str:
        """The sentence that marks a partial comparison wherever it is shown; else empty."""
        if not self.faults:
            return ""
        return f"PARTIAL: {counted(self.faults)} missing or damaged; not a finished study"


def compare_arms(
    plan: Plan, questions: Mapping[str, str], root: Path, faults: Sequence[Fault] = ()
) -> Comparison:
    """Read the figures of a plan and pair its arms; nothing is written.

    Args:
        plan: the lattice of cells.
        questions: the question of each arm, from params.yaml.
        root: the project's folder, which holds data/runs.
        faults: cells and grids to leave out; the comparison is partial then.

    Raises:
        UserError: cells or grids are missing (all are named) or their figures are impossible.
    """
    without = {fault.key for fault in faults if fault.kind == "cell"}
    outcomes = collect_outcomes(plan, root, without)
    arm = FIRST_ARM if FIRST_ARM in outcomes.arms else outcomes.arms[0]
    found = [
        one
        for metric in TABLES
        for one in paired_differences(plan, root, arm=arm, metric=metric, without=without)
    ]
    differences = corrected(found, family_of)
    coevolution = read_coevolution(plan, root, partial=bool(faults), without=without)
    return Comparison(
        outcomes,
        differences,
        dict(questions),
        coevolution,
        faults=tuple(faults),
        anchors=tuple(anchor_change_grids(plan, root, outcomes)),
    )


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
        UserError: cells or grids are missing or damaged (all are named); with `partial`, no cell is
            whole.
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
    files = _write_files(found, results)
    material = Material(
        found.outcomes,
        found.differences,
        found.questions,
        gathered,
        found.coevolution,
        found.mark,
        (*sections, *anchor_sections(found.anchors)),
        read_audit_state(plan, root),
        read_probes(plan, root, gathered.faults),
    )
    report = write_report(material, results)
    return replace(found, files=files, report=report)


def _write_files(found: Comparison, results: Path) -> tuple[Path, ...]:
    """Write the tables and pictures beside the report; return their paths."""
    figures, table = results / "metrics.csv", results / "table.md"
    text = markdown(
        found.outcomes,
        found.differences,
        found.questions,
        found.coevolution,
        found.mark,
        found.anchors,
    )
    grid, picture, grid_map = (results / name for name in ("grid.csv", "study.png", "grid.png"))
    with naming(figures):
        write_metrics_csv(found.outcomes, figures)
    with naming(table):
        table.write_text(text, encoding="utf-8")
    with naming(picture):
        pictures = draw_study(found.outcomes, picture, found.mark)
    with naming(grid):
        write_grid_csv(found.coevolution.table, grid)
    with naming(grid_map):
        maps = draw_grid(found.coevolution.table, grid_map, found.mark)
    return (figures, table, *pictures, grid, *maps)
