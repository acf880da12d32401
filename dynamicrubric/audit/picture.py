"""The audit's picture: eta_res against J_anchor by round, and the slack that each beta leaves.

A point is a generator; its colour says what it was trained for. The bound is a line for each
policy: eta_res may not be above `-beta J_anchor - eps`. It is drawn for the beta of least mean
slack, and as steep as lambda = 1 would have it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from dynamicrubric.audit.bound import Points, points_of, slack_at, slacks
from dynamicrubric.audit.findings import Audit
from dynamicrubric.audit.read import Group
from dynamicrubric.report.charts import CHART_STYLE, Chart
from dynamicrubric.report.figures import DOTS_PER_INCH, MARK_COLOUR, save_figure
from dynamicrubric.report.lines import COLOURS, MARKERS
from dynamicrubric.report.phrases import number
from dynamicrubric.report.text import visible

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

TITLE: Final = "eta_res against J_anchor by round, and the slack by beta"
GREY: Final = "#8A9097"
FEW_LINES: Final = 8
"""More policies than this in a round have no line each for c_K: they would hide the points."""


def draw_audit(audit: Audit, folder: Path, mark: str = "") -> Chart:
    """Draw the picture into a folder.

    Args:
        audit: the figures.
        folder: where audit.png and audit.svg go.
        mark: what has to be said on the picture itself.
    """
    # Imported here: matplotlib costs a second. `Figure` instead of pyplot: no global state.
    import matplotlib
    from matplotlib.figure import Figure

    kinds = _kinds(audit)
    with matplotlib.rc_context(CHART_STYLE):
        columns = len(audit.rounds) + 1
        figure = Figure(figsize=(3.9 * columns, 4.4), dpi=DOTS_PER_INCH, layout="constrained")
        if mark:
            figure.suptitle(visible(mark), fontsize=10, color=MARK_COLOUR, x=0.01, ha="left")
        panels = list(figure.subplots(1, columns))
        for axes, one in zip(panels, audit.rounds, strict=False):
            _draw_round(axes, audit, one.round, kinds)
        _draw_slack(panels[-1], audit)
        handles, names = _legend(panels[:-1])
        figure.legend(handles, names, loc="outside lower left", ncols=6, frameon=False, fontsize=10)
        png, svg = save_figure(figure, folder / "audit.png", CHART_STYLE)
    found = audit.by_policy
    said = (
        f"best mean slack {number(found.mean.mean, 3)} at beta {number(found.mean.beta, 3)}, "
        f"{number(found.without.mean, 3)} at 0, {number(found.matched.mean, 3)} at c_K"
    )
    return Chart("audit", TITLE, f"{TITLE}; {said}", png, svg, f"A point is a generator; {said}")


def _kinds(audit: Audit) -> list[str]:
    found = {one.objective for group in audit.measured.groups for one in group.checkpoints}
    first = [name for name in ("full", "disc only", "anchor only") if name in found]
    last = [name for name in ("before training",) if name in found]
    return [*first, *sorted(found - {*first, *last}), *last]


def _draw_round(axes: Axes, audit: Audit, round_number: int, kinds: list[str]) -> None:
    groups = audit.measured.of_round(round_number)
    for group in groups:
        _draw_lines(axes, audit, group, steep=len(groups) <= FEW_LINES)
    for place, kind in enumerate(kinds):
        colour = GREY if kind == "before training" else COLOURS[place % len(COLOURS)]
        points = [
            (anchor, residual)
            for group in groups
            for one, anchor, residual in zip(
                group.checkpoints, group.means("j_anchor"), group.means("eta_res"), strict=True
            )
            if one.objective == kind
        ]
        if points:
            axes.plot(*zip(*points, strict=True), MARKERS[place % len(MARKERS)], color=colour,
                      markersize=5.5, alpha=0.8, markeredgewidth=0, label=kind)  # fmt: skip
    anchors = np.concatenate([group.means("j_anchor") for group in groups])
    residuals = np.concatenate([group.means("eta_res") for group in groups])
    for set_limits, values in ((axes.set_xlim, anchors), (axes.set_ylim, residuals)):
        margin = 0.08 * float(np.ptp(values)) or 0.05
        set_limits(float(values.min()) - margin, float(values.max()) + margin)
    axes.set_title(f"Round {round_number}", loc="left", fontweight="bold")
    axes.set_xlabel("J_anchor on held-out prompts, nats")
    axes.set_ylabel("eta_res = 2 R_dir + R_cov")
    axes.grid(color="#E2E2E2", linewidth=0.8)
    axes.set_axisbelow(True)


def _draw_lines(axes: Axes, audit: Audit, group: Group, *, steep: bool) -> None:
    """Draw the most that eta_res may be, for the best beta and for c_K."""
    anchor, residual = group.means("j_anchor"), group.means("eta_res")
    ends = np.array([anchor.min(), anchor.max()])
    for beta, style, name in (
        (audit.by_policy.mean.beta, "-", "bound at the beta of least mean slack"),
        *(((audit.c_k, ":", "bound at beta = c_K"),) if steep else ()),
    ):
        left = -residual - beta * anchor
        eps = float(left.min())
        axes.plot(ends, -beta * ends - eps, style, color="#222222", linewidth=1.0, alpha=0.7,
                  label=name)  # fmt: skip
        assert slacks(points_of([(anchor, residual)]), beta).min() >= -1e-12


def _draw_slack(axes: Axes, audit: Audit) -> None:
    groups = audit.measured.groups
    points: Points = points_of([(one.means("j_anchor"), one.means("eta_res")) for one in groups])
    best = max(audit.by_policy.mean.beta, audit.by_policy.largest.beta, 0.05)
    betas = np.linspace(0.0, min(audit.c_k, 3.0 * best), 121)
    found = [slack_at(points, float(beta)) for beta in betas]
    axes.plot(betas, [one.largest for one in found], color=COLOURS[0], linewidth=2, label="largest")
    axes.plot(betas, [one.mean for one in found], color=COLOURS[1], linewidth=2, label="mean")
    for one, value, colour in (
        (audit.by_policy.largest, audit.by_policy.largest.largest, COLOURS[0]),
        (audit.by_policy.mean, audit.by_policy.mean.mean, COLOURS[1]),
    ):
        axes.plot([one.beta], [value], "o", color=colour, markersize=7)
    axes.set_ylim(bottom=0.0)
    axes.set_title("Slack by beta", loc="left", fontweight="bold")
    axes.set_xlabel("beta")
    axes.set_ylabel("slack, in the unit of Δ gap")
    axes.legend(frameon=False)
    axes.grid(color="#E2E2E2", linewidth=0.8)
    axes.set_axisbelow(True)
    matched = audit.by_policy.matched
    axes.annotate(f"at beta = c_K = {number(audit.c_k)}: {number(matched.largest)}", (1.0, 0.02),
                  xycoords="axes fraction", ha="right", va="bottom", fontsize=10)  # fmt: skip


def _legend(panels: list[Axes]) -> tuple[list[Artist], list[str]]:
    found: dict[str, Artist] = {}
    for axes in panels:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    return list(found.values()), list(found)
