"""The parts of Delta_gap as a section of the page: a picture by round, tables, and rows of CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.metrics import GAP_PAIRS
from dynamicrubric.report.charts import CHART_STYLE, Chart
from dynamicrubric.report.evidence import Grid
from dynamicrubric.report.figures import DOTS_PER_INCH, MARK_COLOUR, save_figure
from dynamicrubric.report.gapfigures import FIGURES, GapFigures
from dynamicrubric.report.gapparts import ItemSums
from dynamicrubric.report.lines import strong_arms
from dynamicrubric.report.page import Section
from dynamicrubric.report.phrases import (
    capital,
    label,
    mean_over,
    mean_text,
    number,
    seed_counts,
    share,
    signed,
)
from dynamicrubric.report.text import visible
from dynamicrubric.theory import CHOICES, pairs_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ANCHOR: Final = "gap-parts"
TITLE: Final = "What discriminability is made of"
LEAD: Final = (
    "Δ gap = c_K R_disc - 2 R_dir - R_cov holds exactly for every response set, whatever the "
    "rubric: what a rubric tells apart is the useful gap, plus twice what points the wrong way, "
    "plus what falls on pairs that P leaves out. The wrong-way share is of what tells ordered "
    "pairs apart."
)
MOST: Final = 5
"""Criteria in each half of an arm's table."""
EXACT: Final = 1e-12
_COLOURS: Final = {"delta_gap": "#0072B2", "gap_wrong": "#D55E00", "r_cov": "#B8BDC2"}
_PER_ROW: Final = 4


def gap_section(found: GapFigures, folder: Path, mark: str = "") -> tuple[Section, ...]:
    """Return the section and draw its picture; no section where no set of the study has a gap.

    The picture is there all the same, and says so: `dvc plots` names it.

    Args:
        found: the figures.
        folder: where the PNG and the SVG go.
        mark: what has to be said on the picture; a partial report's mark.
    """
    chart = _chart(found, folder, mark)
    if not any(one.sets for one in found.parts.values()):
        return ()
    grids = (_figures_grid(found), _choices_grid(found), *_criteria_grids(found))
    return (Section(ANCHOR, TITLE, LEAD, (chart,), grids, notes=tuple(_notes(found))),)


def _figures_grid(found: GapFigures) -> Grid:
    shown = strong_arms(found.table.arms)
    rows = tuple(
        (f"{arm}, round {round_number}",
         *(mean_text(found.table, arm, round_number, name) for name in FIGURES))
        for arm, round_number in found.parts
        if arm in shown and found.parts[arm, round_number].sets
    )  # fmt: skip
    seeds = mean_over(seed_counts(found.table))
    return Grid(f"Parts of Δ gap, {seeds}", ("arm and round", *map(label, FIGURES)), rows)


def _choices_grid(found: GapFigures) -> Grid:
    rows = []
    for arm in found.table.arms:
        last = found.table.last_round_of(arm)
        parts = found.parts.get((arm, last))
        if parts is not None and parts.sets:
            gaps = (number(parts.gap_under(choice), 4) for choice in CHOICES)
            rows.append((arm, *gaps, str(parts.sets)))
    title = "Δ gap in each arm's last round under other choices of P, seeds put together"
    return Grid(title, ("arm", *CHOICES, "sets"), tuple(rows))


def _criteria_grids(found: GapFigures) -> Iterator[Grid]:
    heads = ("criterion", "items", "adds to Δ gap", "to c_K R_disc", "to 2 R_dir", "wrong way")
    for arm in strong_arms(found.table.arms):
        last = found.table.last_round_of(arm)
        parts = found.parts.get((arm, last))
        if parts is None or not parts.criteria:
            continue
        order = sorted(parts.criteria.items(), key=lambda entry: (-entry[1].delta_gap, entry[0]))
        chosen = dict([*order[:MOST], *order[-MOST:]])
        rows = tuple(_criterion_row(text, own, parts.sets) for text, own in chosen.items())
        title = f"Criteria of {arm} in round {last} by what they add to Δ gap: the most, the least"
        yield Grid(f"{title}; {len(chosen)} of all {len(parts.criteria)}", heads, rows)


def _criterion_row(text: str, own: ItemSums, sets: int) -> tuple[str, ...]:
    sums = (own.delta_gap, own.disc, own.wrong)
    return (
        text, str(own.items), *(signed(value / sets) for value in sums), share(own.wrong_way_share)
    )  # fmt: skip


