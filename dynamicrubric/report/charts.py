"""The report's pictures: curves by round, other arms as small multiples, differences as intervals.

A study may have many arms. Those that the paper's findings are about are drawn strong, each with
its name at its line's end; every other arm has a small panel of its own beside `coevolved`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dynamicrubric.metrics import GAP_PAIRS, ROUND_METRICS
from dynamicrubric.report.curves import CURVES, CurvePoint, curve_of
from dynamicrubric.report.differences import TABLES, Difference
from dynamicrubric.report.figures import DOTS_PER_INCH, MARK_COLOUR, STYLE, save_figure
from dynamicrubric.report.lines import (
    COLOURS,
    MARKERS,
    LineEnd,
    breaking,
    label_ends,
    strong_arms,
)
from dynamicrubric.report.phrases import CERTAINTY, capital, label, span
from dynamicrubric.report.text import visible
from dynamicrubric.report.words import verdict_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OTHERS_IN: Final = ("true_quality", "delta_gap")
REFERENCE_COLOUR: Final = "#666666"
WIDTH: Final = 4.9
LABEL_GAP: Final = 0.075
BAND_ALPHA: Final = 0.11
CHART_STYLE: Final = STYLE | {"font.size": 11, "axes.edgecolor": "#888888"}


@dataclass(frozen=True)
class Chart:
    """A picture on disk.

    Attributes:
        name: file name without its ending.
        title: what it shows.
        alt: the same in words, for who does not see it.
        note: what it rests on.
        png: the PNG.
        svg: the SVG.
    """

    name: str
    title: str
    alt: str
    png: Path
    svg: Path
    note: str = ""


def draw_charts(
    arms: Sequence[str],
    points: Sequence[CurvePoint],
    differences: Sequence[Difference],
    folder: Path,
    mark: str = "",
) -> tuple[Chart, ...]:
    """Draw every picture of the report.

    Args:
        arms: arm names, in the order of the study.
        points: the points of all curves.
        differences: the comparisons.
        folder: where PNG and SVG files go.
        mark: what has to be said on each picture; a partial report's mark.
    """
    folder.mkdir(parents=True, exist_ok=True)
    strong = strong_arms(arms)
    rest = [arm for arm in arms if arm not in strong]
    with _style():
        found = [_curve_chart(metric, strong, points, folder, mark) for metric in CURVES]
        for metric in OTHERS_IN if rest else ():
            found.append(_others_chart(metric, strong[0], rest, points, folder, mark))
        for metric in TABLES:
            own = [one for one in differences if one.metric == metric]
            if any(one.mean is not None for one in own):
                found.append(_difference_chart(metric, own, folder, mark))
    return tuple(found)


@contextmanager
def _style() -> Iterator[None]:
    # Imported here: matplotlib costs a second. `Figure` instead of pyplot: no global state.
    import matplotlib

    with matplotlib.rc_context(CHART_STYLE):
        yield


def _curve_chart(
    metric: str, strong: Sequence[str], points: Sequence[CurvePoint], folder: Path, mark: str
) -> Chart:
    figure, axes = _figure(WIDTH, 3.7, mark)
    ends: list[LineEnd] = []
    last = max((point.round for point in points), default=0)
    for number, arm in reversed(list(enumerate(strong))):  # the first arm ends up on top
        own = curve_of(points, arm, metric)
        _draw_line(axes, own, COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)])
        known = [point for point in own if point.mean is not None]
        if known and known[-1].mean is not None:
            ends.append(LineEnd(known[-1].mean, known[-1].round, arm, number))
    _finish(axes, metric, last)
    label_ends(axes, ends, LABEL_GAP, 10.5)
    said = ", ".join(f"{end.text} {end.value:.3f}" for end in reversed(ends))
    own = [point for point in points if point.metric == metric and point.arm in strong]
    title = f"{capital(label(metric))} by round"
    return _save(figure, folder, f"curve_{metric}", title, f"at the end: {said}", _basis(own))


def _basis(points: Sequence[CurvePoint]) -> str:
    """Say what the points of a picture rest on: seeds, rows, and what the bands are over."""
    seeds = span([len(point.seeds) for point in points], "seed")
    gap = any(point.metric == "delta_gap" for point in points)
    scored = span([point.n_scored for point in points], "scored row")
    over = sorted({point.over for point in points if point.over is not None})
    bands = f"bands over {' or '.join(over)}" if over else "no bands"
    said = f"A point: {seeds}, {scored}; {bands}"
    return f"{said}. P: {GAP_PAIRS}" if gap else said


def _others_chart(
    metric: str,
    reference: str,
    rest: Sequence[str],
    points: Sequence[CurvePoint],
    folder: Path,
    mark: str,
) -> Chart:
    rows = (len(rest) + 1) // 2
    figure, axes = _figure(WIDTH, 0.5 + 1.75 * rows, mark, rows=rows, columns=2)
    last = max((point.round for point in points), default=0)
    for place, panel in enumerate(axes):
        if place >= len(rest):
            panel.set_axis_off()
            continue
        _draw_line(panel, curve_of(points, reference, metric), REFERENCE_COLOUR, None)
        _draw_line(panel, curve_of(points, rest[place], metric), COLOURS[1], "o", size=4)
        _finish(panel, metric, last, title=visible(rest[place]), axis_names=False)
        if not any(one.mean is not None for one in curve_of(points, rest[place], metric)):
            panel.text(0.5, 0.5, "nothing scored", transform=panel.transAxes, ha="center",
                       color=REFERENCE_COLOUR)  # fmt: skip
    title = f"{capital(label(metric))} by round: each other arm (blue) beside {reference} (grey)"
    own = [point for point in points if point.metric == metric and point.arm in rest]
    alt = f"panels of {', '.join(rest)}"
    return _save(figure, folder, f"others_{metric}", title, alt, _basis(own))


def _difference_chart(metric: str, own: Sequence[Difference], folder: Path, mark: str) -> Chart:
    figure, axes = _figure(WIDTH, 1.2 + 0.34 * len(own), mark)
    for place, found in enumerate(reversed(own)):
        if found.mean is None:
            axes.text(0, place, "no value", color=REFERENCE_COLOUR, va="center")
            continue
        shown = verdict_of(found) in ("higher", "lower")
        colour = COLOURS[1] if shown else REFERENCE_COLOUR
        if found.estimate.interval:
            axes.plot(found.estimate.interval, [place, place], color=colour, linewidth=2.2)
        face = colour if shown else "white"
        axes.plot([found.mean], [place], "o", color=colour, markerfacecolor=face, markersize=7)
    axes.axvline(0, color="#444444", linewidth=1)
    axes.set_yticks(range(len(own)), [visible(found.other) for found in reversed(own)])
    axes.set_ylim(-0.6, len(own) - 0.4)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.8)
    axes.set_xlabel(f"{own[0].arm} minus the arm, {label(metric)}")
    title = f"{capital(label(metric))}: {own[0].arm} minus each other arm, {CERTAINTY} intervals"
    alt = ", ".join(f"{one.other} {one.mean:+.3f}" for one in own if one.mean is not None)
    return _save(figure, folder, f"difference_{metric}", title, alt)


def _draw_line(
    axes: Axes, own: Sequence[CurvePoint], colour: str, marker: str | None, size: float = 5.5
) -> None:
    rounds = [point.round for point in own]
    means, low, high = (
        breaking([getattr(point, end) for point in own]) for end in ("mean", "low", "high")
    )
    axes.fill_between(rounds, low, high, color=colour, alpha=BAND_ALPHA, linewidth=0)
    axes.plot(rounds, means, color=colour, marker=marker, linewidth=2.0, markersize=size)


def _finish(
    axes: Axes, metric: str, last: int, *, title: str = "", axis_names: bool = True
) -> None:
    from matplotlib.ticker import MaxNLocator

    facts = ROUND_METRICS[metric]
    if axis_names:
        axes.set_xlabel("round (0: the untrained policy)")
    unit = f", {facts.unit}" if facts.unit not in ("score", "share") else ""
    axes.set_title(title or f"{capital(facts.label)}{unit}", loc="left", fontweight="bold",
                   fontsize=10 if title else 12)  # fmt: skip
    axes.set_xlim(-0.06 * max(last, 1), 1.04 * max(last, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5 if axis_names else 3))
    axes.grid(axis="y", color="#E2E2E2", linewidth=0.8)
    axes.set_axisbelow(True)
    low, high = axes.get_ylim()
    if low < 0 < high:
        axes.axhline(0, color="#888888", linewidth=1)


def _figure(
    width: float, height: float, mark: str, rows: int = 1, columns: int = 1
) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots(rows, columns, sharey=rows * columns > 1)  # panels are compared
    if mark:
        figure.suptitle(visible(mark), fontsize=10, color=MARK_COLOUR, x=0.01, ha="left")
    return figure, axes if rows * columns == 1 else list(axes.flat)


def _save(figure: Figure, folder: Path, name: str, title: str, alt: str, note: str = "") -> Chart:
    png, svg = save_figure(figure, folder / f"{name}.png", CHART_STYLE)
    return Chart(name, title, f"{title}; {alt}", png, svg, note)
