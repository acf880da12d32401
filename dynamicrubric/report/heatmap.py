"""The G x P grid in one picture: a panel a metric, generators down, policies across.

Each panel has its own scale, since R_dir and ranks do not share one; every value is written in its
field, so that no colour has to be read off.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.grid import G_STALE, GENERATORS, NEEDS, POLICIES
from dynamicrubric.metrics import GAP_PAIRS, ROUND_METRICS
from dynamicrubric.report.figures import (
    CAPTION_COLOUR,
    DOTS_PER_INCH,
    MARK_COLOUR,
    STYLE,
    save_figure,
)
from dynamicrubric.report.gridtable import GridTable
from dynamicrubric.report.phrases import capital, mean_over

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS: Final = ("delta_gap", "r_disc", "r_dir", "rank_accuracy", "tie_rate")
ROW_NAMES: Final = {
    "G_0": "G_0\nnot trained",
    "G_1": "G_1\ntrained on P_0",
    "G_2": "G_2\ntrained on P_1",
    G_STALE: f"{G_STALE}\ntrained on P_0 again",
}
COLOURS: Final = "cividis"  # told apart with any colour blindness, and in grey
NO_VALUE: Final = "#BBBBBB"
DARK: Final = 0.55
"""Share of the scale below which the writing is white."""


def heat_map(table: GridTable, mark: str = "") -> Figure:
    """Draw the grid: mean over seeds, with three or more of them also its standard error.

    Args:
        table: the grid; without rows the picture says what is missing.
        mark: what has to be said of the figures on the picture itself.
    """
    # Imported here: matplotlib costs a second. `Figure` instead of pyplot: no global state.
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        size = (15.0, 4.4) if table.rows else (9.0, 1.6)
        figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
        caption = "; ".join(filter(None, (mark, _caption(table))))
        colour = MARK_COLOUR if mark else CAPTION_COLOUR
        figure.suptitle(caption, fontsize=11, color=colour, x=0.01, ha="left")
        if not table.rows:
            figure.text(0.5, 0.5, f"No G x P grid in this plan: it takes\n{NEEDS}.", ha="center",
                        va="center", fontsize=11)  # fmt: skip
            return figure
        for number, axes in enumerate(figure.subplots(1, len(PANELS))):
            _draw_panel(axes, table, PANELS[number], named=number == 0)
    return figure


def draw_grid(table: GridTable, path: Path, mark: str = "") -> tuple[Path, Path]:
    """Draw and save the grid; return the paths of the PNG and of the SVG beside it."""
    return save_figure(heat_map(table, mark), path)


def _draw_panel(axes: Axes, table: GridTable, metric: str, *, named: bool) -> None:
    import numpy as np
    from matplotlib import colormaps

    facts = ROUND_METRICS[metric]
    means = [[table.mean(g, p, metric) for p in POLICIES] for g in GENERATORS]
    values = np.array(means, dtype=np.float64)
    low, high = np.nanmin(values, initial=np.inf), np.nanmax(values, initial=-np.inf)
    colours = colormaps[COLOURS].with_extremes(bad=NO_VALUE)
    axes.imshow(np.ma.masked_invalid(values), cmap=colours, aspect="auto")
    axes.set_title(f"{capital(facts.label)}\n{facts.direction} is better", fontsize=12)
    axes.set_xticks(range(len(POLICIES)), POLICIES)
    axes.set_yticks(range(len(GENERATORS)), [ROW_NAMES[g] if named else "" for g in GENERATORS])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if named:
        axes.set_ylabel("generator")
    axes.set_xlabel("on held-out responses of")
    for row, generator in enumerate(GENERATORS):
        for column, policy in enumerate(POLICIES):
            value = means[row][column]
            dark = value is not None and (value - low) <= DARK * (high - low)
            error = table.standard_error(generator, policy, metric)
            text = facts.show(value) + (
                f"\n\u00b1 {facts.show(error)}" if error is not None else ""
            )
            axes.text(column, row, text, ha="center", va="center", fontsize=11,
                      color="white" if dark else "black")  # fmt: skip


def _caption(table: GridTable) -> str:
    if not table.seeds:
        return ""
    errors = any(table.standard_error(g, p, m) is not None
                 for g in GENERATORS for p in POLICIES for m in PANELS)  # fmt: skip
    plus = " \u00b1 standard error over seeds" if errors else ""
    scale = "each panel has its own scale, brighter is more"
    return f"{mean_over([len(table.seeds)])}{plus}; {scale}. P: {GAP_PAIRS}"
