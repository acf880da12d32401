"""A reward model learns the anchors' order, goes on after a kill, and is read as it was trained."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from dynamicrubric.engines.choice import Engines
from dynamicrubric.engines.models import Models
from dynamicrubric.engines.reward import RewardPrompts, load_reward_model
from dynamicrubric.engines.tokenizer import FrameTokenizer
from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.build import build_evaluator
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.evaluators.spec import EvaluatorSpec
from dynamicrubric.prompts.frames import ANSWER, RESPONSE
from dynamicrubric.training import reward_model
from dynamicrubric.training.reward_model import RewardSettings, pairs_of
from dynamicrubric.worlds.prepared import load_prepared

TRAINING = {"steps": 40, "batch_size": 8, "learning_rate": 3e-3}
SHORT = {"steps": 6, "batch_size": 4, "learning_rate": 1e-3}


def train(tiny: Any, where: Path, kind: str = "scalar", every: int = 10, **changed: Any) -> Any:
    training = TRAINING | changed
    return tiny.train_generator(
        where,
        every=every,
        rubrics={"evaluator": kind},
        generator_training=None,
        reward_training=training,
    )


@pytest.fixture(scope="module")
def trained(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A trained reward model of each kind."""
    root = tmp_path_factory.mktemp("reward")
    return {kind: train(tiny, root / kind, kind).out for kind in ("scalar", "scalar_set")}


def share_in_order(tiny: Any, kind: str, folder: Path) -> float:
    """Return how many pairs of the training anchors the evaluator puts in their order."""
    prepared = load_prepared(tiny.prepared)
    sets = [
        ResponseSet(key, prepared.all_prompts[key], texts)
        for key, texts in prepared.anchors.items()
    ]
    spec = EvaluatorSpec.model_validate({"kind": kind, "reward_model": str(folder)})
    with Engines(Models()) as engines:
        scored = build_evaluator(spec, prepared, engines).score(sets, [0] * len(sets))
    pairs = [
        (one.scores[a].value or 0.0) > (one.scores[b].value or 0.0)
        for one in scored
        for a, b in combinations(range(len(one.scores)), 2)
    ]
    return sum(pairs) / len(pairs)


@pytest.mark.parametrize("kind", ["scalar", "scalar_set"])
def test_trained_model_orders_the_anchors_it_learnt(
    tiny: Any, trained: dict[str, Path], kind: str
) -> None:
    assert share_in_order(tiny, kind, trained[kind]) > 0.8


def test_training_log_and_lineage_name_each_pair(tiny: Any, tmp_path: Path) -> None:
    run = train(tiny, tmp_path, **SHORT)
    log = run.log
    assert [line["step"] for line in log] == [1, 2, 3, 4, 5, 6]
    assert {"loss", "grad_norm", "pair_accuracy", "margin"} <= log[0]["metrics"].keys()
    rows = run.rollouts
    assert len(rows) == 6 * 4
    assert (rows["better"] < rows["worse"]).all()


def test_killed_training_goes_on_and_ends_with_the_same_bytes(tiny: Any, tmp_path: Path) -> None:
    whole = train(tiny, tmp_path / "whole", every=2, **SHORT)
    keep = reward_model._Lineage.on_log

    class KilledError(Exception):
        """What stands for a kill."""

    def killed(self: Any, args: Any, state: Any, *rest: Any, **fields: Any) -> None:
        if state.global_step == 5:
            raise KilledError
        keep(self, args, state, *rest, **fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reward_model._Lineage, "on_log", killed)
        with pytest.raises(KilledError):
            train(tiny, tmp_path / "killed", every=2, **SHORT)
    again = train(tiny, tmp_path / "killed", every=2, **SHORT)
    assert again.bytes == whole.bytes


def test_equal_pairs_are_none_and_too_few_are_refused(tiny: Any, tmp_path: Path) -> None:
    assert len(pairs_of({"a": ["x", "y", "z"], "b": ["x", "x"]})) == 3
    with pytest.raises(UserError, match="40 pairs of anchors"):
        train(tiny, tmp_path, batch_size=41, steps=1)


def test_set_is_shown_whole_in_a_drawn_order_and_the_response_comes_last(tiny: Any) -> None:
    prepared = load_prepared(tiny.prepared)
    tokenizer = FrameTokenizer.load(tiny.prepared / "tokenizer")
    settings = RewardSettings(50, 4, 1e-3, 1, 10, sees_set=True)
    rows = reward_model._ordered_pairs(prepared.anchors, settings)
    prompts = prepared.prompts["train"]
    columns = reward_model._columns(
        rows, prompts, prepared.anchors, RewardPrompts(tokenizer), settings
    )
    first = []
    for pair, ids in zip(rows, columns["chosen_ids"], strict=True):
        texts = prepared.anchors[pair.prompt_id]
        encoded = [tokenizer.content(text) for text in texts]
        assert ids.count(tokenizer.control(RESPONSE)) == len(texts)
        answer = ids.index(tokenizer.control(ANSWER))
        assert ids[answer + 1 : -1] == encoded[pair.better]
        start = ids.index(tokenizer.control(RESPONSE)) + 1
        length = ids[start:].index(tokenizer.control(RESPONSE))
        first.append(encoded.index(ids[start : start + length]))
    counts = [first.count(place) for place in range(5)]
    assert min(counts) > len(rows) / 5 / 2, "an order that is drawn puts each text first as often"


def test_rewards_do_not_depend_on_their_batch(trained: dict[str, Path], tiny: Any) -> None:
    model = load_reward_model(str(trained["scalar"]), Models())
    prompt = "a postcard"
    rows = [model.render(prompt, text) for text in ("Dear Emma", "x" * 300, "")]
    together = model.rewards([*rows, [1] * 100_000])
    alone = [model.rewards([row])[0] for row in rows]
    assert together == [*(pytest.approx(value, abs=1e-4) for value in alone), None]


def test_reward_is_that_of_transformers_own_pass(trained: dict[str, Path]) -> None:
    model = load_reward_model(str(trained["scalar"]), Models())
    ids = model.render("a postcard", "Dear Emma, thank you.")
    with torch.no_grad():
        expected = float(model.model(torch.tensor([ids])).logits[0, 0])
    assert model.rewards([ids]) == [pytest.approx(expected, abs=1e-5)]


def test_model_without_a_reward_head_is_refused(tiny: Any) -> None:
    with pytest.raises(UserError, match="sequence classifier with one label"):
        load_reward_model(str(tiny.policy), Models())
