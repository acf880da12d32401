"""The study in one picture: true quality and Delta_gap by round, a line an arm.

Thin lines are seeds, thick ones their mean. Each line carries its arm's name at its end, in its own
colour and with its own marker, so that no legend has to be matched and no colour told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.metrics import ROUND_METRICS
from dynamicrubric.report.figures import (
    CAPTION_COLOUR,
    DOTS_PER_INCH,
    MARK_COLOUR,
    STYLE,
    save_figure,
)
from dynamicrubric.report.outcomes import OutcomeTable
from dynamicrubric.report.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS: Final = ("true_quality", "delta_gap")
# Okabe and Ito's palette, told apart with any common colour blindness; yellow is too pale here.
COLOURS: Final = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
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
    return save_figure(figure, path)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move label places apart until neighbours keep a distance, each as little as need be.

    Overlapping labels become one block that is centred on the mean of its members' places, and
    blocks that touch are joined (isotonic regression on the places less n x gap).

    >>> spread([0.5, 0.5], 0.1)
    [0.45, 0.55]
    """
    order = sorted(range(len(places)), key=lambda index: places[index])
    blocks: list[list[float]] = []  # shifted places of the members, in order
    for rank, index in enumerate(order):
        blocks.append([places[index] - rank * gap])
        while len(blocks) > 1 and _mean(blocks[-2]) >= _mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    flat = [_mean(block) for block in blocks for _ in block]
    moved = {index: flat[rank] + rank * gap for rank, index in enumerate(order)}
    return [round(moved[index], 12) for index in range(len(places))]


def _draw_panel(axes: Axes, table: OutcomeTable, metric: str) -> None:
    ends: list[tuple[float, int]] = []
    for number, arm in reversed(list(enumerate(table.arms))):  # the first arm ends up on top
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        rounds = range(table.last_round_of(arm) + 1)
        if len(table.seeds_of(arm)) > 1:
            for seed in table.seeds_of(arm):
                values = table.path(arm, seed, metric)
                axes.plot(_gaps(values), color=colour, linewidth=0.9, alpha=0.45)
        means = [table.mean(arm, number, metric) for number in rounds]
        axes.plot(_gaps(means), color=colour, marker=marker, linewidth=2.4, markersize=6.5)
        known = [value for value in means if value is not None]
        if known:
            ends.append((known[-1], number))
    _style(axes, table, metric)
    _label_ends(axes, table, ends)


def _style(axes: Axes, table: OutcomeTable, metric: str) -> None:
    from matplotlib.ticker import MaxNLocator

    facts = ROUND_METRICS[metric]
    axes.set_title(facts.label[0].upper() + facts.label[1:], loc="left", fontweight="bold")
    axes.set_xlabel("round (0: the untrained policy)")
    axes.set_ylabel(f"{facts.label} on held-out prompts")
    axes.set_xlim(-0.06 * table.last_round, 1.03 * table.last_round)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(y=0.08)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    low, high = axes.get_ylim()
    if low < 0 < high:
        axes.axhline(0, color="#888888", linewidth=1)


def _label_ends(axes: Axes, table: OutcomeTable, ends: Sequence[tuple[float, int]]) -> None:
    """Write each arm's name beside the end of its line, moved apart, with a thin leader."""
    low, high = axes.get_ylim()
    places = spread([(value - low) / (high - low) for value, _ in ends], LABEL_GAP)
    for (value, number), place in zip(ends, places, strict=True):
        colour = COLOURS[number % len(COLOURS)]
        axes.annotate(
            f"{visible(table.arms[number])}  {value:.3f}",
            xy=(table.last_round_of(table.arms[number]), value),
            xytext=(1.05, place),
            textcoords="axes fraction",
            va="center",
            color=colour,
            fontsize=11,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkB": 4},
        )


def _caption(table: OutcomeTable) -> str:
    span = seed_span(table)
    if span == "1":
        return "1 seed"
    return f"{span} seeds: thin lines; thick: their mean"


def seed_span(table: OutcomeTable) -> str:
    """Return how many seeds the arms have: one number, or the fewest and the most."""
    counts = sorted({len(table.seeds_of(arm)) for arm in table.arms})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _gaps(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
