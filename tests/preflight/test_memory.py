"""Memory by step against sums made by hand."""

from __future__ import annotations

import inspect
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.config import Config, LanguageConfig, RecipeConfig, merge
from dynamicrubric.engines.meta import ModelSize
from dynamicrubric.engines.verifier import GPU_BUDGET
from dynamicrubric.preflight.facts import GIB, Phase
from dynamicrubric.preflight.lengths import MAX_CRITERION_LETTERS, Lengths, longest_texts
from dynamicrubric.preflight.memory import HEAD_TILE, Memory
from dynamicrubric.preflight.work import PACKED_TOKENS
from dynamicrubric.rubrics import parse_rubric
from dynamicrubric.yamlio import load_yaml

ROOT = Path(__file__).resolve().parents[2]
SIZE = ModelSize(
    architecture="X", num_params=1_000_000, num_adapter_params=10_000, dtype_bytes=2, num_layers=4,
    num_heads=8, hidden_size=64, vocab_size=1000, context=4096, cache_bytes=1024.0,
    layer_bytes=5000.0, outer_bytes=100.0,
)  # fmt: skip
LENGTHS = Lengths(
    policy_in=100, policy_out=50, generator_in=500, generator_out=80, judged=300, asked=90,
    warm_policy=0, warm_generator=400,
)  # fmt: skip


def config_of(profile: str, **changes: Any) -> Config:
    document = load_yaml(ROOT / "profiles" / f"{profile}.yaml")
    return Config.model_validate(merge(document, changes))


def phases(config: Config, size: ModelSize = SIZE) -> dict[str, Phase]:
    found = Memory(size, config, config.recipe, LENGTHS).phases()
    return {phase.step: phase for phase in found}


def test_adapters_over_a_base_hold_it_once_and_train_in_float32() -> None:
    phase = phases(config_of("smollm2"))["train_policy"]
    assert phase.base == 1_000_000 * 2
    assert phase.policy == 2 * 10_000 * 4  # trained, and the KL's reference
    assert phase.generator == 10_000 * 4
    assert phase.training == 10_000 * (4 + 8)


def test_child_of_vllm_holds_the_base_again_once_for_all_roles_of_its_format() -> None:
    engine = {"kind": "vllm", "dtype": "bfloat16", "max_model_len": 1024}
    config = config_of(
        "smollm2",
        recipe={role: {"engine": engine} for role in ("policy", "generator", "verifier")},
        runtime={"vllm": {"kv_cache_gib": 3.0}},
    )
    found = phases(config)
    child = (1_000_000 + 10_000) * 2 + 3 * GIB + 8192 * 5000 + 256 * 1000 * (2 + 12)
    expected = {step: child for step in found} | {"warm_start generator": 0.0}
    assert {step: phase.served for step, phase in found.items()} == expected
    assert found["evaluate_round"].base == 1_000_000 * 2  # what a probe is compared with
    # What vLLM samples and judges takes nothing in the task; a training's own rollouts do.
    assert "sampling, policy" not in found["sample_responses"].moments
    assert "sampling, policy" in found["train_policy"].moments
    assert "sampling, generator" not in found["train_policy"].moments
    assert not any("verdicts" in phase.moments for phase in found.values())
    two = {**engine, "max_model_len": 2048}
    config = config_of(
        "smollm2",
        recipe={"generator": {"engine": engine}, "verifier": {"engine": two}},
        runtime={"vllm": {"kv_cache_gib": 3.0}},
    )
    assert phases(config)["train_policy"].served == 2 * child
    assert phases(config)["train_generator"].served == child
    assert phases(config)["sample_responses"].served == 0.0


def test_whole_models_hold_each_role_and_no_base() -> None:
    phase = phases(config_of("postcards"))["train_policy"]
    assert (phase.base, phase.policy, phase.generator) == (0, 2 * 4e6, 4e6)
    assert phase.training == 12e6
    assert "verdicts" not in phase.moments  # a program answers


def test_generator_that_is_never_trained_has_no_training_step() -> None:
    config = config_of("smollm2")
    generator = config.recipe.generator.model_copy(update={"update": "none"})
    recipe = config.recipe.model_copy(update={"generator": generator})
    steps = [phase.step for phase in Memory(SIZE, config, recipe, LENGTHS).phases()]
    assert "train_policy" in steps
    assert "train_generator" not in steps


def static(update: str) -> dict[str, Phase]:
    config = config_of("smollm2")
    generator = config.recipe.generator.model_copy(update={"update": update})
    changes = {"generator": generator, "evaluator": "static"}
    recipe = config.recipe.model_copy(update=changes)
    return {phase.step: phase for phase in Memory(SIZE, config, recipe, LENGTHS).phases()}


