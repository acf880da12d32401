"""The policy's training with TRL: the same bits for a seed, and TRL's advantages are ours."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trl import GRPOTrainer

from dynamicrubric.errors import InstrumentError
from dynamicrubric.prompts.frames import policy_prompt
from dynamicrubric.rewards import group_advantages
from dynamicrubric.training import grpo
from dynamicrubric.worlds.prepared import load_prepared

STEPS = 6
GROUP = 4


class Watched(GRPOTrainer):
    """TRL's trainer, with what it made of each step's rewards kept."""

    advantages: list[list[float]]
    prompts: list[list[int]]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = super()._generate_and_score_completions(inputs)
        Watched.advantages.append(made["advantages"].tolist())
        rows = zip(made["prompt_ids"].tolist(), made["prompt_mask"].tolist(), strict=True)
        Watched.prompts += [
            [token for token, kept in zip(ids, mask, strict=True) if kept] for ids, mask in rows
        ]
        return made


@pytest.fixture(scope="module")
def watch() -> Iterator[None]:
    Watched.advantages, Watched.prompts = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo, "GRPOTrainer", Watched)
        yield


@pytest.fixture(scope="module")
def run(tiny, watch: None, tmp_path_factory: pytest.TempPathFactory):
    """A training with an invalid rubric and a verifier that fails at times: rows of all kinds."""
    base = tmp_path_factory.mktemp("policy")
    found = tiny.train_policy(
        base / "run",
        generator=tiny.keep_rubrics(base / "kept"),
        rubrics={"evaluator": "static"},
        policy_training={"steps": STEPS},
        verifier={"failure_rate": 0.15},
    )
    return found, [value for step in Watched.advantages for value in step]


def test_training_moves_the_policy_and_keeps_its_shape(run, tiny) -> None:
    from safetensors.torch import load_file

    before = load_file(tiny.policy / "model.safetensors")
    after = load_file(run[0].out / "model.safetensors")
    assert {n: t.shape for n, t in before.items()} == {n: t.shape for n, t in after.items()}
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert all(torch.isfinite(tensor).all() for tensor in after.values())


def test_lineage_has_every_response_of_every_step(run, tiny) -> None:
    rows = run[0].rollouts
    assert rows.groupby("step").size().tolist() == [2 * GROUP] * STEPS
    assert rows.groupby(["step", "prompt_id"]).size().unique().tolist() == [GROUP]
    assert rows.groupby(["step", "prompt_id"])["rubric_id"].nunique().max() == 1
    assert set(rows["cell_hash"]) == {"0123abcd"}


def test_training_never_meets_a_heldout_prompt(run, tiny) -> None:
    prepared = load_prepared(tiny.prepared)
    assert set(run[0].rollouts["prompt_id"]) <= set(prepared.prompts["train"])
    text = (run[0].out / "rollouts.parquet").read_bytes()
    assert not any(key.encode() in text for key in prepared.prompts["heldout"])


def test_trl_trains_on_our_prompt_ids_unchanged(run, tiny) -> None:
    """Case 20: rendered once, one BOS, no template of anybody else's."""
    from dynamicrubric.engines.tokenizer import FrameTokenizer

    tokenizer = FrameTokenizer.load(tiny.policy)
    prompts = load_prepared(tiny.prepared).prompts["train"]
    ours = [policy_prompt(tokenizer, prompts[key]) for key in run[0].rollouts["prompt_id"]]
    assert Watched.prompts[: len(ours)] == ours


def test_advantages_of_trl_are_those_of_the_lineage(run) -> None:
    rows, advantages = run[0].rollouts, run[1]
    assert len(rows) == len(advantages)
    assert rows["advantage"].tolist() == pytest.approx(advantages, abs=2e-3)
    for _, group in rows.groupby(["step", "prompt_id"], sort=False):
        rewards = [None if np.isnan(value) else float(value) for value in group["reward"]]
        assert group["advantage"].tolist() == pytest.approx(group_advantages(rewards))


def test_unscored_rows_have_advantage_nought_and_leave_the_others_alone(run) -> None:
    rows, advantages = run[0].rollouts, np.array(run[1])
    unscored = rows["reward"].isna().to_numpy()
    reasons = set(rows.loc[unscored, "score_reason"])
    assert "verifier_failure" in reasons
    assert any(str(reason).startswith("invalid_rubric:") for reason in reasons)
    assert (advantages[unscored] == 0.0).all()
    assert (advantages[~unscored] != 0.0).any()


