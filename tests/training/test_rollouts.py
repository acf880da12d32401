"""Rewards, limits and refusals of the rollouts, with a scripted engine in the model's place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import GenerateRequest, Generation, JudgeRequest
from dynamicrubric.engines.programmatic import ProgrammaticVerifier
from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.evaluators.judging import Judging, ResponseSet
from dynamicrubric.training import grpo
from dynamicrubric.training.generator import INVALID_R_DISC, GeneratorRollout, worst_r_anchor
from dynamicrubric.training.policy import PolicyRollout, reward_of
from dynamicrubric.training.rollout import RolloutBatch, RowGroup
from dynamicrubric.training.rows import groups_per_process, row_order, whole_groups
from dynamicrubric.types import Score, Verdict
from dynamicrubric.worlds.postcards.criteria import check

ANCHORS = ("dear Anna, thank you.", "dear Anna", "WOW")
RESPONSES = ("thank you.", "7 days", "thank you 7", "WOW?")
SAMPLING = Sampling(temperature=1.0, min_p=0.0, max_tokens=8)
THANKS = '[{"criterion":"says thank you","weight":2}]'
NUMBER = '[{"criterion":"gives a number","weight":1}]'
POETIC = '[{"criterion":"is poetic","weight":1}]'


class Letters:
    """An encoder: one id a letter."""

    def content(self, text: str) -> list[int]:
        return [ord(char) for char in text]

    def policy_prompt(self, prompt: str) -> list[int]:
        return self.content(prompt)

    def generator_prompt(self, prompt: str, responses: Sequence[str]) -> list[int]:
        return self.content("".join([prompt, *responses]))


class Script:
    """An engine that says its lines."""

    tokenizer = Letters()
    context: int | None = None

    def __init__(self, *lines: str | Generation) -> None:
        self.lines = [
            line if isinstance(line, Generation) else Generation((1, 2), line, "stop")
            for line in lines
        ]
        self.asked: list[GenerateRequest] = []

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling) -> list[Generation]:
        self.asked += requests
        return [self.lines[i % len(self.lines)] for i in range(len(requests))]


class Kept:
    """A writer that hands out the same rubrics in turn."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def write(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[Generation]:
        return [Generation((), self.texts[i % len(self.texts)], "stop") for i in range(len(sets))]


def judging(**changed: Any) -> Judging:
    fields: dict[str, Any] = {
        "verifier": ProgrammaticVerifier(check), "min_items": 1, "max_items": 2,
        "max_invalid_rate": 0.5, "max_unscored_rate": 0.5,
    }  # fmt: skip
    return Judging(**(fields | changed))


def generator_rollout(**changed: Any) -> GeneratorRollout:
    """Return a generator's rollout whose rubrics are read and applied with what is `changed`."""
    return GeneratorRollout(
        sets={"p/0": ResponseSet("p", "Write", RESPONSES)},
        anchors={"p": ANCHORS},
        judging=judging(**changed),
        sees_responses=True,
        sampling=SAMPLING,
        seed_name=(1, 1, "train_generator"),
    )


def policy_rollout(*rubrics: str, **changed: Any) -> PolicyRollout:
    """Return a policy's rollout under these rubrics, read and applied with what is `changed`."""
    return PolicyRollout(
        prompts={"p": "Write", "q": "Write more"},
        writer=Kept(*rubrics),
        judging=judging(**changed),
        sampling=SAMPLING,
        seed_name=(1, 1, "train_policy"),
        cell_hash="0123abcd",
    )


def run(rollout: Any, engine: Script, *groups: tuple[str, int], step: int = 1) -> RolloutBatch:
    batch: RolloutBatch = rollout([RowGroup(*group) for group in groups], engine, step)
    return batch


def log_sigmoid(gap: float) -> float:
    return -math.log1p(math.exp(-gap))


def test_generators_rewards_are_those_of_its_rubric() -> None:
    batch = run(generator_rollout(), Script(THANKS, NUMBER), ("p/0", 2))
    assert batch.rewards["r_disc"] == [0.25, 0.25]  # two of four give thanks, two have a number
    thanks = log_sigmoid(1) * (1 + 1 / 2) + log_sigmoid(0) / 2  # scores 1, 0, 0
    number = log_sigmoid(0) * 2.0  # scores 0, 0, 0
    assert batch.rewards["r_anchor"] == pytest.approx([thanks, number])
    assert [row["invalid_reason"] for row in batch.lineage] == [None, None]


