"""A round under each evaluator and switch that an arm may have, on the tiny world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dynamicrubric import steps
from dynamicrubric.evaluation import NO_RUBRIC
from dynamicrubric.metrics import ROUND_METRICS
from dynamicrubric.worlds.postcards.criteria import LOWEST_QUALITY, true_quality
from dynamicrubric.worlds.postcards.prompts import prompt_by_id

OF_NO_RUBRIC = {"true_quality", "response_length", "kl"}
"""Figures that need no rubric."""
TWO_RULES = '[{"criterion":"greets the reader","weight":3},{"criterion":"sends a wish","weight":3}]'


def evaluated(tiny: Any, where: Path, policy: Path, generator: Path, **changed: Any) -> Path:
    where.mkdir()
    steps.evaluate_round(
        recipe=tiny.recipe(**changed),
        policy_dir=str(policy),
        generator_dir=str(generator),
        start_policy_dir=str(tiny.policy),
        prepared_dir=str(tiny.prepared),
        out_dir=str(where),
    )
    return where


def figures(folder: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((folder / "metrics.json").read_text())["metrics"]
    return found


def test_oracles_round_trains_on_true_quality_and_measures_no_rubric(
    tiny: Any, tmp_path: Path
) -> None:
    oracle = {"rubrics": {"evaluator": "oracle"}, "generator_training": None}
    nobody = tmp_path / "no generator"
    run = tiny.train_policy(tmp_path / "run", generator=nobody, **oracle)
    rows = run.rollouts
    quality = [
        true_quality(prompt_by_id(key), text)
        for key, text in zip(rows["prompt_id"], rows["text"], strict=True)
    ]
    finished = rows["reward"] != LOWEST_QUALITY
    assert finished.any()
    assert rows["reward"][finished].tolist() == pd.Series(quality)[finished].tolist()
    assert rows["score"].isna().all() and rows["rubric"].isna().all()
    assert set(rows["score_reason"]) == {NO_RUBRIC}
    for line in run.log:
        assert -1.0 <= line["metrics"]["true_quality"] <= 1.0
        assert not {"score", "rate/invalid_rubric", "rate/unscored_verdict"} & set(line["metrics"])

    folder = evaluated(tiny, tmp_path / "evaluation", run.out, nobody, **oracle)
    found = figures(folder)
    assert found.keys() == set(ROUND_METRICS) - {"seconds"}
    for name, figure in found.items():
        assert (figure["value"] is not None) == (name in OF_NO_RUBRIC), name
        assert (figure["n_scored"] > 0) == (name in OF_NO_RUBRIC), name
    assert set(pd.read_parquet(folder / "responses.parquet")["score_reason"]) == {NO_RUBRIC}
    rubrics = pd.read_parquet(folder / "rubrics.parquet")
    assert len(rubrics) == found["delta_gap"]["n_total"] > 0
    assert rubrics[["text", "valid", "invalid_reason", "delta_gap"]].isna().all(axis=None)
    assert pd.read_parquet(folder / "verdicts.parquet").empty


def test_rule_based_round_scores_by_one_rubric_that_no_model_writes(
    tiny: Any, tmp_path: Path
) -> None:
    rules = {"rubrics": {"evaluator": "rule_based"}, "generator_training": None}
    nobody = tmp_path / "no generator"
    run = tiny.train_policy(tmp_path / "run", generator=nobody, **rules)
    assert set(run.rollouts["rubric"]) == {TWO_RULES}
    folder = evaluated(tiny, tmp_path / "evaluation", run.out, nobody, **rules)
    assert set(pd.read_parquet(folder / "rubrics.parquet")["text"]) == {TWO_RULES}
    assert figures(folder)["valid_rubric_rate"]["value"] == 1.0


def test_equal_weights_count_items_alike_in_training_and_measurement(
    tiny: Any, tmp_path: Path
) -> None:
    kept = tiny.keep_rubrics(tmp_path / "kept")  # two items, of weights 2 and 1
    scores = {}
    for weights in ("written", "equal"):
        static = {"rubrics": {"evaluator": "static", "weights": weights}}
        run = tiny.train_policy(tmp_path / weights, generator=kept, **static)
        first = run.rollouts.query("step == 1 and score == score")
        scores[weights] = first["score"].tolist()
        counted = [
            (2 * a + b) / 3 if weights == "written" else (a + b) / 2
            for a, b in ((v[0] == "yes", v[1] == "yes") for v in first["verdicts"])
        ]
        assert scores[weights] == pytest.approx(counted)
        folder = evaluated(tiny, tmp_path / f"{weights}-e", run.out, kept, **static)
        table = pd.read_parquet(folder / "verdicts.parquet")
        assert set(table["weight"]) == ({1, 2} if weights == "written" else {1})
        # What the generator wrote stays what it wrote.
        assert any('"weight":2' in t for t in pd.read_parquet(folder / "rubrics.parquet")["text"])
    assert len(scores["written"]) == len(scores["equal"]) > 0


def test_noisy_anchors_change_the_reward_of_anchors_alone(tiny: Any, tmp_path: Path) -> None:
    first = {}
    for rate in (0.0, 1.0):
        training = {"steps": 1, "anchor_swap_rate": rate}
        run = tiny.train_generator(tmp_path / str(rate), generator_training=training)
        first[rate] = run.rollouts
    clean, noisy = first[0.0], first[1.0]
    assert clean["text"].tolist() == noisy["text"].tolist()
    assert clean["r_disc"].tolist() == noisy["r_disc"].tolist()
    assert clean["r_anchor"].tolist() != noisy["r_anchor"].tolist()
