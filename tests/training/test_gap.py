"""R_gap and the penalty on singling out in the generator's training, and a real step of both."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_generator import ours, watched
from test_rollouts import NUMBER, RESPONSES, THANKS, Script, generator_rollout, run

from dynamicrubric.engines.base import Generation
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.explain import explain_rubric
from dynamicrubric.lineage import Training
from dynamicrubric.training.gap import WORST_R_GAP, GapReward, reference_pairs
from tasks.disk import sha256_of

QUALITY = {"thank you.": 0.4, "7 days": 0.3, "thank you 7": 0.3, "WOW?": -1.0}


def known(prompt_id: str, text: str) -> float:
    return QUALITY[text]


SETS = {"p/0": ResponseSet("p", "Write", RESPONSES)}


def test_gap_on_anchors_is_the_mean_over_the_pairs_of_their_order() -> None:
    batch = run(replace(generator_rollout(), gap=GapReward()), Script(THANKS, NUMBER), ("p/0", 2))
    # Of the three anchors the best alone gives thanks: pairs 1, 1, 0; none has a number.
    assert batch.rewards["r_gap"] == pytest.approx([2 / 3, 0.0])
    assert [row["r_gap"] for row in batch.lineage] == batch.rewards["r_gap"]
    assert batch.lineage[0]["advantage_gap"] > 0 > batch.lineage[1]["advantage_gap"]


def test_gap_on_responses_is_the_mean_over_the_pairs_that_the_reference_orders() -> None:
    gap = GapReward(reference_pairs(SETS, known, 0.0, seed=1))
    assert gap.pairs == {"p/0": ((0, 1), (0, 2), (0, 3), (1, 3), (2, 3))}  # 1 and 2 are tied
    batch = run(replace(generator_rollout(), gap=gap), Script(THANKS, NUMBER), ("p/0", 2))
    # thanks: 1, 0, 1, 0, 1 over the five pairs; a number: -1, -1, 0, 1, 1.
    assert batch.rewards["r_gap"] == pytest.approx([3 / 5, 0.0])


def test_recipe_without_gap_has_neither_reward_nor_column() -> None:
    batch = run(generator_rollout(), Script(THANKS), ("p/0", 2))
    assert set(batch.rewards) == {"r_disc", "r_anchor"}
    assert not {"r_gap", "advantage_gap", "single_share"} & set(batch.lineage[0])


def test_invalid_rubric_earns_the_worst_gap_and_one_never_written_none() -> None:
    gone = Generation((), "", "error", failure="down")
    engine = Script(THANKS, "[", gone)
    rollout = replace(generator_rollout(max_invalid_rate=0.9), gap=GapReward())
    batch = run(rollout, engine, ("p/0", 3))
    assert batch.rewards["r_gap"][1:] == [WORST_R_GAP, None]


def test_set_without_an_ordered_pair_teaches_no_gap() -> None:
    gap = GapReward(reference_pairs(SETS, lambda prompt_id, text: 0.5, 0.0, seed=1))
    rollout = replace(generator_rollout(), gap=gap)
    batch = run(rollout, Script(THANKS, "["), ("p/0", 2))
    assert batch.rewards["r_gap"] == [None, None]
    assert [row["advantage_gap"] for row in batch.lineage] == [0.0, 0.0]


def test_reference_leaves_out_what_is_not_there_and_keeps_its_place() -> None:
    failed = replace(SETS["p/0"], failures=(None, "down", None, None))
    assert reference_pairs({"a": failed}, known, 0.0, 1)["a"] == ((0, 2), (0, 3), (2, 3))


def test_reference_errs_once_a_response_whatever_the_set_and_more_with_more_noise() -> None:
    texts = [f"text {number}" for number in range(40)]
    quality = {text: number / 40 for number, text in enumerate(texts)}

    def wrong(noise: float, seed: int = 1) -> set[tuple[int, int]]:
        rows = {"a": ResponseSet("p", "Write", tuple(texts))}
        pairs = reference_pairs(rows, lambda prompt_id, text: quality[text], noise, seed)["a"]
        assert len(pairs) == 40 * 39 / 2
        return {pair for pair in pairs if pair[0] < pair[1]}

    assert not wrong(0.0)
    assert 0 < len(wrong(0.05)) < len(wrong(0.5)) < 40 * 39 / 2
    assert wrong(0.2) == wrong(0.2)
    assert wrong(0.2) != wrong(0.2, seed=2)
    two = {key: ResponseSet("p", "Write", tuple(texts[:8])) for key in ("a", "b")}
    pairs = reference_pairs(two, lambda prompt_id, text: quality[text], 0.3, 1)
    assert pairs["a"] == pairs["b"]


def test_penalty_comes_off_discriminability_and_never_goes_below_an_invalid_rubric() -> None:
    days = '[{"criterion":"shouts in capitals","weight":1}]'
    one = ResponseSet("p", "Write", ("thank you. capitals", "7 days", "seven", "WOW capitals?"))
    alone = ResponseSet("p", "Write", ("thank you.", "7 days", "seven", "WOW capitals?"))
    for rows, share in ((one, 0.0), (alone, 1.0)):
        for penalty in (0.1, 0.5):
            rollout = replace(generator_rollout(), sets={"p/0": rows}, single_penalty=penalty)
            batch = run(rollout, Script(days), ("p/0", 1))
            expected = max(0.0, 3 / 16 - penalty * share)  # one of four shouts
            assert batch.rewards["r_disc"] == pytest.approx([expected])
            assert batch.lineage[0]["single_share"] == share
            assert batch.metrics["rate/single"] == share


@pytest.fixture(scope="module")
def trained(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    objective = {
        "disc": 1.0, "anchor": 1.0, "gap": 2.0, "gap_order": "reference", "gap_noise": 0.1,
        "single_penalty": 0.1,
    }  # fmt: skip
    where = tmp_path_factory.mktemp("gap") / "run"
    return watched(tiny, where, generator_training={"objective": objective, "steps": 2})


def test_trl_trains_on_the_three_rewards_with_their_weights(trained: tuple[Any, Any]) -> None:
    run, advantages = trained
    for number, found in enumerate(advantages, start=1):
        rows = run.rollouts[run.rollouts["step"] == number]
        expected = ours(rows, (1.0, 1.0, 2.0), ("r_disc", "r_anchor", "r_gap"))
        assert found == pytest.approx(expected, abs=5e-3)
    for line in run.log:
        assert -1.0 <= line["metrics"]["r_gap"] <= 1.0
        assert 0.0 <= line["metrics"]["rate/single"] <= 1.0


def test_explain_adds_the_three_advantages(trained: tuple[Any, Any], tmp_path: Path) -> None:
    run, _ = trained
    folder = tmp_path / "data/runs/gap-s1-r1/generator"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(run.out)
    files = {one.name: {"sha256": sha256_of(one)} for one in run.out.iterdir()}
    identity = {
        "rubrics": {"evaluator": "dynamic", "min_items": 1, "max_items": 2},
        "training": {
            "group_size": 4,
            "objective": {"disc": 1.0, "anchor": 1.0, "gap": 2.0, "gap_order": "reference"},
        },
    }
    record = {
        "step": "train_generator", "identity": identity, "inputs": {}, "files": files,
        "content_hash": "0",
    }  # fmt: skip
    (run.out / "record.json").write_text(json.dumps(record))
    training = Training.open(tmp_path, "gap-s1-r1", "generator")
    for row in training.rows:
        found = explain_rubric(training, row["id"])
        assert found.advantage_gap is not None
        parts = (found.advantage_disc, found.advantage_anchor, found.advantage_gap)
        expected = sum(w * part for w, part in zip((1, 1, 2), parts, strict=True))
        assert found.advantage == pytest.approx(expected)
