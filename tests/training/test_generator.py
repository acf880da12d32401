"""The generator's training with TRL: two rewards normalised apart, weighted, added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trl import GRPOTrainer

from dynamicrubric.errors import InstrumentError
from dynamicrubric.rewards import combine_advantages
from dynamicrubric.training import grpo
from dynamicrubric.training.generator import worst_r_anchor
from dynamicrubric.worlds.prepared import load_prepared, read_jsonl

STEPS = 4
GROUP = 4


class Watched(GRPOTrainer):
    """TRL's trainer, with the advantages of each step kept."""

    advantages: list[list[float]]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = super()._generate_and_score_completions(inputs)
        Watched.advantages.append(made["advantages"].tolist())
        return made


def watched(tiny, where: Path, **changed: Any):
    """Train and return the run and TRL's advantages, one list a step."""
    Watched.advantages = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo, "GRPOTrainer", Watched)
        run = tiny.train_generator(where, **changed)
    return run, [*Watched.advantages]


def ours(
    rows, weights: tuple[float, ...], names: tuple[str, ...] = ("r_disc", "r_anchor")
) -> list[float]:
    """Normalise each reward in its group, add, and normalise once more over the step."""
    sums: list[float] = []
    for start in range(0, len(rows), GROUP):
        group = rows.iloc[start : start + GROUP]
        rewards = [[None if np.isnan(v) else float(v) for v in group[name]] for name in names]
        sums += combine_advantages(rewards, weights)
    scored = rows[list(names)].notna().any(axis=1).to_numpy()
    array = np.array(sums)
    kept = array[scored]
    found = np.zeros_like(array)
    found[scored] = (kept - kept.mean()) / (kept.std(ddof=1) + 1e-4)
    return found.tolist()


WEIGHTS = [(1.0, 1.0), (1.0, 0.25), (0.0, 1.0), (2.0, 0.0)]


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory: pytest.TempPathFactory):
    base = tmp_path_factory.mktemp("generator")
    return {
        weights: watched(
            tiny,
            base / str(number),
            generator_training={
                "objective": {"disc": weights[0], "anchor": weights[1]},
                "steps": STEPS,
            },
            rubrics={"sampling": {"temperature": 1.2}},
            verifier={"failure_rate": 0.15},
        )
        for number, weights in enumerate(WEIGHTS)
    }


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_advantages_of_trl_are_the_paper_s_with_one_more_normalisation(
    runs, weights: tuple[float, float]
) -> None:
    run, advantages = runs[weights]
    assert len(advantages) == STEPS
    for number, found in enumerate(advantages, start=1):
        rows = run.rollouts[run.rollouts["step"] == number]
        assert found == pytest.approx(ours(rows, weights), abs=5e-3)


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_advantage_of_the_lineage_is_trl_s_but_for_its_last_normalisation(
    runs, weights: tuple[float, float]
) -> None:
    run, advantages = runs[weights]
    for number, found in enumerate(advantages, start=1):
        rows = run.rollouts[run.rollouts["step"] == number]
        apart = rows["advantage_disc"] * weights[0] + rows["advantage_anchor"] * weights[1]
        assert rows["advantage"].tolist() == pytest.approx(apart.tolist())
        kept = rows[["r_disc", "r_anchor"]].notna().any(axis=1).to_numpy()
        sums = rows["advantage"].to_numpy()[kept]
        last = (sums - sums.mean()) / (sums.std(ddof=1) + 1e-4)
        assert np.array(found)[kept] == pytest.approx(last, abs=5e-3)