def test_kept_rubrics_are_written_by_a_generator_that_is_loaded_for_it() -> None:
    found = static("upfront")
    role = 10_000 * 4
    assert found["train_policy"].generator == 0
    assert found["evaluate_round"].generator == role  # round 0 has no kept rubrics yet
    assert "sampling, generator" in found["evaluate_round"].moments
    assert found["train_generator"].generator == 3 * role  # trained, reference, the one that writes
    rows = 56 + 24  # every prompt
    sampled = found["train_generator"].moments["sampling, generator"]
    assert sampled == rows * 580 * 1024 + rows * 500 * 5000 + rows * 500**2 * 3


def test_untrained_generator_whose_rubrics_are_kept_writes_them_without_a_training() -> None:
    phase = static("none")["train_generator"]
    assert (phase.generator, phase.training) == (10_000 * 4, 0)
    assert list(phase.moments) == ["sampling, generator"]


def test_backward_pass_without_recomputing_is_the_sum_of_its_parts() -> None:
    phase = phases(config_of("smollm2"))["train_policy"]
    rows, tokens, scored = 8, 150, 50
    layers = rows * tokens * (4 * 5000 + 5000 + 100)
    head = rows * scored * 64 * (2 + 4) + 2 * rows * scored * 1000 * 4
    mask = rows * tokens**2 * (1 + 2)
    assert phase.moments["forward and backward"] == layers + head + mask


def test_backward_pass_of_single_rows_with_recomputing_keeps_inputs_and_one_layer() -> None:
    runtime = {"rows_per_pass": 1, "recompute_activations": True}
    phase = phases(config_of("smollm2", runtime=runtime))["train_policy"]
    layers = 150 * (4 * 64 * 2 + 2 * 5000 + 100)
    head = 50 * 64 * (2 + 4) + 2 * 50 * 1000 * 4
    assert phase.moments["forward and backward"] == layers + head + 150**2 * 3


def test_head_takes_two_tiles_however_long_the_text_is() -> None:
    memory = Memory(SIZE, config_of("smollm2"), config_of("smollm2").recipe, LENGTHS)
    more = memory._pass(1, 10**6, 10**6) - memory._pass(1, 10**6, 0)
    assert more == 10**6 * 64 * (2 + 4) + 2 * HEAD_TILE


def test_sampling_holds_as_many_rows_as_there_are_requests_or_as_the_engine_takes() -> None:
    few = phases(config_of("smollm2"))["train_policy"].moments["sampling, policy"]
    prompts = 8 * 100 * 5000 + 8 * 100**2 * 3
    assert few == 8 * 150 * 1024 + prompts
    long = LENGTHS._replace(policy_in=60_000, policy_out=5_000)
    config = config_of("smollm2")
    found = Memory(SIZE, config, config.recipe, long).phases()
    many = {phase.step: phase for phase in found}["sample_responses"].moments["sampling, policy"]
    assert many == 65_000 * 1024 + 60_000 * 5000 + 60_000**2 * 3  # one row


def test_highest_moment_is_what_a_step_needs_on_top_of_what_it_holds() -> None:
    phase = Phase("x", 1.0, 2.0, 3.0, 4.0, {"a": 5.0, "b": 7.0, "c": 6.0})
    assert (phase.held, phase.highest, phase.total) == (10.0, "b", 17.0)


@pytest.mark.parametrize(
    ("judged", "asked", "pairs", "tokens"),
    [
        (300, 90, 300 * 90 * 4, 8192),
        (6000, 2000, 4096 * 4096, 8192),  # one of 4,096 tokens has more questions beside it
        (16_000, 2000, 4096 * 4096, 16_000 + 1024),
    ],
)
def test_verdicts_take_a_row_and_the_scores_of_its_largest_block(
    judged: int, asked: int, pairs: int, tokens: int
) -> None:
    config = config_of("smollm2")
    lengths = LENGTHS._replace(judged=judged, asked=asked)
    found = Memory(SIZE, config, config.recipe, lengths).phases()
    phase = next(one for one in found if one.step == "train_generator")
    assert config.recipe.generator.group_size == 4
    assert phase.moments["verdicts"] == tokens * 5000 + 8 * pairs * 4


def test_parts_that_are_shown_add_up_to_the_total_that_is_compared() -> None:
    third = 2**30 / 3
    held = (third,) * 4
    phase = Phase("x", *held, {"a": third}, process=third, served=third, tasks=3)
    assert phase.parts == (0.34,) * 7
    assert (phase.one, phase.all) == (2.38, 7.14)
    assert phase.one >= phase.total / 2**30


