"""The pictures of the probes: gains by round, and proxy against gold by round.

In `probes.png` a panel is an attack: first-order ones twice, with the rubric kept and with a rubric
written anew, second-order ones below. Score gained is a full line with its interval, true quality
gained is always there beside it, dotted with hollow markers; all panels share one scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dynamicrubric.probes.course import EVEN, Course
from dynamicrubric.probes.figures import AttackFigure, Gain
from dynamicrubric.probes.names import FIRST_ORDER, REFERENCES, SECOND_ORDER, Reference
from dynamicrubric.report.charts import CHART_STYLE, Chart
from dynamicrubric.report.figures import (
    CAPTION_COLOUR,
    DOTS_PER_INCH,
    MARK_COLOUR,
    save_figure,
)
from dynamicrubric.report.lines import COLOURS, MARKERS, breaking, strong_arms
from dynamicrubric.report.phrases import CERTAINTY, signed
from dynamicrubric.report.probetable import ProbedRound
from dynamicrubric.report.text import visible
from dynamicrubric.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS: Final = (
    ("first", "kept", "first order,\nrubric kept"),
    ("first", "seen", "first order,\nrubric written anew"),
    ("second", "seen", "second order"),
)
"""Order, mode and name of each row of panels."""
UNKNOWN: Final = "true quality:\nnobody knows it"
ONE_ROUND: Final = "one round: a panel shows where each arm is, and no course"
By = Mapping[tuple[str, int], ProbedRound]


def draw_probes(probed: Sequence[ProbedRound], folder: Path, mark: str = "") -> Chart:
    """Draw what attacks gain by round.

    Args:
        probed: arms in order, rounds rising.
        folder: where PNG and SVG go.
        mark: what has to be said of the figures on the picture itself.
    """
    # Imported here: matplotlib costs a second. `Figure` instead of pyplot: no global state.
    import matplotlib
    from matplotlib.figure import Figure

    columns = max(len(_names(order, mode, probed)) for order, mode, _ in ROWS)
    arms = strong_arms(list(dict.fromkeys(one.arm for one in probed)))
    with matplotlib.rc_context(CHART_STYLE):
        figure = Figure(figsize=(2.6 * columns + 1.2, 8.2), dpi=DOTS_PER_INCH, layout="constrained")
        panels = figure.subplots(len(ROWS), columns, sharex=True, sharey=True, squeeze=False)
        for row, (order, mode, name) in enumerate(ROWS):
            names = _names(order, mode, probed)
            for column, axes in enumerate(panels[row]):
                if column >= len(names):
                    axes.set_axis_off()
                    continue
                _draw_panel(axes, names[column], mode, arms, probed)
            panels[row][0].set_ylabel(f"{name}\ngain")
        _finish(figure, panels, arms, probed, mark)
        png, svg = save_figure(figure, folder / "probes.png", CHART_STYLE)
    title = "What attacks gain in score (full) and in true quality (dotted, hollow), by round"
    return Chart("probes", title, f"{title}; {_said(probed)}", png, svg, _note(probed))


def _names(order: str, mode: str, probed: Sequence[ProbedRound]) -> list[str]:
    known = FIRST_ORDER if order == "first" else SECOND_ORDER
    there = {a.attack for one in probed for a in one.attacks if (a.order, a.mode) == (order, mode)}
    return [name for name in known if name in there]


def _draw_panel(
    axes: Axes, attack: str, mode: str, arms: Sequence[str], probed: Sequence[ProbedRound]
) -> None:
    known = False
    for number, arm in reversed(list(enumerate(arms))):
        own = [
            (one.round, figure)
            for one in probed
            if one.arm == arm
            for figure in one.attacks
            if (figure.attack, figure.mode) == (attack, mode)
        ]
        if not own:
            continue
        shift = 0.06 * (number - (len(arms) - 1) / 2)  # intervals of arms beside each other
        rounds = [place + shift for place, _ in own]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        _draw_interval(axes, rounds, [figure.score for _, figure in own], colour)
        axes.plot(rounds, breaking([figure.score.mean for _, figure in own]), color=colour,
                  marker=marker, linewidth=1.8, markersize=5)  # fmt: skip
        quality = [figure.quality.mean for _, figure in own]
        known = known or any(value is not None for value in quality)
        axes.plot(rounds, breaking(quality), color=colour, marker=marker, linewidth=1.3,
                  linestyle=":", markersize=5, markerfacecolor="white")  # fmt: skip
    axes.axhline(0, color="#888888", linewidth=1, zorder=0)
    axes.set_title(attack.replace("_", " "), loc="left", fontsize=10.5, fontweight="bold")
    axes.grid(axis="y", color="#E2E2E2", linewidth=0.8)
    axes.set_axisbelow(True)
    if not known:
        axes.text(0.98, 0.98, UNKNOWN, transform=axes.transAxes, ha="right", va="top",
                  fontsize=7.5, color=CAPTION_COLOUR)  # fmt: skip


def _draw_interval(axes: Axes, rounds: Sequence[float], gains: Sequence[Gain], colour: str) -> None:
    for place, gain in zip(rounds, gains, strict=True):
        if gain.estimate.interval is not None:
            axes.plot([place, place], gain.estimate.interval, color=colour, linewidth=1.2)


def _finish(
    figure: Figure,
    panels: Any,  # noqa: ANN401 - an array of axes
    arms: Sequence[str],
    probed: Sequence[ProbedRound],
    mark: str,
) -> None:
    from matplotlib.lines import Line2D

    last = max(one.round for one in probed)
    for axes in panels[-1]:
        axes.set_xlabel("round")
        axes.set_xticks(range(last + 1))
        axes.set_xlim(-0.35, last + 0.35)
    handles = [
        Line2D([], [], color=COLOURS[n % len(COLOURS)], marker=MARKERS[n % len(MARKERS)],
               label=visible(arm))
        for n, arm in enumerate(arms)
    ]  # fmt: skip
    handles += [
        Line2D([], [], color=CAPTION_COLOUR, label=f"score, with {CERTAINTY} interval"),
        Line2D([], [], color=CAPTION_COLOUR, linestyle=":", marker="o", markerfacecolor="white",
               label="true quality"),
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), fontsize=10,
                  frameon=False)  # fmt: skip
    caption = "; ".join(filter(None, (visible(mark), "" if last else ONE_ROUND)))
    if caption:
        colour = MARK_COLOUR if mark else CAPTION_COLOUR
        figure.suptitle(caption, fontsize=10, color=colour, x=0.01, ha="left")


def _note(probed: Sequence[ProbedRound]) -> str:
    rounds = len({one.round for one in probed})
    basis = "a point is a mean over prompts and seeds; round 0 is the untrained evaluator"
    return f"{basis}; {ONE_ROUND}" if rounds == 1 else basis.capitalize()


def _said(probed: Sequence[ProbedRound]) -> str:
    """Return the largest gain of each arm's last round, for who does not see the picture."""
    ends = {one.arm: one for one in probed}
    parts = []
    for arm, one in ends.items():
        scored = [(a.score.mean, a) for a in one.attacks if a.score.mean is not None]
        if scored:
            gain, most = max(scored, key=lambda pair: pair[0])
            parts.append(f"{arm} {most.attack} {most.mode} {_both(gain, most)}")
    return f"most in the last round: {', '.join(parts)}" if parts else "nothing was scored"


