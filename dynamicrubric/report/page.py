"""results/report/index.html: one file that asks nothing of any network and runs nothing.

Pictures are data URIs, the style sheet is inline and named by its hash in the page's content
security policy, and everything else is forbidden by it. Text from models, arms and questions
reaches the page through jinja2's autoescape alone, control and direction characters by name.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dynamicrubric.metrics import ROUND_METRICS
from dynamicrubric.report.charts import Chart
from dynamicrubric.report.csvtables import Tables
from dynamicrubric.report.evidence import Grid, left_out
from dynamicrubric.report.faults import Fault
from dynamicrubric.report.findings import FIRST_ARM, GRID_ANCHOR
from dynamicrubric.report.pagetables import (
    ENDS,
    YARDSTICK,
    by_round_grid,
    cost_grids,
)
from dynamicrubric.report.phrases import CERTAINTY, label, number, share
from dynamicrubric.report.rubricchange import RubricUse
from dynamicrubric.report.text import visible
from dynamicrubric.report.words import Answer, caution
from dynamicrubric.stats import MIN_SEEDS

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES: Final = Path(__file__).with_name("templates")
PAGE: Final = "page.html.j2"
ALONE: Final = "section.html.j2"
STYLE: Final = "style.css"


@dataclass(frozen=True)
class Section:
    """A section that another part of the project adds to the page, such as the G x P grid.

    Attributes:
        anchor: its id in the page.
        title: its heading.
        lead: a sentence or two above its pictures.
        charts: its pictures, as wide as the page.
        grids: its tables.
        answers: comparisons in words, below the lead.
        notes: (name, text) lines under its tables.
    """

    anchor: str
    title: str
    lead: str
    charts: tuple[Chart, ...] = ()
    grids: tuple[Grid, ...] = ()
    answers: tuple[Answer, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PageContent:
    """Everything on the page.

    Attributes:
        questions: the question of each arm.
        arms: arm names in order.
        seeds: how many seeds the arms have, in words.
        tables: curves, answers, findings, rubrics, costs and responses.
        charts: the pictures, by name.
        ends: where each arm ended.
        counts: what that rests on.
        evidence: the comparisons as tables.
        settings: (name, value) lines of the footer.
        faults: what is missing; not empty exactly on a partial page.
        mark: the sentence on top of a partial page.
        sections: sections of other parts of the project.
        quality_known: whether anybody knows the true quality of the responses.
    """

    questions: Mapping[str, str]
    arms: Sequence[str]
    seeds: str
    tables: Tables
    charts: Mapping[str, Chart]
    ends: Grid
    counts: Grid
    evidence: Sequence[Grid]
    settings: Sequence[tuple[str, str]]
    faults: Sequence[Fault] = ()
    mark: str = ""
    sections: Sequence[Section] = ()
    quality_known: bool = True


def render(content: PageContent) -> str:
    """Return the page."""
    style = (TEMPLATES / STYLE).read_text(encoding="utf-8")
    environment = _environment()
    return environment.get_template(PAGE).render(
        content=content,
        tables=content.tables,
        style=_markup(style),
        policy=content_policy(style),
        comparisons=_comparisons(content.tables.answers),
        curves=_named(content.charts, "curve_"),
        others=_named(content.charts, "others_"),
        forest=_named(content.charts, "difference_"),
        rubric_grids=_rubric_grids(content.tables),
        rubrics=_rubrics_by_arm(content.tables),
        cost_grids=cost_grids(content.tables.costs),
        glossary=[(label(metric), ROUND_METRICS[metric].meaning) for metric in ENDS],
        yardstick=YARDSTICK,
        first_arm=FIRST_ARM,
        min_seeds=MIN_SEEDS,
        certainty=CERTAINTY,
        grid_anchor=GRID_ANCHOR,
    )


def render_section(section: Section, title: str) -> str:
    """Return a page of its own with one section.

    Args:
        section: what is on it.
        title: the page's.
    """
    style = (TEMPLATES / STYLE).read_text(encoding="utf-8")
    return (
        _environment()
        .get_template(ALONE)
        .render(section=section, title=title, style=_markup(style), policy=content_policy(style))
    )


def content_policy(style: str) -> str:
    """Return the content security policy: nothing but data images and this one style sheet."""
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )


def _environment() -> Environment:
    # Imported here: `import dynamicrubric.cli` has to stay fast.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every value is shown through it, also those that no template thought of.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(
        picture=_data_uri,
        number=number,
        share=share,
        caution=caution,
        left_out=left_out,
    )
    return environment


def _markup(text: str) -> Any:  # noqa: ANN401 - a type of a library that is imported late
    from markupsafe import Markup

    assert "</" not in text, "a style sheet that could end its own element"
    return Markup(text)  # our own file, from this package


def _data_uri(chart: Chart) -> str:
    data = base64.b64encode(chart.svg.read_bytes()).decode("ascii")
    return f"data:image/svg+xml;base64,{data}"


def _named(charts: Mapping[str, Chart], start: str) -> list[Chart]:
    return [chart for name, chart in charts.items() if name.startswith(start)]


def _comparisons(answers: Sequence[Answer]) -> list[tuple[str, list[Answer]]]:
    """Group the answers by the other arm: one question, one answer a metric."""
    groups: dict[str, list[Answer]] = {}
    for answer in answers:
        groups.setdefault(answer.difference.other, []).append(answer)
    return list(groups.items())


def _rubrics_by_arm(tables: Tables) -> dict[str, list[tuple[int, RubricUse]]]:
    groups: dict[str, list[tuple[int, RubricUse]]] = {}
    for (arm, round_number), use in tables.uses.items():
        groups.setdefault(arm, []).append((round_number, use))
    return groups


def _rubric_grids(tables: Tables) -> list[Grid]:
    return [
        by_round_grid("Entropy of the criteria, bits", tables.uses, "entropy", 2),
        by_round_grid("Share of items that every response of the set meets", tables.uses,
                      "all_meet_share", 3),
        by_round_grid("Share of items that no response of the set meets", tables.uses,
                      "none_meet_share", 3),
    ]  # fmt: skip
