"""Accuracy of each evaluator on each data set in one picture, with length's accuracy as a mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dynamicrubric.benchmarks.figures import Row
from dynamicrubric.benchmarks.schema import ALL, MACRO
from dynamicrubric.report.figures import CAPTION_COLOUR, DOTS_PER_INCH, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOT: Final = "#0B4F8A"
LENGTH: Final = "#B00020"
MOST_PANELS: Final = 12


def draw(rows: Sequence[Row]) -> Figure:
    """Draw a panel a data set (of a study: a policy too): dots with intervals, a line at chance."""
    # Imported here: matplotlib costs a second. `Figure` instead of pyplot: no global state.
    import matplotlib
    from matplotlib.figure import Figure

    panels = panels_of(rows)
    with matplotlib.rc_context(STYLE):
        lines = max((len(own) for own in panels.values()), default=1)
        figure = Figure(
            figsize=(3.2 * max(1, len(panels)) + 2.0, 0.5 * lines + 1.8),
            dpi=DOTS_PER_INCH,
            layout="constrained",
        )
        if not panels:
            return figure
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for place, (title, own) in enumerate(panels.items()):
            _panel(axes[place], title, own)
        figure.supxlabel(
            "pairwise accuracy, 95 % interval; red: accuracy of the longer response",
            fontsize=9,
            color=CAPTION_COLOUR,
        )
    return figure


def panels_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each panel: a data set as a whole, after few subsets each of its own."""
    subsets: dict[str, set[str]] = {}
    for row in rows:
        subsets.setdefault(row.dataset, set()).add(row.subset)
    few = {name for name, own in subsets.items() if len(own - {MACRO, ALL}) <= 4}
    found: dict[str, list[Row]] = {}
    for row in rows:
        several = len(subsets[row.dataset]) > 1
        if several and row.subset == ALL:
            continue
        if row.subset in (MACRO, ALL) or row.dataset in few:
            title = row.dataset if not several else f"{row.dataset}\n{row.subset}"
            found.setdefault(title, []).append(row)
    return dict(list(found.items())[:MOST_PANELS])


def _panel(axes: Axes, title: str, rows: Sequence[Row]) -> None:
    axes.set_title(title, fontsize=10)
    axes.axvline(0.5, color="#999999", linewidth=0.8)
    longer = rows[0].figures["longer_wins"].value
    if longer is not None:
        axes.axvline(longer, color=LENGTH, linewidth=1.2, linestyle="--")
    for place, row in enumerate(rows):
        figure = row.figures["accuracy"]
        if figure.value is None:
            axes.text(0.5, place, "unscored", ha="center", va="center", fontsize=8)
            continue
        if figure.interval is not None:
            axes.plot(figure.interval, (place, place), color=DOT, linewidth=1.5)
        axes.plot([figure.value], [place], "o", color=DOT, markersize=5)
    axes.set_yticks(range(len(rows)), [row.evaluator for row in rows], fontsize=9)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.tick_params(axis="x", labelsize=8)
