"""The plan in one picture: arms as lines through cells, cells that arms share as one point.

A row is the arm that gives its cells their names. A line leaves its arm's row where it passes
through a cell of another arm, so what is shared is where lines meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan
from dynamicrubric.planview import LatticeRow, lattice_rows, ranges
from dynamicrubric.report.lines import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS: Final = (".svg", ".png", ".pdf")
SPREAD: Final = 0.6
"""Height, in rows, over which the lines through a shared cell are spread."""


def check_name(path: Path) -> None:
    """Raise a UserError if no lattice can be drawn to a file of this name."""
    got = f"a name that ends in {path.suffix!r}" if path.suffix.lower() not in FORMATS else None
    if not path.parent.is_dir():
        got = "no such folder"
    elif path.is_dir():
        got = "a folder"
    if got is not None:
        raise UserError(
            doing=f"drawing the plan to {path}",
            got=got,
            expected=f"a file in a folder that exists, ending in {' or '.join(FORMATS)}",
        )


def draw_lattice(plan: Plan, path: Path) -> None:
    """Draw the lattice to an SVG, PNG or PDF.

    Raises:
        UserError: the file's name ends otherwise, or its folder does not exist.
    """
    check_name(path)
    # Imported here: matplotlib costs a second.
    import matplotlib
    from matplotlib.figure import Figure

    rows = lattice_rows(plan)
    rounds = max(len(row.cells) for row in rows)
    settings: dict[Any, Any] = {
        "font.family": ["DejaVu Sans"],
        "text.parse_math": False,
        "svg.hashsalt": "dynamicrubric",  # equal plans give equal files
    }
    dateless: dict[str, dict[str, None]] = {
        ".svg": {"Date": None, "Creator": None},
        ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(3.5 + 2.0 * rounds, 1.4 + 0.42 * len(rows)), layout="constrained")
        axes = figure.subplots()
        _draw(axes, rows, rounds)
        title = f"{len(plan.cells)} cells to train for {plan.num_arm_rounds} rounds of arms x seeds"
        axes.set_title(title, loc="left")
        figure.savefig(path, dpi=150, metadata=dateless.get(path.suffix))


def _draw(axes: Axes, rows: Sequence[LatticeRow], rounds: int) -> None:
    places: dict[str, int] = {}
    through: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        for key in map(_seedless, row.cells):
            places.setdefault(key, number)
            through.setdefault(key, []).append(number)
    for number, row in enumerate(rows):
        colour = COLOURS[number % len(COLOURS)]
        heights = [_height(number, through[key], places[key]) for key in map(_seedless, row.cells)]
        axes.plot(range(len(heights)), heights, color=colour, linewidth=1.8, zorder=1)
        label = f"{row.arm}  (seed{'s' * (len(row.seeds) > 1)} {ranges(row.seeds)})"
        axes.annotate(label, (len(heights) - 1, heights[-1]), xytext=(12, 0), fontsize=9,
                      textcoords="offset points", va="center", color=colour)  # fmt: skip
    for key, lines in through.items():
        place = (int(key.rpartition("-r")[2]), places[key])
        axes.scatter(*place, s=50 if len(lines) == 1 else 170, color="#222222", zorder=2)
        if len(lines) > 1:
            axes.annotate(str(len(lines)), place, ha="center", va="center",
                          color="white", fontsize=8, zorder=3)  # fmt: skip
    _style(axes, len(rows), rounds)


def _height(number: int, lines: Sequence[int], place: int) -> float:
    """Return where a line passes a cell: lines through a shared one are side by side."""
    if len(lines) == 1:
        return float(place)
    return place + SPREAD * ((lines.index(number) + 0.5) / len(lines) - 0.5)


def _style(axes: Axes, num_rows: int, rounds: int) -> None:
    axes.set_xticks(range(rounds), [f"round {number}" for number in range(rounds)])
    axes.set_xlim(-0.2, rounds - 0.1)
    axes.set_ylim(num_rows - 0.4, -0.6)
    axes.set_yticks([])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("a point is a cell; a number on it, how many arms share it", loc="left")


def _seedless(key: str) -> str:
    """Return the key without its seed: seeds of an arm look alike."""
    name, _, number = key.rpartition("-r")
    return f"{name.rpartition('-s')[0]}-r{number}"
