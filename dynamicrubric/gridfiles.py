"""What the grid's step reads and writes: held-out sets of an evaluation, figures and rubrics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dynamicrubric.evaluation import (
    MeasuredSet,
    Quality,
    SampledSet,
    rubric_figures,
    rubric_row,
)
from dynamicrubric.evaluationfiles import RUBRIC_TYPES
from dynamicrubric.evaluators.judging import ResponseSet

FIGURES_FILE: Final = "metrics.json"
RUBRICS_FILE: Final = "rubrics.parquet"
_NAMES: Final[dict[str, str]] = {"generator": "string", "policy": "string"}


def read_sets(evaluation_dir: Path) -> tuple[list[SampledSet], Quality]:
    """Read the held-out response sets that an evaluation sampled, in its order.

    Args:
        evaluation_dir: an artefact of `evaluate_round`.

    Returns:
        The sets, without token ids and KL, and the true quality that was measured of each response.
    """
    import pandas as pd

    columns = ["prompt_id", "prompt", "set_index", "sample_index", "text", "true_quality"]
    table = pd.read_parquet(evaluation_dir / "responses.parquet", columns=columns)
    sets = []
    for (prompt_id, index), rows in table.groupby(["prompt_id", "set_index"], sort=False):
        texts = tuple(str(text) for text in rows.sort_values("sample_index")["text"])
        responses = ResponseSet(str(prompt_id), str(rows["prompt"].iloc[0]), texts)
        sets.append(SampledSet(f"{prompt_id}/{index}", responses, (), ()))
    names = zip(table["prompt_id"].map(str), table["text"].map(str), strict=True)
    known = dict(zip(names, table["true_quality"].map(float), strict=True))
    return sets, lambda prompt_id, text: known[prompt_id, text]


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
