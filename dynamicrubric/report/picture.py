"""The study in one picture: true quality and Delta_gap by round, a line an arm.

Each line carries its arm's name at its end, in its own colour and with its own marker, so that no
legend has to be matched and no colour told apart. Thin lines of the same colour are seeds. A study
with more arms than there are colours has the arms of the paper's findings so, without seeds, and
all others as thin grey lines: the report has a panel for each of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.metrics import GAP_PAIRS
from dynamicrubric.report.figures import (
    CAPTION_COLOUR,
    DOTS_PER_INCH,
    MARK_COLOUR,
    STYLE,
    save_figure,
)
from dynamicrubric.report.lines import (
    COLOURS,
    MARKERS,
    OTHERS_COLOUR,
    LineEnd,
    breaking,
    label_ends,
    strong_arms,
)
from dynamicrubric.report.outcomes import OutcomeTable
from dynamicrubric.report.phrases import capital, count, label, seed_counts, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS: Final = ("true_quality", "delta_gap")
WIDTH_INCHES: Final = 12.0
LABEL_GAP: Final = 0.062
"""Smallest distance between two labels, as a share of the panel's height."""


def draw_study(table: OutcomeTable, path: Path, mark: str = "") -> tuple[Path, Path]:
    """Draw the picture.

    Args:
        table: the figures of the study.
        path: where the PNG goes; the SVG is written beside it.
        mark: what has to be said of the figures on the picture itself.

    Returns:
        Paths of the PNG and the SVG.
    """
    return save_figure(study_figure(table, mark), path)


def study_figure(table: OutcomeTable, mark: str = "") -> Figure:
    """Return the picture, for the arguments of `draw_study`."""
    # Imported here: matplotlib costs a second. `Figure` instead of pyplot: no global state, so a
    # thread of a flow may draw.
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, 5.4), dpi=DOTS_PER_INCH, layout="constrained")
        for axes, metric in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
            _draw_panel(axes, table, metric)
        caption = "; ".join(filter(None, (mark, _caption(table))))
        colour = MARK_COLOUR if mark else CAPTION_COLOUR
        figure.suptitle(caption, fontsize=11, color=colour, x=0.01, ha="left")
    return figure


def _draw_panel(axes: Axes, table: OutcomeTable, metric: str) -> None:
    strong = strong_arms(table.arms)
    others = _others(table)
    for number, arm in enumerate(others):
        values = breaking(_means(table, arm, metric))
        named = f"{count(len(others), 'other arm')}, in the report" if number == 0 else None
        axes.plot(values, color=OTHERS_COLOUR, linewidth=1.0, label=named)
    ends: list[LineEnd] = []
    for number, arm in reversed(list(enumerate(strong))):  # the first arm ends up on top
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        if not others and len(table.seeds_of(arm)) > 1:
            for seed in table.seeds_of(arm):
                values = breaking(table.path(arm, seed, metric))
                axes.plot(values, color=colour, linewidth=0.9, alpha=0.45)
        means = _means(table, arm, metric)
        axes.plot(breaking(means), color=colour, marker=marker, linewidth=2.4, markersize=6.5)
        known = [value for value in means if value is not None]
        if known:
            last = table.last_round_of(arm)
            ends.append(LineEnd(known[-1], last, f"{arm}  {known[-1]:.3f}", number))
    _style(axes, table, metric)
    label_ends(axes, ends, LABEL_GAP, 11)
    if others:
        axes.legend(loc="best", frameon=False, fontsize=10, labelcolor=CAPTION_COLOUR)


def _style(axes: Axes, table: OutcomeTable, metric: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(capital(label(metric)), loc="left", fontweight="bold")
    axes.set_xlabel("round (0: the untrained policy)")
    axes.set_ylabel(f"{label(metric)} on held-out prompts")
    axes.set_xlim(-0.06 * table.last_round, 1.03 * table.last_round)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(y=0.08)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    low, high = axes.get_ylim()
    if low < 0 < high:
        axes.axhline(0, color="#888888", linewidth=1)


def _caption(table: OutcomeTable) -> str:
    seeds = seed_counts(table)
    said = span(seeds, "seed")
    if set(seeds) != {1}:
        thick = f"{said}: thin lines; thick: their mean"
        said = f"mean of {said}" if _others(table) else thick
    return f"{said}. P of {label('delta_gap')}: {GAP_PAIRS}"


def _others(table: OutcomeTable) -> list[str]:
    strong = strong_arms(table.arms)
    return [arm for arm in table.arms if arm not in strong]


def _means(table: OutcomeTable, arm: str, metric: str) -> list[float | None]:
    return [table.mean(arm, number, metric) for number in range(table.last_round_of(arm) + 1)]