def test_longest_criterion_is_the_parsers() -> None:
    default = inspect.signature(parse_rubric).parameters["max_criterion_chars"].default
    assert default == MAX_CRITERION_LETTERS
    assert GPU_BUDGET.tokens == PACKED_TOKENS


def test_lengths_of_the_paper_are_8k_and_24k() -> None:
    config = config_of("qwen3-8b")
    lengths = longest_texts(config, config.recipe)
    assert lengths.policy_in == pytest.approx(8_000, rel=0.02)
    assert lengths.generator_in == pytest.approx(24_576, rel=0.02)
    assert lengths.generator_out == 8192
    static = config.recipe.model_copy(update={"evaluator": "static"})
    assert longest_texts(config, static).generator_in < lengths.generator_in - 8 * 2048


def test_child_in_another_format_computes_in_it() -> None:
    engine = {"kind": "vllm", "dtype": "float32", "max_model_len": 1024}
    config = config_of("smollm2", recipe={"policy": {"engine": engine}})
    found = phases(config)["sample_responses"].served
    cache = config.runtime.vllm.kv_cache_gib * GIB
    assert found == 1_010_000 * 4 + cache + 8192 * 5000 * 2 + 256 * 1000 * (4 + 12)


REWARD = {"steps": 5, "batch_size": 8, "learning_rate": 1e-3}


def arm_of(**changes: Any) -> RecipeConfig:
    """Return an arm of smollm2 whose generator is not trained."""
    recipe = config_of("smollm2").recipe.model_dump(mode="json")
    return RecipeConfig.model_validate(merge(recipe, {"generator": {"update": "none"}} | changes))


def phases_of_arm(recipe: RecipeConfig, lengths: Lengths = LENGTHS) -> dict[str, Phase]:
    found = Memory(SIZE, config_of("smollm2"), recipe, lengths).phases()
    return {phase.step: phase for phase in found}


def test_reward_model_is_trained_over_one_base_and_scores_beside_another() -> None:
    arm = arm_of(evaluator="scalar", reward_model=REWARD)
    found = phases_of_arm(arm, LENGTHS._replace(rewarded=200))
    trained = found["train_reward"]
    assert (trained.base, trained.generator) == (2_000_000, 40_000)
    assert trained.training == 10_000 * (4 + 8)
    kept = 4 * 5000 + 5000 + 100  # four layers, the gradients of one, and what is outside them
    assert trained.moments == {
        "forward and backward": 16 * 200 * kept + 16 * 200**2 * (1 + SIZE.dtype_bytes)
    }
    for step in ("train_policy", "evaluate_round"):
        assert found[step].generator == 2_000_000 + 40_000, "the weights again, and its adapter"
        assert "verdicts" not in found[step].moments
        rows = 16_384 // 200
        assert found[step].moments["rewards"] == rows * 200 * 5000 + rows * 200**2 * 3
    assert "train_generator" not in found


@pytest.mark.parametrize(
    ("evaluator", "moment"),
    [("geval", "ratings"), ("pairwise", "ratings"), ("length", None), ("dynamic", "verdicts")],
)
def test_what_scores_is_what_the_evaluator_asks(evaluator: str, moment: str | None) -> None:
    moments = phases_of_arm(arm_of(evaluator=evaluator))["train_policy"].moments
    assert {"verdicts", "ratings", "rewards"} & moments.keys() == ({moment} if moment else set())


def test_verifier_in_vllm_that_nobody_asks_has_no_child() -> None:
    engine = {"kind": "vllm", "dtype": "bfloat16", "max_model_len": 1024}
    asked, unasked = (
        phases_of_arm(arm_of(evaluator=evaluator, verifier={"engine": engine}))["train_policy"]
        for evaluator in ("geval", "length")
    )
    assert asked.served > 0
    assert unasked.served == 0


def test_texts_of_evaluators_without_verdicts_are_as_long_as_what_they_read() -> None:
    config = config_of("smollm2")

    def of(**changes: Any) -> Lengths:
        return longest_texts(config, arm_of(**changes))

    world = config.world
    assert isinstance(world, LanguageConfig)
    answer = ceil(world.max_response_letters / 3)
    assert of(evaluator="pairwise").judged > of(evaluator="geval").judged + answer / 2
    assert of(evaluator="dynamic").rewarded == 0
    alone = of(evaluator="scalar", reward_model=REWARD).rewarded
    in_set = of(evaluator="scalar_set", reward_model=REWARD).rewarded
    assert alone >= of(evaluator="dynamic").policy_in + answer
    assert in_set >= alone + world.num_anchors * answer
