"""A whole small study over a pretrained base: from files of ranked answers to the comparison."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.metrics import ANCHOR_METRICS, ROUND_METRICS
from dynamicrubric.yamlio import dump_yaml, load_yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "training"))
from languageworld import LORA, WORLD, write_anchors, write_base

pytestmark = pytest.mark.slow


@pytest.fixture
def language_study(project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A project whose params.yaml is of the world "language", with a server of its own."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect-home"))
    write_base(project.root / "checkpoint")
    write_anchors(project.root / "anchors.jsonl")
    params: dict[str, Any] = load_yaml(project.root / "params.yaml")
    params["world"] = {**WORLD, "anchors": ["anchors.jsonl"]}
    params["backbone"] = {"checkpoint": "checkpoint", "dtype": "float32", "lora": LORA}
    params["warm_start"]["policy"] = {"steps": 0, "batch_size": 1, "learning_rate": 1e-3}
    params["warm_start"]["generator"] = {"steps": 2, "batch_size": 4, "learning_rate": 1e-2}
    params["recipe"]["policy"] |= {"steps": 2, "truncated": "scored"}
    params["recipe"]["generator"] |= {"first_steps": 2, "max_tokens": 48}
    params["evaluation"]["sets_per_prompt"] = 6  # a quarter of the base's rubrics is valid
    params["recipe"]["verifier"]["max_unscored_rate"] = 1.0
    dump_yaml(params, project.root / "params.yaml")
    return project


def test_study_over_a_pretrained_base_ends_with_figures_of_held_out_anchors(language_study) -> None:
    language_study.flow("ablation")
    root = language_study.root
    for key in ("coevolved-s1-r1", "frozen-s1-r1"):
        metrics = json.loads((root / "data" / "runs" / key / "metrics.json").read_text())
        assert set(metrics) == ROUND_METRICS.keys() | ANCHOR_METRICS.keys()
        assert metrics["true_quality"] is None
        assert metrics["anchor_rank_accuracy"] is not None
        record = language_study.record(f"data/runs/{key}/policy")
        assert "adapter_model.safetensors" in record["files"]
        assert "model.safetensors" not in record["files"]
        assert "prepared" in record["inputs"]
    base = language_study.record("data/prepared")["files"]
    assert "base/model.safetensors" in base
    with (root / "results" / "metrics.csv").open() as stream:
        names = {row["metric"] for row in csv.DictReader(stream)}
    assert ANCHOR_METRICS.keys() <= names
    table = (root / "results" / "table.md").read_text(encoding="utf-8")
    assert "Evaluators before and after training" in table
    assert (root / "results" / "report" / "index.html").is_file()
    assert "Everything is up to date" in language_study.flow("ablation")
