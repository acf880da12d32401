"""The generators before and after each policy update as a section: picture and table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.metrics import GAP_PAIRS, ROUND_METRICS
from dynamicrubric.report.charts import CHART_STYLE, Chart
from dynamicrubric.report.evidence import (
    CORRECTED,
    HIGHER_MEANING,
    HIGHER_ON,
    INTERVAL_MEANING,
    Grid,
)
from dynamicrubric.report.figures import DOTS_PER_INCH, MARK_COLOUR, save_figure
from dynamicrubric.report.lines import COLOURS, MARKERS, LineEnd, label_ends, strong_arms
from dynamicrubric.report.page import Section
from dynamicrubric.report.phrases import (
    CERTAINTY,
    NOTHING,
    capital,
    count,
    label,
    p_text,
    share,
    signed,
    span,
)
from dynamicrubric.report.startpolicy import OnStartPolicy
from dynamicrubric.report.text import visible
from dynamicrubric.report.updates import Update

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN: Final = ("delta_gap", "r_disc")
"""Figures with a panel and columns of their own on the page; the CSV has all of `UPDATES`."""
TITLE: Final = "Before and after each policy update"
LEAD: Final = (
    "In round t the generator G_t supervises the update of the policy from P_(t-1) to P_t. It is "
    "measured on held-out responses of both: a full line goes from before the update to after it, "
    "a dotted one from there to the next round's generator on the same responses."
)


def updates_section(
    updates: Sequence[Update],
    start: Sequence[OnStartPolicy],
    arms: Sequence[str],
    folder: Path,
    mark: str = "",
) -> tuple[Section, ...]:
    """Return the page's section and draw its picture; none if nothing was measured before.

    Args:
        updates: as `updates_of` returns them.
        start: as `on_start_policy` returns them.
        arms: all arms in the order of the study; a large study shows those of the findings.
        folder: where the PNG and the SVG go.
        mark: what has to be said on the picture; a partial report's mark.
    """
    measured = {one.arm for one in updates}
    shown = [arm for arm in strong_arms(arms) if arm in measured]
    if not shown:
        return ()
    chart = _chart(updates, shown, folder, mark)
    notes: tuple[tuple[str, str], ...] = (
        (CERTAINTY, INTERVAL_MEANING.replace("difference", "change or difference")),
        (f"P of {label('delta_gap')}", GAP_PAIRS),
    )
    grids = [_grid(updates, shown)]
    compared = [one for one in start if one.metric == DRAWN[0]]
    if compared:
        grids.append(_start_grid(compared))
        notes += (
            (CORRECTED, f"p corrected by Holm, over {count(len(compared), 'arm')}"),
            (HIGHER_ON, HIGHER_MEANING),
        )
    return (Section("updates", TITLE, LEAD, (chart,), tuple(grids), notes=notes),)


def _start_grid(compared: Sequence[OnStartPolicy]) -> Grid:
    arm, name = compared[0].arm, label(compared[0].metric)
    facts = ROUND_METRICS[compared[0].metric]
    rows = tuple(
        (
            one.other,
            facts.show(one.theirs),
            facts.show(one.mine),
            signed(one.estimate.mean),
            _between(one.estimate.interval),
            one.estimate.over or NOTHING,
            p_text(one.estimate.p_value),
            p_text(one.p_corrected),
            share(one.estimate.superiority),
            str(len(one.by_seed)),
        )
        for one in compared
    )
    title = (
        f"{capital(name)} of the generators of round 1 on the start policy's responses, {arm} "
        "minus another arm: the policy is the same"
    )
    heads = ("other arm", "its mean", f"{arm}'s", "difference", CERTAINTY, "is over", "p")
    return Grid(title, (*heads, CORRECTED, HIGHER_ON, "seeds"), rows)


def _between(ends: tuple[float, float] | None) -> str:
    return "none" if ends is None else f"{signed(ends[0])} to {signed(ends[1])}"


def _grid(updates: Sequence[Update], shown: Sequence[str]) -> Grid:
    by_place = {(one.arm, one.round, one.metric): one for one in updates}
    heads = ["arm and round"]
    for metric in DRAWN:
        name = ROUND_METRICS[metric].label
        heads += [f"{name} before", "after", "change", CERTAINTY]
    places = [(arm, number) for arm, number, metric in by_place if metric == DRAWN[0]]
    rows = tuple(
        (
            f"{arm}, round {number}",
            *(cell for metric in DRAWN for cell in _cells(by_place[arm, number, metric])),
        )
        for arm, number in places
        if arm in shown
    )
    seeds = span([len(one.before) for one in updates if one.arm in shown], "seed")
    return Grid(f"Generators before and after the update under them, {seeds}", tuple(heads), rows)


def _cells(one: Update) -> tuple[str, ...]:
    shown = (ROUND_METRICS[one.metric].show(value) for value in one.means)
    return (*shown, signed(one.change.mean), _between(one.change.interval))


def _chart(updates: Sequence[Update], shown: Sequence[str], folder: Path, mark: str) -> Chart:
    # Imported here: matplotlib costs a second. `Figure` instead of pyplot: no global state.
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(CHART_STYLE):
        figure = Figure(figsize=(10.5, 4.2), dpi=DOTS_PER_INCH, layout="constrained")
        if mark:
            figure.suptitle(visible(mark), fontsize=10, color=MARK_COLOUR, x=0.01, ha="left")
        for axes, metric in zip(figure.subplots(1, len(DRAWN)), DRAWN, strict=True):
            _draw_panel(axes, [one for one in updates if one.metric == metric], shown)
        png, svg = save_figure(figure, folder / "updates.png", CHART_STYLE)
    names = " and ".join(label(metric) for metric in DRAWN)
    said = ", ".join(
        f"{one.arm} round {one.round} {signed(one.change.mean)}"
        for one in updates
        if one.metric == DRAWN[0] and one.arm in shown
    )
    title = f"{capital(names)} before and after each policy update"
    return Chart("updates", title, f"{title}; change of {label(DRAWN[0])}: {said}", png, svg)


def _draw_panel(axes: Axes, own: Sequence[Update], shown: Sequence[str]) -> None:
    ends: list[LineEnd] = []
    for number, arm in reversed(list(enumerate(shown))):  # the first arm ends up on top
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        last: tuple[int, float] | None = None
        for one in (one for one in own if one.arm == arm):
            before, after = one.means
            if before is None or after is None:
                last = None
                continue
            if last is not None and last[0] == one.round - 1:
                axes.plot([last[0]] * 2, [last[1], before], color=colour, linestyle=":")
            axes.plot([one.round - 1, one.round], [before, after], color=colour, marker=marker,
                      linewidth=2.0, markersize=5.5)  # fmt: skip
            last = (one.round, after)
        if last is not None:
            ends.append(LineEnd(last[1], last[0], arm, number))
    rounds = max(one.round for one in own)
    axes.set_title(capital(label(own[0].metric)), loc="left", fontweight="bold")
    axes.set_xlabel("on held-out responses of")
    axes.set_xticks(range(rounds + 1), [f"P_{number}" for number in range(rounds + 1)])
    axes.set_xlim(-0.06 * rounds, 1.04 * rounds)
    axes.grid(axis="y", color="#E2E2E2", linewidth=0.8)
    axes.set_axisbelow(True)
    if ends:
        label_ends(axes, ends, 0.075, 10.5)
