"""A round under each evaluator without verdicts, on the tiny world: what it trains and measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dynamicrubric import steps
from dynamicrubric.errors import InstrumentError
from dynamicrubric.evaluators.base import ScoredSet
from dynamicrubric.evaluators.limits import ScoreLimits, check_scores
from dynamicrubric.metrics import DERIVED_METRICS, ROUND_METRICS
from dynamicrubric.types import Score

KINDS = ("length", "random", "scalar", "scalar_set")
UNKNOWN = {"r_disc", "r_dir", "r_cov", "valid_rubric_rate", "items_per_rubric"}
REWARD = {"steps": 6, "batch_size": 8, "learning_rate": 1e-3}


@pytest.fixture(scope="module", params=KINDS)
def arm(request: pytest.FixtureRequest, tiny: Any, tmp_path_factory: Any) -> dict[str, Any]:
    """One round of an arm."""
    kind: str = request.param
    root = tmp_path_factory.mktemp(kind)
    recipe = {"rubrics": {"evaluator": kind}, "generator_training": None}
    generator = tiny.generator
    if kind.startswith("scalar"):
        recipe["reward_training"] = REWARD
        generator = tiny.train_generator(root / "model", **recipe).out
    policy = tiny.train_policy(root / "policy", generator=generator, **recipe)
    folders = {}
    for name, number, model, where in (
        ("start", 0, tiny.generator, tiny.policy), ("round", 1, generator, policy.out),
    ):  # fmt: skip
        folders[name] = root / name
        folders[name].mkdir()
        steps.evaluate_round(
            recipe=tiny.recipe(round=number, **recipe),
            policy_dir=str(where),
            generator_dir=str(model),
            start_policy_dir=str(tiny.policy),
            prepared_dir=str(tiny.prepared),
            out_dir=str(folders[name]),
            before_dir=str(folders["start"]) if number else None,
        )
    return {"kind": kind, "policy": policy, **folders}


def test_policy_is_rewarded_with_the_evaluators_scores(arm: dict[str, Any]) -> None:
    rows = arm["policy"].rollouts
    assert len(rows) == 3 * 2 * 4
    assert rows["score"].notna().all()
    earned = rows[rows["reward"] != 0.0]
    assert len(earned)
    assert (earned["reward"] == earned["score"]).all()
    assert rows["verdicts"].map(len).eq(0).all()
    assert rows["rubric"].isna().all()
    equal = rows.groupby(["step", "prompt_id", "text"])["score"].nunique()
    assert (equal == 1).all()


def test_round_has_the_figures_of_scores_and_none_of_verdicts(arm: dict[str, Any]) -> None:
    found = json.loads((arm["round"] / "metrics.json").read_text())["metrics"]
    assert found.keys() == ROUND_METRICS.keys() - {"seconds", *DERIVED_METRICS}
    assert {name for name, one in found.items() if one["value"] is None} == UNKNOWN
    assert -1.0 <= found["delta_gap"]["value"] <= 1.0
    table = pd.read_parquet(arm["round"] / "responses.parquet")
    assert table["score"].between(0.0, 1.0).all()
    before = pd.read_parquet(arm["round"] / "before.parquet")
    assert before["delta_gap"].notna().any()


def test_start_of_an_arm_whose_model_is_not_trained_yet_has_no_scores(arm: dict[str, Any]) -> None:
    table = pd.read_parquet(arm["start"] / "responses.parquet")
    if arm["kind"].startswith("scalar"):
        assert set(table["score_reason"]) == {"no_rubric"}
    else:
        assert table["score"].notna().all()


def test_gap_is_that_of_the_table(arm: dict[str, Any]) -> None:
    table = pd.read_parquet(arm["round"] / "responses.parquet")
    gaps = []
    for _, rows in table.groupby(["prompt_id", "set_index"]):
        places = rows[["true_quality", "score"]].astype(float).to_numpy().tolist()
        pairs = [a[1] - b[1] for a in places for b in places if a[0] > b[0]]
        gaps += [sum(pairs) / len(pairs)] if pairs else []
    found = json.loads((arm["round"] / "metrics.json").read_text())["metrics"]["delta_gap"]
    assert found["n_scored"] == len(gaps)
    assert found["value"] == pytest.approx(sum(gaps) / len(gaps))


def scored(*reasons: str | None) -> list[ScoredSet]:
    return [ScoredSet(tuple(Score.unscored(r) if r else Score.of(1.0) for r in reasons))]


@pytest.mark.parametrize(
    ("reasons", "part"),
    [
        (("too_long", "too_long", None), "2 of 3 responses of step 1 have no score"),
        (("failed_response:filter",) * 2, "max_unscored_rate"),
        (("invalid_rubric:not_json", None), "above max_invalid_rate 0.25"),
    ],
)
def test_evaluator_that_leaves_too_much_unscored_is_broken(
    reasons: tuple[str | None, ...], part: str
) -> None:
    with pytest.raises(InstrumentError, match=part):
        check_scores("step 1", scored(*reasons), ScoreLimits(0.5, 0.25))


def test_what_is_within_its_limits_is_counted() -> None:
    found = check_scores("step 1", scored("too_long", None, None, None), ScoreLimits(0.5, 0.0))
    assert found == {"rate/unscored_response": 0.25}


def test_evaluator_that_cannot_score_stops_the_training(tiny: Any, tmp_path: Path) -> None:
    class Broken:
        name, sees_set = "broken", False

        def score(self, sets: Any, seeds: Any) -> list[ScoredSet]:
            return [ScoredSet((Score.unscored("low_coverage"),) * 4) for _ in sets]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dynamicrubric.scoredparts.scoring_of", lambda *parts: Broken())
        with pytest.raises(InstrumentError, match="low_coverage"):
            tiny.train_policy(tmp_path, rubrics={"evaluator": "length"}, generator_training=None)