def test_weights_of_the_rewards_change_the_advantages_of_the_same_rubrics(
    tiny, tmp_path: Path
) -> None:
    texts, first = [], []
    for disc, anchor in WEIGHTS:
        run, advantages = watched(
            tiny,
            tmp_path / f"{disc}-{anchor}",
            generator_training={"objective": {"disc": disc, "anchor": anchor}, "steps": 1},
        )
        texts.append(run.rollouts["text"].tolist())
        first.append(np.array(advantages[0]))
    assert all(one == texts[0] for one in texts)
    for one in range(len(first)):
        for other in range(one):
            assert not np.allclose(first[one], first[other], atol=1e-2), (one, other)


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_share_of_groups_without_spread_is_that_of_the_weighted_rewards(
    runs, weights: tuple[float, float]
) -> None:
    run, _ = runs[weights]
    used = [n for n, weight in zip(("r_disc", "r_anchor"), weights, strict=True) if weight]
    spreads = run.rollouts.groupby(["step", "row"])[used].std()
    flat = (spreads.max(axis=1) < 1e-6).groupby("step").mean()
    assert [line["metrics"]["zero_std_rate"] for line in run.log] == flat.tolist()


def test_failing_verifier_lowers_rewards_and_leaves_none_out(runs) -> None:
    run = runs[1.0, 1.0][0]
    valid = run.rollouts[run.rollouts["invalid_reason"].isna()]
    assert valid[["r_disc", "r_anchor"]].notna().all(axis=None)
    assert (valid["r_anchor"] >= worst_r_anchor(5)).all()
    assert any(line["metrics"]["rate/unscored_anchor"] > 0.0 for line in run.log)


def test_invalid_rubrics_cost_the_generator(runs) -> None:
    run, advantages = runs[1.0, 1.0]
    rows = run.rollouts.assign(got=np.concatenate(advantages))
    invalid = rows["invalid_reason"].notna()
    assert invalid.any()
    assert (rows.loc[invalid, "r_disc"] == 0.0).all()
    assert np.allclose(rows.loc[invalid, "r_anchor"], worst_r_anchor(5))
    assert rows.loc[invalid, "got"].mean() < rows.loc[~invalid, "got"].mean()


def test_lineage_has_whole_groups_of_training_rows(runs, tiny) -> None:
    rows = runs[1.0, 1.0][0].rollouts
    prepared = load_prepared(tiny.prepared)
    assert set(rows["prompt_id"]) <= set(prepared.prompts["train"])
    assert rows.groupby(["step", "row"]).size().unique().tolist() == [GROUP]


def test_same_seed_gives_the_same_bytes_and_another_does_not(tiny, tmp_path: Path) -> None:
    first, again = (tiny.train_generator(tmp_path / name).bytes for name in ("a", "b"))
    assert first == again
    other = tiny.train_generator(tmp_path / "c", seed=2)
    assert other.bytes["model.safetensors"] != first["model.safetensors"]


def test_static_generator_trains_on_anchors_and_keeps_a_rubric_a_prompt(
    tiny, tmp_path: Path
) -> None:
    run = tiny.train_generator(
        tmp_path,
        rubrics={"evaluator": "static"},
        generator_training={"responses": "anchors", "steps": 1},
    )
    prepared = load_prepared(tiny.prepared)
    assert set(run.rollouts["row"]) <= set(prepared.prompts["train"])
    kept = read_jsonl(run.out / "rubrics.jsonl")
    assert [row["prompt_id"] for row in kept] == list(prepared.all_prompts)
    assert all(row["text"] for row in kept)


def test_verifier_that_is_down_stops_the_training(tiny, tmp_path: Path) -> None:
    with pytest.raises(InstrumentError, match="verifier"):
        tiny.train_generator(tmp_path, verifier={"failure_rate": 1.0})


def test_too_many_invalid_rubrics_stop_the_training(tiny, tmp_path: Path) -> None:
    with pytest.raises(InstrumentError, match="above max_invalid_rate"):
        tiny.train_generator(
            tmp_path,
            rubrics={"sampling": {"temperature": 4.0}},
            generator_training={"max_invalid_rate": 0.25},
        )


def test_rubrics_that_never_end_stop_the_training_with_a_remedy(tiny, tmp_path: Path) -> None:
    with pytest.raises(InstrumentError, match="every completion of step 1 was cut at max_tokens"):
        tiny.train_generator(tmp_path, rubrics={"sampling": {"max_tokens": 1}})