def _notes(found: GapFigures) -> Iterator[tuple[str, str]]:
    parts = [one for one in found.parts.values() if one.sets]
    error = max(one.identity_error for one in parts)
    deviation = max(one.deviation for one in parts)
    sets = sum(one.sets for one in parts)
    verdict = "exact to rounding" if error <= EXACT else f"NOT within {EXACT:g}"
    yield (f"P of {label('delta_gap')}", GAP_PAIRS)
    yield (
        "the identity's largest error",
        f"{error:.2g} over {sets} held-out sets of arms and rounds, a shared one counted under "
        f"each arm: {verdict}",
    )
    yield ("against the rounds' own figures", _deviation_text(deviation))
    for choice in CHOICES[1:]:
        yield (f"P {choice}", pairs_text(choice))


def _deviation_text(deviation: float) -> str:
    if deviation <= EXACT:
        return f"each set's stored parts follow from its verdicts, to {deviation:.2g}"
    if math.isinf(deviation):
        return "NOT what the rounds measured: some set has parts in one of the two alone"
    return f"NOT what the rounds measured: a part differs by {deviation:.2g}"


def _chart(found: GapFigures, folder: Path, mark: str) -> Chart:
    # Imported here: matplotlib costs a second. `Figure` instead of pyplot: no global state.
    import matplotlib
    from matplotlib.figure import Figure

    arms = [
        arm for arm in strong_arms(found.table.arms)
        if any(one.sets for (name, _), one in found.parts.items() if name == arm)
    ]  # fmt: skip
    rows = math.ceil(len(arms) / _PER_ROW)
    with matplotlib.rc_context(CHART_STYLE):
        size = (3.4 * min(len(arms), _PER_ROW) + 0.6, 3.6 * rows) if arms else (9.0, 1.6)
        figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
        caption = f"bars: c_K R_disc by part; above: wrong-way share. P: {GAP_PAIRS}"
        figure.suptitle("; ".join(filter(None, (visible(mark), caption))), fontsize=10, x=0.01,
                        color=MARK_COLOUR if mark else "#444444", ha="left")  # fmt: skip
        if arms:
            _draw_panels(figure, found, arms)
        else:
            figure.text(0.5, 0.4, "no set of this study has a gap", ha="center", va="center")
        png, svg = save_figure(figure, folder / "gap_parts.png", CHART_STYLE)
    said = "; ".join(f"{arm} {_shares_text(found, arm)}" for arm in arms)
    title = "The parts of c_K R_disc by round"
    note = f"{capital(mean_over(seed_counts(found.table)))}. P: {GAP_PAIRS}"
    return Chart("gap_parts", title, f"{title}; wrong-way share by round: {said}", png, svg, note)


def _draw_panels(figure: Figure, found: GapFigures, arms: Sequence[str]) -> None:
    columns = min(len(arms), _PER_ROW)
    rows = math.ceil(len(arms) / _PER_ROW)
    panels = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for axes, arm in zip(panels, arms, strict=False):
        _draw_panel(axes, found, arm)
    for axes in panels[len(arms) :]:
        axes.set_visible(False)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower left", ncols=len(names), frameon=False)


def _shares_text(found: GapFigures, arm: str) -> str:
    shares = (
        found.table.mean(arm, number, "wrong_way_share") for name, number in found.parts
        if name == arm
    )  # fmt: skip
    return ", ".join(map(share, shares))


def _draw_panel(axes: Axes, found: GapFigures, arm: str) -> None:
    rounds = [round_number for name, round_number in found.parts if name == arm]
    for round_number in rounds:
        values = {name: found.table.mean(arm, round_number, name) for name in FIGURES}
        above = below = 0.0
        for name, colour in _COLOURS.items():
            value = values[name] or 0.0
            bottom = above if value >= 0 else below
            axes.bar(round_number, value, bottom=bottom, color=colour, width=0.72,
                     label=label(name) if round_number == rounds[0] else None)  # fmt: skip
            above, below = above + max(value, 0.0), below + min(value, 0.0)
        axes.annotate(share(values["wrong_way_share"]), (round_number, above), (0, 3), fontsize=10,
                      textcoords="offset points", ha="center", va="bottom")  # fmt: skip
    axes.set_title(visible(arm), loc="left", fontweight="bold")
    axes.set_xticks(rounds)
    axes.set_xlabel("round (0: untrained)")
    axes.margins(y=0.14)
    axes.grid(axis="y", color="#E2E2E2", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.axhline(0, color="#888888", linewidth=1)
