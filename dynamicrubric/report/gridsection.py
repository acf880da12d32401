"""The co-evolution figure as a section of the page: in words, as a heat map and as tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from dynamicrubric.grid import G_STALE, NEEDS, POLICIES
from dynamicrubric.report.charts import Chart
from dynamicrubric.report.coevolution import (
    BEST,
    CoEvolution,
    coevolution_grids,
    coevolution_notes,
)
from dynamicrubric.report.findings import GRID_ANCHOR
from dynamicrubric.report.gridtable import GAP
from dynamicrubric.report.heatmap import draw_grid
from dynamicrubric.report.page import Section
from dynamicrubric.report.phrases import capital, mean_over
from dynamicrubric.report.words import Answer, answers

TITLE: Final = "Co-evolution"
GRID: Final = (
    f"Every generator writes rubrics for the same held-out responses of each policy: {BEST} was "
    f"trained on responses of {POLICIES[1]}, {G_STALE} again on those of {POLICIES[0]}, with equal "
    f"compute. {POLICIES[2]} was trained under {BEST}, so on {POLICIES[2]}'s responses {BEST} is "
    f"the judge that its policy optimised against; {POLICIES[1]}'s column is the paper's "
    "comparison."
)
POLICY: Final = f"And {POLICIES[1]} is trained on under each generator that the plan has."
NO_GRID: Final = f"This plan has no G x P grid: it takes {NEEDS}."
MISSING: Final = "The G x P grid of this plan is missing or damaged."


def coevolution_section(found: CoEvolution, folder: Path, mark: str = "") -> Section:
    """Return the section and draw its picture.

    Args:
        found: the figure, as far as the plan has it.
        folder: where the PNG and the SVG go.
        mark: what has to be said on the picture; a partial report's mark.
    """
    return Section(
        anchor=GRID_ANCHOR,
        title=TITLE,
        lead=_lead(found),
        charts=(_heat_map(found, folder, mark),) if found.table.rows else (),
        grids=tuple(coevolution_grids(found)),
        answers=tuple(one for one in coevolution_answers(found) if _is_said(one)),
        notes=tuple(coevolution_notes(found)),
    )


def _lead(found: CoEvolution) -> str:
    no_grid = MISSING if found.missing else NO_GRID
    return " ".join([GRID if found.table.rows else no_grid, *([POLICY] if found.gains else [])])


def coevolution_answers(found: CoEvolution) -> tuple[Answer, ...]:
    """Put each comparison of both halves into words; each half was corrected on its own."""
    second = [
        replace(one, arm=_policy(one.arm), other=_policy(one.other))
        for one in (*found.gains, *found.against)
    ]
    return answers(found.gaps) + answers(second)


def _is_said(answer: Answer) -> bool:
    """Whether a comparison is one of the paper's; the others are in the tables alone."""
    one = answer.difference
    if one.metric == GAP:  # on the responses of P_0, nobody has moved yet
        return one.other in {f"{G_STALE} on {policy}" for policy in POLICIES[1:]}
    return one.arm == _policy(f"under {BEST}") and one.other != POLICIES[1]


def _policy(name: str) -> str:
    return f"{POLICIES[2]} {name}" if name.startswith("under ") else name


def _heat_map(found: CoEvolution, folder: Path, mark: str) -> Chart:
    png, svg = draw_grid(found.table, folder / "grid.png", mark)
    means = {
        f"{generator} on {policy}": found.table.mean(generator, policy, GAP)
        for policy in POLICIES[1:]
        for generator in (BEST, G_STALE)
    }
    said = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items() if mean is not None)
    title = "Each generator (rows) on each policy's held-out responses (columns)"
    note = capital(mean_over([len(found.table.seeds)]))
    return Chart("grid", title, f"{title}; Delta_gap of {said}", png, svg, note)