def test_generators_rewards_with_equal_weights_count_every_item_alike() -> None:
    both = (
        '[{"criterion":"says thank you","weight":3},{"criterion":"shouts in capitals","weight":1}]'
    )
    found = {
        equal: run(generator_rollout(equal_weights=equal), Script(both), ("p/0", 1)).rewards
        for equal in (False, True)
    }
    # Of four responses two give thanks (p(1-p) = 1/4), one shouts (3/16).
    assert found[False]["r_disc"] == pytest.approx([(3 * 1 / 4 + 3 / 16) / 4])
    assert found[True]["r_disc"] == pytest.approx([(1 / 4 + 3 / 16) / 2])
    scores = {False: (3 / 4, 0, 1 / 4), True: (1 / 2, 0, 1 / 2)}
    for equal, (first, second, third) in scores.items():
        expected = (log_sigmoid(first - second) + log_sigmoid(first - third) / 2) + log_sigmoid(
            second - third
        ) / 2
        assert found[equal]["r_anchor"] == pytest.approx([expected])


def test_generators_invalid_rubric_earns_the_worst_of_both_rewards() -> None:
    cut = Generation((1,), THANKS, "length")
    engine = Script(THANKS, "[", POETIC, cut)
    batch = run(generator_rollout(max_invalid_rate=0.75), engine, ("p/0", 4))
    assert batch.rewards["r_disc"][1:] == [INVALID_R_DISC] * 3
    assert batch.rewards["r_anchor"][1:] == [worst_r_anchor(3)] * 3
    reasons = [row["invalid_reason"] for row in batch.lineage]
    assert reasons == [None, "not_json", "uncheckable_criterion", "truncated"]
    assert batch.metrics["rate/invalid_rubric"] == 0.75


@pytest.mark.parametrize("num_anchors", [2, 5, 7])
def test_worst_r_anchor_is_below_that_of_any_scores(num_anchors: int) -> None:
    from dynamicrubric.rewards import r_anchor

    for scores in ([0.0] * num_anchors, [i / (num_anchors - 1) for i in range(num_anchors)]):
        found = r_anchor(scores)
        assert found is not None
        assert worst_r_anchor(num_anchors) <= found


def test_generator_above_its_invalid_rate_stops_with_the_reasons() -> None:
    with pytest.raises(InstrumentError, match="2 of 3 rubrics of step 7 are invalid") as caught:
        run(generator_rollout(), Script(THANKS, "[", POETIC), ("p/0", 3), step=7)
    said = str(caught.value)
    assert "'not_json': 1" in said
    assert "'uncheckable_criterion': 1" in said
    assert "max_invalid_rate 0.5" in said


def test_generator_whose_verifier_is_down_stops() -> None:
    silent = ProgrammaticVerifier(check, failure_rate=1.0)
    with pytest.raises(InstrumentError, match=r"28 of 28 verdicts of step 1 unscored") as caught:
        run(generator_rollout(verifier=silent, max_invalid_rate=1.0), Script(THANKS), ("p/0", 4))
    assert "'verifier_failure': 28" in str(caught.value)
    assert "verifier.max_unscored_rate 0.5" in str(caught.value)


class FailsOnAnchors:
    """A verifier that judges responses well and never an anchor."""

    def accepts(self, criterion: str) -> bool:
        return True

    def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        return [
            [Verdict.unscored("down") if r.response in ANCHORS else Verdict.yes()] for r in requests
        ]


def test_generator_whose_verifier_fails_on_anchors_alone_stops() -> None:
    rollout = generator_rollout(verifier=FailsOnAnchors(), max_unscored_rate=0.4)
    with pytest.raises(InstrumentError, match=r"3 of 7 verdicts of step 1 unscored"):
        run(rollout, Script(THANKS), ("p/0", 1))
    batch = run(generator_rollout(verifier=FailsOnAnchors()), Script(THANKS), ("p/0", 1))
    assert batch.metrics["rate/unscored_anchor"] == 1.0
    assert batch.rewards["r_anchor"] == [None]


