"""Evaluators without verdicts in the world "language": rated arms, and an adapter that rewards."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from safetensors.torch import load_file

from dynamicrubric import steps
from dynamicrubric.engines.choice import Engines
from dynamicrubric.engines.identity import checkpoint_hash
from dynamicrubric.engines.models import Models
from dynamicrubric.engines.reward import load_reward_model
from dynamicrubric.evaluators.build import build_evaluator
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.evaluators.spec import EvaluatorSpec
from dynamicrubric.training import reward_model
from dynamicrubric.worlds.prepared import load_prepared

sys.path.insert(0, str(Path(__file__).parent))
from languageworld import LanguageWorld, shared_world

JUDGE: dict[str, Any] = {"kind": "language_model", "coverage_floor": 0.0, "max_unscored_rate": 1.0}
REWARD = {"steps": 2, "batch_size": 4, "learning_rate": 1e-2}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> LanguageWorld:
    """A world whose first round is trained; made once a test run."""
    return shared_world(tmp_path_factory.getbasetemp())


def scored_arm(kind: str) -> dict[str, Any]:
    return {"rubrics": {"evaluator": kind}, "generator_training": None, "verifier": JUDGE}


def roles_in(artefact: Path) -> set[str]:
    """Return the roles of the engines that answered in the making of an artefact."""
    document = json.loads((artefact / "engines.json").read_text("utf-8"))
    return {one["role"] for one in document["engines"]}


@pytest.mark.parametrize("kind", ["geval", "flask", "pairwise", "length"])
def test_policy_learns_from_the_scores_of_its_arm(
    world: LanguageWorld, tmp_path: Path, kind: str
) -> None:
    arm = scored_arm(kind) | {"policy_training": {"steps": 1, "truncated": "scored"}}
    policy = world.train("policy", f"policy_{kind}", start="policy", **arm)
    assert roles_in(policy) == {"policy"} | ({"verifier"} if kind != "length" else set())
    rows = pd.read_parquet(policy / "rollouts.parquet")
    assert rows["score"].between(0.0, 1.0).all()
    assert (rows["reward"] == rows["score"]).all()
    steps.evaluate_round(
        recipe=world.recipe(**arm),
        policy_dir=str(policy),
        generator_dir=str(world.folder("generator")),
        start_policy_dir=str(world.folder("policy")),
        prepared_dir=str(world.folder("prepared")),
        out_dir=str(tmp_path),
    )
    found = json.loads((tmp_path / "metrics.json").read_text())["metrics"]
    assert found["true_quality"]["value"] is None
    assert 0.0 <= found["anchor_rank_accuracy"]["value"] <= 1.0
    assert found["anchor_unscored_rate"]["value"] == 0.0


def test_implicit_arm_rates_by_the_rubrics_that_its_first_round_kept(
    world: LanguageWorld,
) -> None:
    arm = scored_arm("static_implicit")
    kept = world.train("generator", "kept", start="generator", **arm)
    prepared = load_prepared(world.folder("prepared"))
    rows = [json.loads(line) for line in (kept / "rubrics.jsonl").read_text().splitlines()]
    assert {row["prompt_id"] for row in rows} == set(prepared.all_prompts)
    spec = EvaluatorSpec.model_validate(
        {
            "kind": "static_implicit",
            "generator": str(kept),
            "verifier": world.recipe(**arm)["verifier"],
            "max_items": 3,
        }
    )
    texts = prepared.all_prompts
    sets = [ResponseSet(row["prompt_id"], texts[row["prompt_id"]], ("a", "b")) for row in rows]
    with Engines(Models(prepared.base)) as engines:
        scored = build_evaluator(spec, prepared, engines).score(sets, range(len(sets)))
    assert [one.rubric_text for one in scored] == [row["text"] for row in rows]
    assert all(one.cost.completion_tokens < 10 for one in scored), "no rubric is written again"
    reasons = {score.reason for one in scored for score in one.scores}
    assert all(reason is None or reason.startswith("invalid_rubric") for reason in reasons)


@pytest.mark.parametrize("kind", ["scalar", "scalar_set"])
def test_reward_model_over_a_base_is_an_adapter_with_its_head(
    world: LanguageWorld, tmp_path: Path, kind: str
) -> None:
    arm = scored_arm(kind) | {"reward_training": REWARD}
    folder = world.train("generator", f"reward_{kind}", start="generator", **arm)
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["task_type"] == "SEQ_CLS"
    assert not (folder / "model.safetensors").exists()
    weights = load_file(folder / "adapter_model.safetensors")
    (head,) = (weight for name, weight in weights.items() if "score" in name)
    prepared = load_prepared(world.folder("prepared"))
    model = load_reward_model(str(folder), Models(prepared.base))
    loaded = [p for name, p in model.model.named_parameters() if "score.modules_to_save" in name]
    assert any(p.equal(head) for p in loaded), "the head that was trained is the one that is read"
    sets = [
        ResponseSet(key, prepared.prompts["train"][key], texts)
        for key, texts in prepared.anchors.items()
    ]
    spec = EvaluatorSpec.model_validate({"kind": kind, "reward_model": str(folder)})
    with Engines(Models(prepared.base)) as engines:
        scored = build_evaluator(spec, prepared, engines).score(sets, [0] * len(sets))
        engines.write(tmp_path, with_cost=True)
    (engine,) = json.loads((tmp_path / "engines.json").read_text("utf-8"))["engines"]
    assert prepared.base is not None
    base = checkpoint_hash(prepared.base.folder)
    expected = ("reward_model", f"{base}+{checkpoint_hash(folder)}")
    assert (engine["role"], engine["checkpoint"]) == expected
    assert all(score.is_scored for one in scored for score in one.scores)
    assert len({score.value for one in scored for score in one.scores}) > 1


def test_killed_training_of_an_adapter_that_rewards_ends_with_the_same_bytes(
    world: LanguageWorld,
) -> None:
    training = REWARD | {"steps": 4, "batch_size": 2}
    arm = scored_arm("scalar") | {"reward_training": training, "every": 1}
    whole = world.train("generator", "reward_whole", start="generator", **arm)
    keep = reward_model._Lineage.on_log

    class KilledError(Exception):
        """What stands for a kill."""

    def killed(self: Any, args: Any, state: Any, *rest: Any, **fields: Any) -> None:
        if state.global_step == 3:
            raise KilledError
        keep(self, args, state, *rest, **fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reward_model._Lineage, "on_log", killed)
        with pytest.raises(KilledError):
            world.train("generator", "reward_killed", start="generator", **arm)
    again = world.train("generator", "reward_killed", start="generator", **arm)
    name = "adapter_model.safetensors"
    assert (again / name).read_bytes() == (whole / name).read_bytes()
    assert len(pd.read_parquet(again / "rollouts.parquet")) == 8
