"""How arms are drawn as lines: which ones strong, in which colours, with names at their ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from dynamicrubric.report.findings import FINDINGS, FIRST_ARM
from dynamicrubric.report.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, told apart with any common colour blindness; yellow is too pale here.
COLOURS: Final = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
MAX_STRONG: Final = len(COLOURS)
"""More arms than this have no colour and no marker of their own."""
OTHERS_COLOUR: Final = "#B8BDC2"


class LineEnd(NamedTuple):
    """Where a line ends, and what is written there.

    Attributes:
        value: its last value.
        round: of this round.
        text: what is written.
        number: place of its arm among the strong ones.
    """

    value: float
    round: int
    text: str
    number: int


def strong_arms(arms: Sequence[str]) -> tuple[str, ...]:
    """Return the arms that are drawn strong: all if they are few, else those of the findings.

    >>> strong_arms([FIRST_ARM, *FINDINGS, "oracle"]) == (FIRST_ARM, *FINDINGS)
    True
    """
    if len(arms) <= MAX_STRONG:
        return tuple(arms)
    named = [arm for arm in arms if arm == FIRST_ARM or arm in FINDINGS]
    return tuple((named or list(arms))[:MAX_STRONG])


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


def label_ends(axes: Axes, ends: Sequence[LineEnd], gap: float, size: float) -> None:
    """Write a text at the right of each line in its colour, moved apart, with a thin leader.

    Args:
        axes: the panel, its limits final.
        ends: the lines' ends.
        gap: smallest distance between two texts, as a share of the panel's height.
        size: of the font, in points.
    """
    low, high = axes.get_ylim()
    places = spread([(end.value - low) / (high - low) for end in ends], gap)
    for end, place in zip(ends, places, strict=True):
        colour = COLOURS[end.number % len(COLOURS)]
        axes.annotate(
            visible(end.text),
            xy=(end.round, end.value),
            xytext=(1.05, place),
            textcoords="axes fraction",
            va="center",
            color=colour,
            fontsize=size,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkB": 4},
        )


def breaking(values: Sequence[float | None]) -> list[float]:
    """Return the values as matplotlib takes them: a line breaks where there is none."""
    return [float("nan") if value is None else value for value in values]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