def test_generator_whose_verifier_fails_at_times_earns_no_more_than_under_a_whole_one() -> None:
    halting = ProgrammaticVerifier(check, failure_rate=0.3)
    batch = run(generator_rollout(verifier=halting), Script(THANKS, NUMBER), ("p/0", 2))
    whole = run(generator_rollout(), Script(THANKS, NUMBER), ("p/0", 2))
    assert 0.0 < batch.metrics["rate/unscored_verdict"] < 1.0
    assert batch.metrics["rate/unscored_anchor"] > 0.0
    for name, rewards in batch.rewards.items():
        pairs = list(zip(rewards, whole.rewards[name], strict=True))
        assert all(one is not None and one <= other for one, other in pairs)
    assert batch.rewards["r_anchor"] != whole.rewards["r_anchor"]


def test_static_generator_reads_the_prompt_alone() -> None:
    seen, alone = Script(THANKS), Script(THANKS)
    run(generator_rollout(), seen, ("p/0", 1))
    run(replace(generator_rollout(), sees_responses=False), alone, ("p/0", 1))
    assert len(seen.asked[0].prompt_ids) > len(alone.asked[0].prompt_ids)
    assert bytes(i for i in alone.asked[0].prompt_ids if i >= 0) == b"Write"


def test_policys_group_is_scored_by_one_rubric() -> None:
    engine = Script("thank you", "7", "thank you 7", "")
    batch = run(policy_rollout(THANKS, NUMBER), engine, ("p", 4), ("q", 4))
    assert batch.rewards["score"] == [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    assert len({row["rubric_id"] for row in batch.lineage[:4]}) == 1
    assert [row["verdicts"] for row in batch.lineage[:2]] == [["yes"], ["no"]]


def test_policys_rows_under_an_invalid_rubric_have_no_reward() -> None:
    engine = Script("thank you", "7")
    batch = run(policy_rollout("[", THANKS), engine, ("p", 2), ("q", 2))
    assert batch.rewards["score"] == [None, None, 1.0, 0.0]
    assert [row["score_reason"] for row in batch.lineage[:2]] == ["invalid_rubric:not_json"] * 2
    assert batch.metrics == {
        "rate/invalid_rubric": 0.5, "rate/unscored_verdict": 0.0,
        "rate/unscored_response": 0.5, "rate/items_per_rubric": 1.0,
    }  # fmt: skip


def test_policy_above_its_invalid_rate_stops_with_the_reasons() -> None:
    with pytest.raises(InstrumentError, match="2 of 2 rubrics of step 3 are invalid") as caught:
        run(policy_rollout("[", "{}"), Script("7"), ("p", 2), ("q", 2), step=3)
    assert "'not_json': 1" in str(caught.value)
    assert "max_invalid_rate 0.5" in str(caught.value)


def test_policy_whose_verifier_is_down_stops() -> None:
    silent = ProgrammaticVerifier(check, failure_rate=1.0)
    with pytest.raises(InstrumentError, match="'verifier_failure': 2"):
        run(policy_rollout(THANKS, verifier=silent), Script("7"), ("p", 2))


def test_policys_unfinished_response_earns_nothing() -> None:
    assert reward_of(Score.of(0.75), "stop") == 0.75
    assert reward_of(Score.of(0.75), "length") == 0.0
    assert reward_of(Score.unscored("refusal"), "length") is None


def test_response_that_the_engine_never_gave_is_not_judged_and_has_no_reward() -> None:
    asked: list[JudgeRequest] = []

    class Watched(ProgrammaticVerifier):
        def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
            asked.extend(requests)
            return super().judge(requests)

    engine = Script("thank you", Generation.failed("content_filter"), "7")
    rollout = policy_rollout(THANKS, verifier=Watched(check))
    for truncated in ("zero", "scored"):
        batch = run(replace(rollout, truncated=truncated), engine, ("p", 3))  # type: ignore[arg-type]
        assert batch.rewards["score"] == [1.0, None, 0.0]
        assert batch.lineage[1]["score_reason"] == "failed_response:content_filter"
        assert batch.lineage[1]["verdicts"] == ["failed_response:content_filter"]
        assert batch.metrics["rate/unscored_response"] == pytest.approx(1 / 3)
    assert [request.response for request in asked] == ["thank you", "7"] * 2
    assert [request.seed for request in asked[:2]] == [request.seed for request in asked[2:]]


def test_response_that_the_engine_never_gave_is_no_failure_of_the_verifier() -> None:
    engine = Script("thank you", Generation.failed("too_long"))
    batch = run(policy_rollout(THANKS, max_unscored_rate=0.5), engine, ("p", 2))
    assert batch.metrics["rate/unscored_verdict"] == 0.0
    with pytest.raises(InstrumentError, match="gave none of 2 of 4 responses of step 3") as caught:
        run(policy_rollout(THANKS, max_unscored_rate=0.4), engine, ("p", 4), step=3)
    said = str(caught.value)
    assert "{'too_long': 2}" in said
    assert "mend the engine that samples responses" in said
    assert "mend the verifier" not in said


def test_verifier_s_failures_count_among_the_responses_that_there_are() -> None:
    silent = ProgrammaticVerifier(check, failure_rate=1.0)
    engine = Script("7", Generation.failed("too_long"), "7")
    with pytest.raises(InstrumentError, match=r"left 2 of 2 verdicts.*'verifier_failure': 2\}"):
        run(policy_rollout(THANKS, verifier=silent), engine, ("p", 3))


def test_step_without_a_response_has_no_rate_of_verdicts() -> None:
    engine = Script(Generation.failed("too_long"))
    batch = run(policy_rollout(THANKS, max_unscored_rate=1.0), engine, ("p", 2))
    assert batch.rewards["score"] == [None, None]
    assert "rate/unscored_verdict" not in batch.metrics


def test_rubric_that_the_engine_never_gave_is_not_charged_to_the_generator() -> None:
    engine = Script(THANKS, Generation.failed("content_filter"), "[", THANKS)
    batch = run(generator_rollout(max_invalid_rate=0.4), engine, ("p/0", 4))
    assert batch.metrics["rate/invalid_rubric"] == pytest.approx(1 / 3)
    with pytest.raises(InstrumentError, match="gave none of 1 of 4 rubrics of step 1") as caught:
        run(generator_rollout(max_invalid_rate=0.2), engine, ("p/0", 4))
    assert "{'content_filter': 1}" in str(caught.value)
    assert "warm start" not in str(caught.value)


def test_generator_is_not_shown_a_response_that_the_engine_never_gave() -> None:
    engine = Script(THANKS)
    found = ResponseSet.of(
        "p", "Write", [Generation((1,), "thank you", "stop"), Generation.failed("too_long")]
    )
    batch = run(replace(generator_rollout(), sets={"p/0": found}), engine, ("p/0", 1))
    assert engine.asked[0].prompt_ids == Letters().generator_prompt("Write", ["thank you"])
    assert batch.rewards["r_disc"] == [0.0]  # the one verdict tells nothing apart


def test_rubric_that_the_engine_never_gave_costs_the_generator_nothing() -> None:
    engine = Script(THANKS, Generation.failed("too_long"), "[")
    batch = run(generator_rollout(max_invalid_rate=0.7), engine, ("p/0", 3))
    assert batch.rewards["r_disc"] == [0.25, None, INVALID_R_DISC]
    assert batch.rewards["r_anchor"][1:] == [None, worst_r_anchor(len(ANCHORS))]
    assert [row["invalid_reason"] for row in batch.lineage] == [None, "failed", "not_json"]


@pytest.mark.parametrize(
    ("rollout", "row", "longest"),
    [(policy_rollout(THANKS), "q", "Write more"), (generator_rollout(), "p/0", None)],
)
def test_row_beyond_the_context_stops_before_anything_is_sampled(
    rollout: Any, row: str, longest: str | None
) -> None:
    engine = Script(THANKS)
    groups = [(row, 2)] if longest is None else [("p", 2), (row, 2)]
    prompt = longest or "".join(["Write", *RESPONSES])
    engine.context = len(prompt) + 1
    run(rollout, engine, *groups)
    asked = len(engine.asked)
    engine.context = len(prompt)
    with pytest.raises(UserError, match=rf"the row '{row}'.*prompt of {len(prompt)} tokens"):
        run(rollout, engine, *groups)
    assert len(engine.asked) == asked


def test_rollouts_draw_from_run_step_row_and_sample() -> None:
    def seeds(step: int, run_seed: int) -> list[int]:
        engine = Script("7")
        rollout = replace(policy_rollout(THANKS), seed_name=(run_seed, 1, "train_policy"))
        run(rollout, engine, ("p", 3), ("q", 3), step=step)
        return [request.seed for request in engine.asked]

    found = [*seeds(1, 1), *seeds(2, 1), *seeds(1, 2)]
    assert len(set(found)) == len(found) == 18
    assert seeds(1, 1) == found[:6]


def test_group_cut_in_two_is_refused() -> None:
    assert whole_groups(["a", "a", "b", "b"], 2) == [("a", 2), ("b", 2)]
    for rows in (["a", "a", "a", "b"], ["a", "b", "a", "b"], ["a", "a", "b"]):
        with pytest.raises(InstrumentError, match="a group of 2 rows was cut"):
            whole_groups(rows, 2)


@pytest.mark.parametrize(("prompts", "processes"), [(3, 2), (1, 2), (8, 3)])
def test_groups_that_processes_cannot_share_whole_are_refused(prompts: int, processes: int) -> None:
    with pytest.raises(UserError, match=r"multiple of runtime\.processes"):
        groups_per_process(prompts, processes)


@given(st.integers(1, 40), st.integers(1, 30), st.data())
def test_row_order_takes_each_row_as_often_and_none_twice_a_step(
    num_rows: int, num_steps: int, data: st.DataObject
) -> None:
    per_step = data.draw(st.integers(1, num_rows))
    keys = [f"row-{number}" for number in range(num_rows)]
    order = row_order(keys, num_steps, per_step, 7)
    taken = [order[i : i + per_step] for i in range(0, len(order), per_step)]
    assert len(taken) == num_steps
    assert all(len(set(rows)) == per_step for rows in taken)
    epoch = num_rows // per_step
    for start in range(0, num_steps, epoch):
        rows = [row for step in taken[start : start + epoch] for row in step]
        assert len(set(rows)) == len(rows)


def test_row_order_is_the_seeds_and_longer_trainings_begin_alike() -> None:
    keys = [f"row-{number}" for number in range(10)]
    assert row_order(keys, 20, 3, 1) == row_order(keys, 20, 3, 1)
    assert row_order(keys, 20, 3, 1)[: 3 * 7] == row_order(keys, 7, 3, 1)
    assert row_order(keys, 20, 3, 1) != row_order(keys, 20, 3, 2)
    assert row_order(keys, 3, 3, 1) != row_order(keys, 6, 3, 1)[9:]  # each epoch its own


def test_row_order_with_fewer_rows_than_a_step_takes_is_refused() -> None:
    with pytest.raises(UserError, match="prompts_per_step = 5 and 4 rows"):
        row_order(["a", "b", "c", "d"], 1, 5, 1)


def test_rollout_function_called_with_a_cut_group_refuses_before_sampling() -> None:
    engine = Script("7")
    settings = SimpleNamespace(group_size=4)
    roll_out = grpo._rollout_function(
        policy_rollout(THANKS), engine.tokenizer, settings, SimpleNamespace()
    )  # type: ignore[arg-type]  # nothing of them is reached
    with pytest.raises(InstrumentError, match="a group of 4 rows was cut"):
        roll_out(["p", "p", "q", "q"], SimpleNamespace())
    assert engine.asked == []


def test_reward_function_takes_texts_and_message_lists_alike() -> None:
    """Case 18: equal outputs, extra arguments accepted, the length asserted."""
    reward = grpo._reward_function("score")
    logged: list[tuple[str, float]] = []
    fields: dict[str, Any] = {
        "score": [0.5, None], "prompts": ["p", "p"], "trainer_state": None, "anything": 1,
        "step_metrics": [{"rate/invalid_rubric": 0.5}] * 2,
    }  # fmt: skip

    def log(name: str, value: float) -> None:
        logged.append((name, value))

    texts = reward(completions=["a", "b"], log_metric=log, **fields)
    messages = [[{"role": "assistant", "content": text}] for text in "ab"]
    assert texts == reward(completions=messages, log_metric=log, **fields) == [0.5, None]
    assert logged == [("rate/invalid_rubric", 0.5)] * 2
    assert reward.__name__ == "score"
    with pytest.raises(AssertionError, match="one reward for each completion"):
        reward(completions=["a"], log_metric=log, **fields)
