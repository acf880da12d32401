"""How pictures look and are stored: one set of fonts, equal figures give equal files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH: Final = 150
CAPTION_COLOUR: Final = "#444444"
MARK_COLOUR: Final = "#B00020"
"""Of what has to be said on a picture of a study that is not whole."""
STYLE: Final[dict[Any, Any]] = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so every machine draws the same
    "font.size": 12,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "svg.hashsalt": "dynamicrubric",  # equal figures give equal files
    "axes.spines.top": False,
    "axes.spines.right": False,
}
"""For `matplotlib.rc_context`, both where a figure is drawn and where it is saved."""


def save_figure(figure: Figure, path: Path, style: dict[Any, Any] = STYLE) -> tuple[Path, Path]:
    """Save a picture in the style it was drawn in; return the paths of the PNG and of its SVG."""
    import matplotlib

    svg = path.with_suffix(".svg")
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(style):
        figure.savefig(path, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return path, svg
