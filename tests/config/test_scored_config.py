"""Arms whose evaluator gives scores without verdicts: what is refused, and what their cells say."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from dynamicrubric.config import Config, resolve_arm
from dynamicrubric.lattice import expand
from dynamicrubric.problems import all_problems
from dynamicrubric.rounds import cell_recipe
from dynamicrubric.scoredparts import spec_of

ROOT = Path(__file__).resolve().parents[2]
REWARD = {"steps": 20, "batch_size": 8, "learning_rate": 1e-3}
NONE = {"update": "none"}
JUDGED = ("static_implicit", "geval", "flask", "pairwise")


def document_of(profile: str) -> dict[str, Any]:
    text = (ROOT / "profiles" / f"{profile}.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = YAML(typ="safe").load(text)
    return found


def with_arm(profile: str, **keys: Any) -> dict[str, Any]:
    """Return a profile with two arms: the first one as it is, and one of these keys."""
    document = copy.deepcopy(document_of(profile))
    arms = document["study"]["arms"]
    arm = {"question": "What is this arm about?", "generator": NONE} | keys
    document["study"] |= {"arms": {"coevolved": arms["coevolved"], "new": arm}, "run": None}
    document["study"]["groups"] = {}
    return document


def refused(document: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate(document)
    return " | ".join(str(part) for part in all_problems(caught.value, Config))


@pytest.mark.parametrize("evaluator", JUDGED)
def test_rated_arm_in_postcards_is_refused_with_the_world_that_has_it(evaluator: str) -> None:
    message = refused(with_arm("postcards", evaluator=evaluator))
    assert f"study.arms.new: evaluator is {evaluator!r}" in message
    assert "it takes world.name 'language'" in message


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"evaluator": "scalar"}, ["no reward_model with evaluator 'scalar'", "checkpoint"]),
        ({"evaluator": "scalar", "reward_model": {"steps": 5}}, ["batch_size is 0", "above 0"]),
        (
            {"evaluator": "scalar", "reward_model": REWARD | {"checkpoint": "x"}},
            ["steps is 20 with checkpoint 'x'", "is not trained"],
        ),
        (
            {"evaluator": "scalar", "reward_model": REWARD | {"step": 1}},
            ["unknown key reward_model.step", "did you mean steps"],
        ),
        (
            {"evaluator": "scalar", "reward_model": REWARD, "generator": {"update": "fresh"}},
            ["update is 'fresh' with evaluator 'scalar'", "it has no generator"],
        ),
        ({"evaluator": "length", "weights": "equal"}, ["weights is 'equal'", "no rubric"]),
        ({"evaluator": "random", "anchor_swap_rate": 0.3}, ["no training reads the anchors"]),
    ],
)
def test_arm_that_cannot_be_is_refused_with_key_and_rule(
    keys: dict[str, Any], said: list[str]
) -> None:
    message = refused(with_arm("postcards", **keys))
    assert [part for part in said if part not in message] == []


@pytest.mark.parametrize("evaluator", JUDGED)
@pytest.mark.parametrize(
    ("verifier", "said"),
    [
        ({"kind": "programmatic", "coverage_floor": 0.5}, "verifier.kind is 'programmatic'"),
        (
            {"engine": {"kind": "vllm", "max_verdict_tokens": 9}},
            "verifier.engine.max_verdict_tokens is 9",
        ),
    ],
)
def test_judge_that_cannot_rate_is_refused(
    evaluator: str, verifier: dict[str, Any], said: str
) -> None:
    assert said in refused(with_arm("smollm2", evaluator=evaluator, verifier=verifier))


def recipes(document: dict[str, Any]) -> dict[str, Any]:
    """Return each round's recipe of each arm, by key."""
    config = Config.model_validate(document)
    return {
        f"{arm}-s1-r{number}": cell_recipe(
            resolve_arm(config, arm), config.evaluation, 1, number, 3
        )
        for arm in config.study.arms
        for number in range(4)
    }