def _both(gain: float, most: AttackFigure) -> str:
    return f"{signed(gain, 3)} score, {signed(most.quality.mean, 3)} true quality"


def draw_courses(rounds: Sequence[ProbedRound], folder: Path, mark: str = "") -> Chart:
    """Draw proxy against gold by round: a column an arm, a row an older policy."""
    import matplotlib
    from matplotlib.figure import Figure

    arms = list(dict.fromkeys(one.arm for one in rounds))
    with matplotlib.rc_context(CHART_STYLE):
        size = (3.4 * len(arms) + 1.0, 6.0)
        figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
        panels = figure.subplots(
            len(REFERENCES), len(arms), sharex=True, sharey=True, squeeze=False
        )
        for row, (reference, name) in enumerate(REFERENCES.items()):
            for column, arm in enumerate(arms):
                own = {one.round: one.courses for one in rounds if one.arm == arm}
                _draw_course(panels[row][column], own, reference)
                panels[0][column].set_title(visible(arm), loc="left", fontweight="bold")
            panels[row][0].set_ylabel(f"share of pairs won\nagainst {name}", fontsize=9.5)
        last = max(one.round for one in rounds)
        for axes in panels[-1]:
            axes.set_xlabel("round")
            axes.set_xticks(range(1, last + 1))
            axes.set_xlim(0.6, last + 0.4)
        _legend(figure, mark)
        png, svg = save_figure(figure, folder / "course.png", CHART_STYLE)
    title = "Proxy (the evaluator's own preference) against gold (the truth), by round"
    said = [f"{one.arm} round {one.round}" for one in rounds if one.diverges]
    return Chart("course", title, f"{title}; diverged: {', '.join(said) or 'none'}", png, svg)


def _draw_course(axes: Axes, own: Mapping[int, Sequence[Course]], reference: Reference) -> None:
    points: dict[str, list[tuple[int, Estimate]]] = {"proxy": [], "gold": []}
    for number, courses in own.items():
        by_name = {one.reference: one for one in courses}
        # In round 1 the start policy is the policy of the round before.
        found = by_name.get(reference) or (by_name.get("before") if number == 1 else None)
        if found is None:
            continue
        points["proxy"].append((number, found.proxy))
        points["gold"].append((number, found.gold))
        if found.diverges:
            axes.axvspan(number - 0.3, number + 0.3, color=MARK_COLOUR, alpha=0.15, linewidth=0)
    for place, (name, colour) in enumerate((("proxy", COLOURS[1]), ("gold", COLOURS[5]))):
        rounds = [number + 0.05 * (2 * place - 1) for number, _ in points[name]]
        values = [None if e.mean is None else e.mean + EVEN for _, e in points[name]]
        for at, (_, found_one) in zip(rounds, points[name], strict=True):
            if found_one.interval is not None:
                ends = [end + EVEN for end in found_one.interval]
                axes.plot([at, at], ends, color=colour, linewidth=1.4)
        axes.plot(rounds, breaking(values), color=colour, marker=MARKERS[place], linewidth=2)
    axes.axhline(EVEN, color="#888888", linewidth=1, zorder=0)
    axes.grid(axis="y", color="#E2E2E2", linewidth=0.8)
    axes.set_axisbelow(True)


def _legend(figure: Figure, mark: str) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Line2D([], [], color=COLOURS[1], marker=MARKERS[0], label="proxy"),
        Line2D([], [], color=COLOURS[5], marker=MARKERS[1], label="gold"),
        Patch(color=MARK_COLOUR, alpha=0.15, label="diverged"),
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=3, fontsize=10, frameon=False)
    if mark:
        figure.suptitle(visible(mark), fontsize=10, color=MARK_COLOUR, x=0.01, ha="left")
