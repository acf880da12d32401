"""Build results/report: the page, its pictures and its tables."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dynamicrubric.plan import Plan
from dynamicrubric.report.auditsection import AuditState, audit_sections
from dynamicrubric.report.charts import draw_charts
from dynamicrubric.report.coevolution import CoEvolution
from dynamicrubric.report.csvtables import Tables, write_tables
from dynamicrubric.report.curves import curve_points
from dynamicrubric.report.differences import Difference
from dynamicrubric.report.findings import findings
from dynamicrubric.report.gapfigures import gap_figures
from dynamicrubric.report.gapsection import gap_section
from dynamicrubric.report.gather import Gathered
from dynamicrubric.report.gridsection import coevolution_answers, coevolution_section
from dynamicrubric.report.honesty import honesty_by_round
from dynamicrubric.report.honestysection import honesty_section
from dynamicrubric.report.lines import strong_arms
from dynamicrubric.report.outcomes import OutcomeTable
from dynamicrubric.report.page import PageContent, Section, render
from dynamicrubric.report.pagetables import (
    costs_of,
    counts_grid,
    ends_grid,
    evidence_tables,
    uses_of,
)
from dynamicrubric.report.phrases import seed_counts, span
from dynamicrubric.report.probesection import course_csv, probe_csv, probe_sections
from dynamicrubric.report.probetable import ProbedRound
from dynamicrubric.report.startpolicy import on_start_policy
from dynamicrubric.report.sweeps import sweeps_of
from dynamicrubric.report.sweepsection import sweeps_section
from dynamicrubric.report.updates import updates_of
from dynamicrubric.report.updatesection import updates_section
from dynamicrubric.report.words import answers
from dynamicrubric.versions import COMPARE_VERSION, STEP_VERSIONS

FOLDER: Final = "report"
INDEX: Final = "index.html"
PLOTS: Final = "plots"
TABLE_FILES: Final = "tables"


@dataclass(frozen=True)
class Material:
    """What a report is built from.

    Attributes:
        outcomes: every figure.
        differences: the comparisons.
        questions: the question of each arm.
        gathered: what was read from the cells.
        coevolution: the G x P grid, and P_1 -> P_2 under each generator.
        mark: the sentence that marks a partial report; empty if it is whole.
        sections: sections of other parts of the project.
        audit: the audit of the bound, where the plan has one.
        probed: attacks on evaluators by arm and round.
    """

    outcomes: OutcomeTable
    differences: Sequence[Difference]
    questions: Mapping[str, str]
    gathered: Gathered
    coevolution: CoEvolution
    mark: str = ""
    sections: Sequence[Section] = ()
    audit: AuditState = field(default_factory=AuditState)
    probed: Sequence[ProbedRound] = ()


def write_report(material: Material, results: Path) -> Path:
    """Write the report into `results`/report, anew, and return that folder.

    Args:
        material: what it is built from.
        results: the folder of the comparison's results.
    """
    folder = results / FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # no picture of an earlier study may stay
    tables = _tables(material)
    charts = draw_charts(
        material.outcomes.arms, tables.points, material.differences, folder / PLOTS, material.mark
    )
    section = coevolution_section(material.coevolution, folder / PLOTS, material.mark)
    updates = updates_section(
        tables.updates,
        tables.start_policy,
        material.outcomes.arms,
        folder / PLOTS,
        material.mark,
    )
    parts = gap_section(tables.gap, folder / PLOTS, material.mark)
    sweeps = sweeps_section(tables.sweeps, folder / PLOTS, material.mark)
    honesty = honesty_section(tables.honesty, strong_arms(material.outcomes.arms))
    probes = probe_sections(material.probed, folder / PLOTS, material.mark)
    write_tables(tables, folder / TABLE_FILES)
    audit = audit_sections(material.audit, folder / PLOTS, folder / TABLE_FILES, material.mark)
    content = PageContent(
        questions={
            arm: text for arm, text in material.questions.items() if arm in material.outcomes.arms
        },
        arms=material.outcomes.arms,
        seeds=span(seed_counts(material.outcomes), "seed"),
        tables=tables,
        charts={chart.name: chart for chart in charts},
        ends=ends_grid(material.outcomes),
        counts=counts_grid(material.outcomes, material.gathered),
        evidence=evidence_tables(material.differences),
        settings=_settings(material),
        faults=material.gathered.faults,
        mark=material.mark,
        sections=[
            section,
            *parts,
            *audit,
            *updates,
            *sweeps,
            *honesty,
            *probes,
            *material.sections,
        ],
        quality_known=any(
            row.n_scored for row in material.outcomes.rows if row.metric == "true_quality"
        ),
    )
    (folder / INDEX).write_text(render(content), encoding="utf-8")
    return folder


def _tables(material: Material) -> Tables:
    gathered, outcomes = material.gathered, material.outcomes
    found = answers(material.differences)
    extremes = {
        arm: digest.extremes
        for arm, key in gathered.shown.items()
        if (digest := gathered.cells[key]).extremes is not None
    }
    return Tables(
        points=curve_points(outcomes, gathered.by_prompt()),
        answers=found,
        findings=findings(found),
        uses=uses_of(outcomes, gathered),
        costs=costs_of(gathered),
        extremes=extremes,
        grid=material.coevolution.table.rows,
        coevolution=coevolution_answers(material.coevolution),
        updates=updates_of(gathered),
        start_policy=on_start_policy(gathered, _first_arm(material)),
        gap=gap_figures(outcomes, gathered),
        honesty=honesty_by_round(gathered),
        sweeps=sweeps_of(gathered),
        probes=probe_csv(material.probed),
        course=course_csv(material.probed),
    )


def _first_arm(material: Material) -> str:
    """Return the arm that the others are compared to."""
    if material.differences:
        return material.differences[0].arm
    return material.outcomes.arms[0]


def _settings(material: Material) -> list[tuple[str, str]]:
    plan, cells = material.gathered.plan, material.gathered.cells
    provenance = [digest.provenance for digest in cells.values()]
    commits = sorted({str(one.get("git_commit") or "not recorded") for one in provenance})
    created = sorted(str(one.get("created", "")) for one in provenance)
    versions: dict[str, set[str]] = {}
    for one in provenance:
        packages = one.get("packages")
        for name, version in packages.items() if isinstance(packages, Mapping) else ():
            versions.setdefault(str(name), set()).add(str(version))
    seeds = ", ".join(map(str, material.outcomes.seeds))
    return [
        ("plan", _plan_size(plan)),
        ("cells in this report", f"{len(cells)} of {material.gathered.num_cells}"),
        ("seeds", seeds),
        ("measured by commit", ", ".join(commits)),
        ("measured", f"{created[0]} to {created[-1]}" if created else "never"),
        ("packages", ", ".join(f"{name} {' or '.join(sorted(own))}"
                               for name, own in sorted(versions.items()))),
        ("step versions", ", ".join(f"{name} {number}" for name, number in STEP_VERSIONS.items())),
        ("report version", str(COMPARE_VERSION)),
    ]  # fmt: skip


def _plan_size(plan: Plan) -> str:
    arms = len({arm for arm, _ in plan.paths})
    return (
        f"{arms} arms, {len(plan.paths)} paths of an arm and seed, {plan.num_arm_rounds} rounds of "
        f"training as {len(plan.cells)} cells, {len(plan.starts)} measurements of the start policy"
    )
