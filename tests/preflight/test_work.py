"""How much a plan does, and what earlier runs say of its time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.config import Config, resolve_arm
from dynamicrubric.enginesettings import Vllm
from dynamicrubric.preflight.facts import Work
from dynamicrubric.preflight.lengths import Lengths
from dynamicrubric.preflight.work import (
    countable_plan,
    measured_rates,
    num_prompts,
    planned_work,
    timed,
    total_work,
)
from dynamicrubric.yamlio import load_yaml

ROOT = Path(__file__).resolve().parents[2]
LENGTHS = Lengths(
    policy_in=10, policy_out=5, generator_in=100, generator_out=20, judged=300, asked=90,
    warm_policy=0, warm_generator=150,
)  # fmt: skip


def smollm2(**study: Any) -> Config:
    document = load_yaml(ROOT / "profiles" / "smollm2.yaml")
    document["study"] |= study
    return Config.model_validate(document)


def work_of(config: Config) -> dict[str, Work]:
    return {one.step: one for one in planned_work(config, countable_plan(config), LENGTHS)}


def test_work_of_one_arm_is_what_its_settings_multiply_to() -> None:
    found = work_of(smollm2(run=["coevolved"], rounds=2))
    sampled = found["sample_responses"]
    assert (sampled.runs, sampled.completions) == (2, 2 * 56 * 4)
    assert (sampled.tokens_read, sampled.tokens_written) == (448 * 10, 448 * 5)
    generator = found["train_generator"]
    assert generator.completions == (16 + 8) * 2 * 4
    assert generator.verdicts == generator.completions * 4 * (4 + 4)
    # Each response of a set, and each anchor, once with the questions of all four rubrics.
    assert generator.tokens_judged == (16 + 8) * 2 * (4 + 4) * (300 + 4 * 90)
    policy = found["train_policy"]
    sets = 2 * 12 * 2
    assert policy.completions == sets * (4 + 1)
    assert policy.tokens_read == sets * 4 * 10 + sets * 100
    assert policy.tokens_written == sets * 4 * 5 + sets * 20
    assert policy.verdicts == sets * 4 * 4
    assert policy.tokens_judged == sets * 4 * (300 + 90)
    measured = found["evaluate_round"]
    # Rounds 1 and 2 also write and judge rubrics for the sets of the round before.
    assert (measured.runs, measured.completions) == (3, 3 * 24 * (4 + 1) + 2 * 24)
    assert measured.tokens_read == 3 * 24 * 4 * 10 + 5 * 24 * 100
    assert measured.verdicts == 3 * 24 * 4 * (4 + 4) + 2 * 24 * 4 * 4


def test_response_that_fills_a_pass_is_read_again_for_what_has_no_room_behind_it() -> None:
    lengths = LENGTHS._replace(judged=16_000, asked=2_000)
    config = smollm2(run=["coevolved"], rounds=2)
    found = {one.step: one for one in planned_work(config, countable_plan(config), lengths)}
    judged = 2 * 12 * 2 * 4
    assert found["train_policy"].tokens_judged == judged * (2 * 16_000 + 2_000)  # 1,024 at a time


def test_warm_start_reads_its_texts_and_takes_what_it_took_here(tmp_path: Path) -> None:
    config = smollm2()
    warm = work_of(config)["warm_start generator"]
    assert (warm.completions, warm.tokens_read, warm.seconds) == (0, 40 * 4 * 150, None)
    identity = {
        "backbone": config.backbone.model_dump(mode="json"),
        "settings": config.warm_start.generator.model_dump(mode="json"),
    }
    record(tmp_path / "data/warm/generator", "warm_start", 9.0, **identity)
    (found, *_) = timed((warm,), config, tmp_path)
    assert (found.seconds, found.based_on) == (9.0, 1)
    other = {**identity, "settings": {**identity["settings"], "steps": 41}}
    record(tmp_path / "other/data/warm/generator", "warm_start", 9.0, **other)
    assert timed((warm,), config, tmp_path / "other") == (warm,)


def test_total_is_the_sum_of_every_column_and_unknown_with_an_unknown_part() -> None:
    parts = (Work("a", 1, 2, 3, 4, 5, 6, 7.0, 1), Work("b", 10, 20, 30, 40, 50, 60, 70.0, 2))
    assert total_work(parts, "total") == Work("total", 11, 22, 33, 44, 55, 66, 77.0, 3)
    unknown = total_work((*parts, Work("c", 1, 0, 0, 0, 0)), "total")
    assert (unknown.runs, unknown.seconds) == (12, None)


def test_work_of_an_arm_that_never_trains_its_generator_has_no_such_step() -> None:
    assert "train_generator" not in work_of(smollm2(run=["frozen"]))


def postcards(*arms: str) -> Config:
    document = load_yaml(ROOT / "profiles" / "postcards.yaml")
    document["study"] |= {"run": list(arms), "rounds": 2}
    return Config.model_validate(document)


@pytest.mark.parametrize("arm", ["static", "static_zero_shot"])
def test_kept_rubrics_are_written_for_the_held_out_and_then_once_for_all(arm: str) -> None:
    config = postcards(arm)
    train, heldout = num_prompts(config)
    found = work_of(config)
    trained = (240 + 60) * 4 * 8 if arm == "static" else 0
    assert found["train_generator"].completions == trained + train + heldout
    assert found["train_generator"].runs == 1
    sets = heldout * 4
    assert found["evaluate_round"].completions == 3 * sets * 6 + heldout
    assert found["evaluate_round"].verdicts == sets * 5 * (3 * (6 + 7) + 2 * 6)


def test_oracle_judges_nothing() -> None:
    assert {one.verdicts for one in work_of(postcards("oracle")).values()} == {0}


def record(path: Path, step: str, seconds: float, **identity: Any) -> None:
    path.mkdir(parents=True)
    document = {"step": step, "identity": identity, "provenance": {"seconds": seconds}}
    (path / "record.json").write_text(json.dumps(document))


def earlier_run(root: Path, config: Config, max_tokens: int = 64) -> None:
    backbone = config.backbone.model_dump(mode="json")
    record(root / "data/warm/generator", "warm_start", 9.0, backbone=backbone)
    sampling = {"temperature": 1.0, "min_p": 0.05, "max_tokens": max_tokens}
    for number, seconds in enumerate((56.0, 112.0, 224.0)):
        folder = root / f"data/runs/cell{number}/responses"
        record(folder, "sample_responses", seconds, responses_per_set=4, sampling=sampling)


def test_time_is_by_the_median_rate_of_earlier_runs(tmp_path: Path) -> None:
    config = smollm2(run=["coevolved"], rounds=2)
    earlier_run(tmp_path, config)
    assert measured_rates(config, tmp_path) == {"sample_responses": [4.0, 2.0, 1.0]}
    found = {one.step: one for one in timed(tuple(work_of(config).values()), config, tmp_path)}
    assert found["sample_responses"].seconds == 448 / 2.0
    assert found["sample_responses"].based_on == 3
    assert found["train_policy"].seconds is None  # never run here: unknown


def test_rate_of_an_evaluation_counts_the_rubrics_for_the_round_before(tmp_path: Path) -> None:
    config = smollm2()
    backbone = config.backbone.model_dump(mode="json")
    record(tmp_path / "data/warm/generator", "warm_start", 9.0, backbone=backbone)
    for number, completions in enumerate((24 * (4 + 1), 24 * (4 + 2))):
        record(
            tmp_path / f"data/runs/cell{number}/evaluation",
            "evaluate_round",
            completions / 2,
            round=number,
            responses_per_set=4,
            rubrics={"evaluator": "dynamic"},
            evaluation={"sets_per_prompt": 1},
        )
    assert measured_rates(config, tmp_path) == {"evaluate_round": [2.0, 2.0]}


def test_rate_of_writing_kept_rubrics_needs_no_training(tmp_path: Path) -> None:
    config = smollm2()
    backbone = config.backbone.model_dump(mode="json")
    record(tmp_path / "data/warm/generator", "warm_start", 9.0, backbone=backbone)
    folder = tmp_path / "data/runs/cell/generator"
    record(folder, "train_generator", 40.0, rubrics={"evaluator": "static"}, training=None)
    assert measured_rates(config, tmp_path) == {"train_generator": [2.0]}  # 56 + 24 prompts


def test_time_is_unknown_after_runs_of_another_model_or_of_other_lengths(tmp_path: Path) -> None:
    config = smollm2()
    assert measured_rates(config, tmp_path) == {}
    earlier_run(tmp_path / "lengths", config, max_tokens=65)
    assert measured_rates(config, tmp_path / "lengths") == {}
    backbone = config.backbone.model_copy(update={"checkpoint": "another/model"})
    earlier_run(tmp_path / "model", config.model_copy(update={"backbone": backbone}))
    assert measured_rates(config, tmp_path / "model") == {}


def test_time_is_unknown_after_runs_on_another_engine(tmp_path: Path) -> None:
    config = smollm2()
    earlier_run(tmp_path, config)
    vllm = Vllm(kind="vllm", dtype="bfloat16", max_model_len=1024)
    policy = config.recipe.policy.model_copy(update={"engine": vllm})
    recipe = config.recipe.model_copy(update={"policy": policy})
    elsewhere = config.model_copy(update={"recipe": recipe})
    assert measured_rates(config, tmp_path) != {}
    assert measured_rates(elsewhere, tmp_path) == {}
    sampling = {"temperature": 1.0, "min_p": 0.05, "max_tokens": 64}
    record(
        tmp_path / "data/runs/vllm/responses", "sample_responses", 56.0,
        responses_per_set=4, sampling=sampling, engine=vllm.model_dump(mode="json"),
    )  # fmt: skip
    assert measured_rates(elsewhere, tmp_path) == {"sample_responses": [4.0]}


def test_broken_records_count_for_nothing(tmp_path: Path) -> None:
    config = smollm2()
    earlier_run(tmp_path, config)
    for number, text in enumerate(("{", "[]", "{}", '{"step": "sample_responses"}')):
        folder = tmp_path / f"data/runs/broken{number}/responses"
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(text)
    record(tmp_path / "data/runs/kept/generator", "train_generator", 0.0, training=None)
    assert measured_rates(config, tmp_path) == {"sample_responses": [4.0, 2.0, 1.0]}


def test_plan_is_counted_before_its_files_are_there() -> None:
    plan = countable_plan(smollm2(run=["coevolved", "frozen"], seeds=[1, 2], rounds=2))
    assert (len(plan.cells), len(plan.starts)) == (8, 2)


def test_training_of_a_reward_model_reads_both_texts_of_each_pair() -> None:
    config = smollm2(run=["scalar"], rounds=2)
    lengths = LENGTHS._replace(rewarded=40)
    found = {one.step: one for one in planned_work(config, countable_plan(config), lengths)}
    settings = resolve_arm(config, "scalar").reward_model
    assert settings is not None
    pairs = settings.steps * settings.batch_size
    assert (found["train_reward"].runs, found["train_reward"].tokens_read) == (1, 2 * pairs * 40)
    assert "train_generator" not in found
    assert found["train_policy"].verdicts == 0
