"""The files of a round's evaluation: metrics.json and tables as parquet, with their columns."""

from __future__ import annotations

import json
from pathlib import Path

from dynamicrubric.evaluation import Evaluation


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
