"""A study of an arm whose reward model is trained, from a clone to the report."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

pytestmark = pytest.mark.slow
ARMS = {
    "scalar": {
        "question": "What does a scalar reward model teach?",
        "evaluator": "scalar",
        "generator": {"update": "none"},
        "reward_model": {"steps": 4, "batch_size": 4, "learning_rate": 1e-3},
    },
    "length": {
        "question": "What does the length of responses teach?",
        "evaluator": "length",
        "generator": {"update": "none"},
    },
}


def test_study_of_scored_arms_trains_a_model_once_keeps_it_and_is_reported(
    project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect-home"))
    project.change(study__arms=ARMS, study__rounds=2, recipe__policy__steps=4)
    project.run(sys.executable, "-m", "dynamicrubric.cli", "plan")
    text = project.flow("ablation")
    models = [project.record(f"data/runs/scalar-s1-r{number}/generator") for number in (1, 2)]
    assert [one["step"] for one in models] == ["train_generator", "keep_generator"]
    assert models[0]["identity"]["training"] == ARMS["scalar"]["reward_model"]
    assert models[0]["content_hash"] == models[1]["content_hash"]
    assert "pairs in order" in project.log("scalar-s1-r1", "train_generator")
    length = project.record("data/runs/length-s1-r1/generator")
    assert length["step"] == "keep_generator"
    table = pd.read_csv(project.root / "results" / "metrics.csv")
    gaps = table[table["metric"] == "delta_gap"].set_index(["arm", "round"])["n_scored"]
    assert gaps["scalar", 0] == 0  # its model is not trained yet
    assert gaps["scalar", 2] > 0
    assert gaps["length", 0] > 0
    assert (project.root / "results" / "report" / "index.html").is_file(), text
    explained = project.run("dynamicrubric", "explain", "scalar-s1-r1")
    assert "scalar-s1-r1" in explained
