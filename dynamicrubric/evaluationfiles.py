"""The files of a round's evaluation: metrics.json and tables as parquet, with their columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Final

from dynamicrubric.evaluation import Evaluation, MeasuredSet, Quality, SampledSet, rubric_row
from dynamicrubric.evaluators.judging import ResponseSet, failure_of

BEFORE_FILE: Final = "before.parquet"
"""The round's generator on the sets of the round before: columns of the rubrics' table."""


def write_evaluation(evaluation: Evaluation, out_dir: Path) -> None:
    """Write metrics.json and the tables as parquet; anchors.parquet where there are such lists."""
    import pandas as pd

    document = {
        "metrics": {
            name: {"value": m.value, "n_scored": m.n_scored, "n_total": m.n_total}
            for name, m in evaluation.metrics.items()
        }
    }
    (out_dir / "metrics.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    tables = {
        "responses": (evaluation.responses, RESPONSE_TYPES),
        "rubrics": (evaluation.rubrics, RUBRIC_TYPES),
        "verdicts": (evaluation.verdicts, VERDICT_TYPES),
    }
    if evaluation.anchors:
        tables["anchors"] = (evaluation.anchors, ANCHOR_TYPES)
    for name, (rows, types) in tables.items():
        frame = pd.DataFrame(rows, columns=list(types)).astype(types)
        frame.to_parquet(out_dir / f"{name}.parquet", index=False)


def write_before(measured: Sequence[MeasuredSet], out_dir: Path) -> None:
    """Write what the round's generator wrote for the sets of the round before, a row a rubric."""
    import pandas as pd

    rows = [rubric_row(one) for one in measured]
    frame = pd.DataFrame(rows, columns=list(RUBRIC_TYPES)).astype(RUBRIC_TYPES)
    frame.to_parquet(out_dir / BEFORE_FILE, index=False)


def read_sets(evaluation_dir: Path) -> tuple[list[SampledSet], Quality]:
    """Read the held-out response sets that an evaluation sampled, in its order.

    Args:
        evaluation_dir: an artefact of `evaluate_round`.

    Returns:
        The sets, without token ids and KL, and the true quality that was measured of each response,
        None where nobody knows it.
    """
    import pandas as pd

    columns = [
        "prompt_id", "prompt", "set_index", "sample_index", "text", "true_quality", "score_reason",
    ]  # fmt: skip
    table = pd.read_parquet(evaluation_dir / "responses.parquet", columns=columns)
    sets = []
    for (prompt_id, index), unordered in table.groupby(["prompt_id", "set_index"], sort=False):
        rows = unordered.sort_values("sample_index")
        texts = tuple(str(text) for text in rows["text"])
        failures = tuple(failure_of(reason) for reason in rows["score_reason"])
        responses = ResponseSet(
            str(prompt_id), str(rows["prompt"].iloc[0]), texts, failures if any(failures) else ()
        )
        sets.append(SampledSet(f"{prompt_id}/{index}", responses, (), ()))
    names = zip(table["prompt_id"].map(str), table["text"].map(str), strict=True)
    values = [None if pd.isna(value) else float(value) for value in table["true_quality"]]
    there = [failure_of(reason) is None for reason in table["score_reason"]]
    known = dict(compress(zip(names, values, strict=True), there))
    return sets, lambda prompt_id, text: known[prompt_id, text]


_TEXT, _FLOAT, _INT, _BOOL = "string", "Float64", "Int64", "boolean"
RESPONSE_TYPES = {
    "prompt_id": _TEXT, "prompt": _TEXT, "set_index": _INT, "sample_index": _INT,
    "response_id": _TEXT, "text": _TEXT, "text_hash": _TEXT, "num_tokens": _INT,
    "finish_reason": _TEXT, "true_quality": _FLOAT, "score": _FLOAT, "score_reason": _TEXT,
    "kl": _FLOAT,
}  # fmt: skip
RUBRIC_TYPES = {
    "rubric_id": _TEXT, "prompt_id": _TEXT, "set_index": _INT, "text": _TEXT, "valid": _BOOL,
    "invalid_reason": _TEXT, "num_items": _INT, "delta_gap": _FLOAT, "r_disc": _FLOAT,
    "r_dir": _FLOAT, "r_cov": _FLOAT, "rank_accuracy": _FLOAT, "tie_rate": _FLOAT,
}  # fmt: skip
ANCHOR_TYPES = {
    "rubric_id": _TEXT, "prompt_id": _TEXT, "set_index": _INT, "anchor_rank_accuracy": _FLOAT,
    "anchor_delta_gap": _FLOAT, "anchor_r_anchor": _FLOAT, "num_verdicts": _INT,
    "num_unscored": _INT,
}  # fmt: skip
VERDICT_TYPES = {
    "response_id": _TEXT, "rubric_id": _TEXT, "item_index": _INT, "criterion": _TEXT,
    "weight": _INT, "verdict": _TEXT, "reason": _TEXT, "p_yes": _FLOAT,
}  # fmt: skip
