"""What the grid's step writes: figures and rubrics by generator and policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dynamicrubric.evaluation import MeasuredSet, rubric_figures, rubric_row
from dynamicrubric.evaluationfiles import RUBRIC_TYPES

FIGURES_FILE: Final = "metrics.json"
RUBRICS_FILE: Final = "rubrics.parquet"
_NAMES: Final[dict[str, str]] = {"generator": "string", "policy": "string"}


def write_grid(measured: Mapping[tuple[str, str], Sequence[MeasuredSet]], out_dir: Path) -> None:
    """Write metrics.json (generator, policy, figure) and rubrics.parquet, a row a rubric.

    Args:
        measured: the measured sets by (generator, policy).
        out_dir: an empty folder.
    """
    import pandas as pd

    figures: dict[str, dict[str, dict[str, object]]] = {}
    rows = []
    for (generator, policy), sets in measured.items():
        figures.setdefault(generator, {})[policy] = {
            name: {"value": mean.value, "n_scored": mean.n_scored, "n_total": mean.n_total}
            for name, mean in rubric_figures(sets).items()
        }
        rows += [{"generator": generator, "policy": policy, **rubric_row(one)} for one in sets]
    text = json.dumps({"metrics": figures}, indent=1) + "\n"
    (out_dir / FIGURES_FILE).write_text(text, encoding="utf-8")
    types = _NAMES | RUBRIC_TYPES
    frame = pd.DataFrame(rows, columns=list(types)).astype(types)
    frame.to_parquet(out_dir / RUBRICS_FILE, index=False)
