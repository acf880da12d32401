"""The sweeps as a section of the page: a picture and a table for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.report.charts import BAND_ALPHA, CHART_STYLE, REFERENCE_COLOUR, Chart
from dynamicrubric.report.evidence import INTERVAL_MEANING, Grid
from dynamicrubric.report.figures import DOTS_PER_INCH, MARK_COLOUR, save_figure
from dynamicrubric.report.lines import COLOURS
from dynamicrubric.report.page import Section
from dynamicrubric.report.phrases import CERTAINTY, NOTHING, capital, number, signed, span
from dynamicrubric.report.sweeps import SWEPT, WRONG_WAY, Sweep, SweepPoint
from dynamicrubric.report.text import visible
from dynamicrubric.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE: Final = "Anchors: where do they stop helping?"
LEAD: Final = (
    "Arms that differ in one setting of the anchors alone, in their last round. The dashed line is "
    "the arm that is paid for discriminability and reads no anchors: as long as true quality stays "
    "above it, anchors help."
)
LABELS: Final[Mapping[str, str]] = {
    "true_quality": "true quality",
    "delta_gap": "Δ gap",
    WRONG_WAY: "pairs scored the wrong way",
}
SETTING_LABELS: Final[Mapping[str, str]] = {
    "anchor_swap_rate": "probability of each swap of neighbours in an anchor list",
    "anchor_shuffle_rate": "share of anchor lists in random order (half of it: wrong pairs)",
    "num_anchors": "anchors of a list that training reads",
    "anchor_source": "distribution of the anchors",
}


def sweeps_section(sweeps: Sequence[Sweep], folder: Path, mark: str = "") -> tuple[Section, ...]:
    """Return the page's section and draw its pictures; none without a sweep.

    Args:
        sweeps: as `sweeps_of` returns them.
        folder: where PNG and SVG files go.
        mark: what has to be said on each picture; a partial report's mark.
    """
    if not sweeps:
        return ()
    charts = tuple(
        _chart(one, _name(sweeps[: place + 1]), folder, mark) for place, one in enumerate(sweeps)
    )
    grids = tuple(_grid(one) for one in sweeps)
    wrong = "share of the pairs that true quality orders whose scores are in the other order"
    above = (
        "true quality less that of the arm without anchors, paired by prompt; an interval that "
        "holds 0 shows no help, which is not that there is none; not corrected for their number"
    )
    notes = (
        (LABELS[WRONG_WAY], wrong),
        ("above no anchors", above),
        (CERTAINTY, INTERVAL_MEANING.replace("mean difference", "mean")),
    )
    return (Section("sweeps", TITLE, LEAD, charts, grids, notes=notes),)


def _name(sweeps: Sequence[Sweep]) -> str:
    """Return the last one's name: a setting that several families of arms sweep is numbered."""
    setting = sweeps[-1].setting
    before = sum(one.setting == setting for one in sweeps[:-1])
    return f"sweep_{setting}" + (f"_{before + 1}" if before else "")


def _grid(sweep: Sweep) -> Grid:
    heads = ["value", "arm", "seeds"]
    for name in (*map(LABELS.__getitem__, SWEPT), "above no anchors"):
        heads += [name, CERTAINTY]
    points = (*sweep.points, *([sweep.none] if sweep.none else []))
    rows = tuple(
        (
            shown_value(point),
            visible(point.arm),
            str(len(point.seeds)),
            *(cell for name in SWEPT for cell in _cells(point.figures[name], is_change=False)),
            *_cells(point.above_none, is_change=True),
        )
        for point in points
    )
    return Grid(capital(SETTING_LABELS[sweep.setting]), tuple(heads), rows)


def shown_value(point: SweepPoint) -> str:
    """Return a point's value of the setting as a person reads it."""
    return f"{point.value:g}" if not isinstance(point.value, str) else point.value


def _cells(one: Estimate | None, *, is_change: bool) -> tuple[str, str]:
    if one is None:
        return NOTHING, NOTHING
    mean = signed(one.mean) if is_change else number(one.mean, 4)
    if one.interval is None:
        return mean, "none"
    show = signed if is_change else number
    return mean, f"{show(one.interval[0], 4)} to {show(one.interval[1], 4)}"


def _chart(sweep: Sweep, name: str, folder: Path, mark: str) -> Chart:
    # Imported here: matplotlib costs a second. `Figure` instead of pyplot: no global state.
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(CHART_STYLE):
        figure = Figure(figsize=(10.5, 3.9), dpi=DOTS_PER_INCH, layout="constrained")
        if mark:
            figure.suptitle(visible(mark), fontsize=10, color=MARK_COLOUR, x=0.01, ha="left")
        for axes, metric in zip(figure.subplots(1, len(SWEPT)), SWEPT, strict=True):
            _draw_panel(axes, sweep, metric)
        figure.supxlabel(SETTING_LABELS[sweep.setting], fontsize=11)
        png, svg = save_figure(figure, folder / f"{name}.png", CHART_STYLE)
    said = ", ".join(
        f"{shown_value(point)}: {number(point.figures[SWEPT[0]].mean, 3)}" for point in sweep.points
    )
    title = f"True quality, gap and pairs scored the wrong way, by {SETTING_LABELS[sweep.setting]}"
    seeds = span([len(point.seeds) for point in sweep.points], "seed")
    note = f"A point: {seeds}; bands and bars are {CERTAINTY} intervals"
    return Chart(name, title, f"{title}; true quality at {said}", png, svg, note)


def _draw_panel(axes: Axes, sweep: Sweep, metric: str) -> None:
    kinds = any(isinstance(point.value, str) for point in sweep.points)
    known = [
        (place if kinds else float(point.value), point.figures[metric])
        for place, point in enumerate(sweep.points)
        if point.figures[metric].mean is not None
    ]
    colour = COLOURS[1]
    places = [place for place, _ in known]
    means = [float(one.mean or 0.0) for _, one in known]
    low, high = ([(one.interval or (mean, mean))[end] for (_, one), mean in zip(known, means,
                 strict=True)] for end in (0, 1))  # fmt: skip
    if kinds:
        for place, below, above in zip(places, low, high, strict=True):
            axes.plot([place, place], [below, above], color=colour, linewidth=2.2)
        axes.plot(places, means, "o", color=colour, markersize=7)
        axes.set_xticks(range(len(sweep.points)), [shown_value(p) for p in sweep.points])
        axes.set_xlim(-0.5, len(sweep.points) - 0.5)
    else:
        axes.fill_between(places, low, high, color=colour, alpha=BAND_ALPHA * 1.5, linewidth=0)
        axes.plot(places, means, color=colour, marker="o", linewidth=2.0, markersize=5.5)
        axes.set_xticks(places, [f"{place:g}" for place in places])
    none = sweep.none.figures[metric].mean if sweep.none else None
    if none is not None:
        axes.axhline(none, color=REFERENCE_COLOUR, linestyle="--", linewidth=1.2)
        axes.annotate("no anchors", xy=(1.0, none), xycoords=("axes fraction", "data"), ha="right",
                      va="bottom", fontsize=9, color=REFERENCE_COLOUR)  # fmt: skip
    axes.set_title(capital(LABELS[metric]), loc="left", fontweight="bold", fontsize=12)
    axes.grid(axis="y", color="#E2E2E2", linewidth=0.8)
    axes.set_axisbelow(True)