def test_log_has_each_step_once_with_finite_figures_and_no_times(run) -> None:
    log = run[0].log
    assert [line["step"] for line in log] == [*range(1, STEPS + 1)]
    for line in log:
        assert all(np.isfinite(value) for value in line["metrics"].values())
        assert not [name for name in line["metrics"] if "time" in name or "second" in name]
        assert {"loss", "kl", "length", "rate/invalid_rubric"} <= line["metrics"].keys()


def test_log_agrees_with_the_lineage(run) -> None:
    rows = run[0].rollouts
    for line in run[0].log:
        step = rows[rows["step"] == line["step"]]
        unscored = float(step["reward"].isna().mean())
        assert line["metrics"]["rate/unscored_response"] == pytest.approx(unscored)
        if unscored < 1.0:
            mean = float(step["reward"].dropna().mean())
            assert line["metrics"]["reward"] == pytest.approx(mean, abs=1e-6)
        else:
            assert "reward" not in line["metrics"]


def test_same_seed_gives_the_same_bytes_whatever_ran_before(tiny, tmp_path: Path) -> None:
    first = tiny.train_policy(tmp_path / "first").bytes
    torch.manual_seed(1234)
    random.seed(1234)
    np.random.seed(1234)  # the global streams are what must not matter
    torch.rand(7)
    assert tiny.train_policy(tmp_path / "second").bytes == first


def test_another_seed_gives_other_rollouts(tiny, tmp_path: Path) -> None:
    one, two = (tiny.train_policy(tmp_path / str(seed), seed=seed) for seed in (1, 2))
    assert one.rollouts["text"].tolist() != two.rollouts["text"].tolist()
    assert one.bytes["model.safetensors"] != two.bytes["model.safetensors"]


def test_round_is_part_of_every_draw(tiny, tmp_path: Path) -> None:
    one, two = (tiny.train_policy(tmp_path / str(n), round=n) for n in (1, 2))
    assert one.rollouts["text"].tolist() != two.rollouts["text"].tolist()


def test_every_row_unscored_trains_nothing_and_logs_no_made_up_figure(tiny, tmp_path: Path) -> None:
    """At a limit of 1 a person has asked to go on; the weights then stay as they are."""
    from safetensors.torch import load_file

    run = tiny.train_policy(tmp_path, verifier={"failure_rate": 1.0, "max_unscored_rate": 1.0})
    assert run.rollouts["reward"].isna().all()
    for line in run.log:
        assert not {"score", "reward"} & line["metrics"].keys()
        assert line["metrics"]["grad_norm"] == pytest.approx(0.0, abs=1e-5)
    before, after = (load_file(p / "model.safetensors") for p in (tiny.policy, run.out))
    assert all(torch.allclose(before[name], after[name], atol=1e-5) for name in before)


def test_verifier_that_is_down_stops_the_training(tiny, tmp_path: Path) -> None:
    with pytest.raises(InstrumentError, match="verifier_failure"):
        tiny.train_policy(
            tmp_path / "run",
            generator=tiny.keep_rubrics(tmp_path / "kept"),
            rubrics={"evaluator": "static"},
            verifier={"failure_rate": 1.0},
        )
    assert not list((tmp_path / "run" / "out").iterdir())


def test_completions_that_never_end_stop_the_training_with_a_remedy(tiny, tmp_path: Path) -> None:
    """Case 19: `max_tokens` 1 is an error with a remedy, not a flat curve."""
    with pytest.raises(InstrumentError, match="every completion of step 1 was cut at max_tokens"):
        tiny.train_policy(tmp_path, policy_sampling={"max_tokens": 1})


def test_completions_that_are_all_cut_do_not_stop_a_policy_whose_cuts_are_scored(
    tiny, tmp_path: Path
) -> None:
    """The profile smollm2 cuts far below what its model writes: a step of eight cuts is chance."""
    run = tiny.train_policy(
        tmp_path, policy_sampling={"max_tokens": 1}, policy_training={"truncated": "scored"}
    )
    assert {line["metrics"]["truncated_rate"] for line in run.log} == {1.0}