@pytest.mark.parametrize("evaluator", ["scalar", "scalar_set"])
def test_reward_model_is_trained_in_the_first_round_alone(evaluator: str) -> None:
    found = recipes(with_arm("postcards", evaluator=evaluator, reward_model=REWARD))
    trained = {key: one.reward_training for key, one in found.items() if key.startswith("new")}
    assert {key: one is not None for key, one in trained.items()} == {
        "new-s1-r0": False, "new-s1-r1": True, "new-s1-r2": False, "new-s1-r3": False,
    }  # fmt: skip
    assert trained["new-s1-r1"].model_dump() == REWARD
    assert all("reward_training" not in one.model_dump() for key, one in found.items()
               if not key.startswith("new-s1-r1"))  # fmt: skip


def test_reward_model_of_a_checkpoint_is_in_every_cell_and_trained_in_none() -> None:
    model = {"checkpoint": "hub:owner/reward@v1"}
    found = recipes(with_arm("smollm2", evaluator="scalar", reward_model=model))
    new = [one for key, one in found.items() if key.startswith("new")]
    assert new
    assert {one.rubrics.reward_model for one in new} == {"hub:owner/reward@v1"}
    assert not any(one.reward_training for one in new)


@pytest.mark.parametrize("evaluator", [*JUDGED, "length"])
def test_what_a_judge_is_asked_with_is_part_of_its_cells_alone(evaluator: str) -> None:
    found = recipes(with_arm("smollm2", evaluator=evaluator))
    hashes = {key: one.rubrics.judge_texts for key, one in found.items()}
    new = {value for key, value in hashes.items() if key.startswith("new")}
    assert {value for key, value in hashes.items() if key.startswith("coevolved")} == {""}
    assert (new == {""}) == (evaluator == "length")


def test_arms_that_differ_in_nothing_that_counts_are_refused() -> None:
    document = with_arm("postcards", evaluator="random")
    twin = document["study"]["arms"]["new"] | {"min_rubric_items": 2}
    document["study"]["arms"]["twin"] = twin
    config = Config.model_validate(document)
    with pytest.raises(ValueError, match="exactly what 'new' does"):
        expand(config)


def test_an_arm_that_is_not_scalar_may_lie_beside_a_reward_model_of_the_recipe() -> None:
    document = with_arm("postcards", evaluator="scalar")
    document["recipe"]["reward_model"] = REWARD
    found = recipes(document)
    assert found["coevolved-s1-r1"].reward_training is None
    assert found["new-s1-r1"].reward_training is not None


def test_reward_model_in_a_folder_is_part_of_the_identity_by_its_content(tmp_path: Path) -> None:
    folder = tmp_path / "reward"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"one")
    arm = {"evaluator": "scalar", "reward_model": {"checkpoint": str(folder)}}
    first = recipes(with_arm("postcards", **arm))["new-s1-r1"].model_dump(mode="json")
    again = recipes(with_arm("postcards", **arm))["new-s1-r1"].model_dump(mode="json")
    (folder / "model.safetensors").write_bytes(b"another")
    other = recipes(with_arm("postcards", **arm))["new-s1-r1"].model_dump(mode="json")
    assert first == again
    assert first["rubrics"]["reward_content"] != other["rubrics"]["reward_content"]


def test_text_that_shows_a_reward_model_its_set_is_part_of_the_arm_that_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rubrics(profile: str, evaluator: str) -> dict[str, Any]:
        document = with_arm(profile, evaluator=evaluator, reward_model=REWARD)
        found: dict[str, Any] = recipes(document)["new-s1-r1"].model_dump(mode="json")["rubrics"]
        return found

    before = rubrics("smollm2", "scalar_set")
    alone, embedded = rubrics("smollm2", "scalar"), rubrics("postcards", "scalar_set")
    monkeypatch.setattr("dynamicrubric.prompts.roles._template", lambda name: f"another {name}")
    assert rubrics("smollm2", "scalar_set") != before
    assert rubrics("smollm2", "scalar") == alone
    assert rubrics("postcards", "scalar_set") == embedded


def test_kept_rubrics_of_a_rated_arm_are_written_and_weighed_as_its_recipe_says() -> None:
    document = with_arm(
        "smollm2", evaluator="static_implicit", weights="equal",
        generator=NONE | {"constrained": True},
    )  # fmt: skip
    spec = spec_of(recipes(document)["new-s1-r0"], Path("g"))
    assert spec is not None
    assert (spec.weights, spec.constrained) == ("equal", True)
