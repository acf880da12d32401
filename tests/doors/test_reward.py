"""GroupRubricReward as TRL calls it, without TRL: groups, forms of prompts, hooks, limits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from fakeevaluator import FakeEvaluator

from dynamicrubric import GroupRubricReward
from dynamicrubric.errors import InstrumentError, UserError

SHORT, LONG = "short", "a long response"


def rewards(reward: GroupRubricReward, *args: Any, **sent: Any) -> list[float | None]:
    return asyncio.run(reward(*args, **sent))


def test_reward_scores_each_group_with_one_rubric_in_one_call() -> None:
    evaluator = FakeEvaluator()
    found = rewards(
        GroupRubricReward(evaluator, group_size=2),
        prompts=["a", "a", "b", "b"],
        completions=[SHORT, LONG, LONG, SHORT],
        answer=["never shown"] * 4,
        trainer_state=object(),
    )
    assert found == [0.6, 1.0, 1.0, 0.6]
    assert evaluator.sizes == [2]
    assert evaluator.seen == ["a", "b"]


def test_reward_reads_texts_and_message_lists_alike() -> None:
    evaluator = FakeEvaluator()
    reward = GroupRubricReward(evaluator, group_size=2)
    plain = rewards(reward, ["a", "a"], [SHORT, LONG])
    messages = rewards(
        reward,
        [[{"role": "user", "content": "a"}]] * 2,
        [[{"role": "assistant", "content": SHORT}], [{"role": "assistant", "content": LONG}]],
    )
    blocks = rewards(
        reward,
        [[{"role": "user", "content": [{"type": "text", "text": "a"}]}]] * 2,
        [[{"role": "assistant", "content": [{"type": "text", "text": t}]}] for t in (SHORT, LONG)],
    )
    assert plain == messages == blocks == reward.score(["a", "a"], [SHORT, LONG])
    assert len(set(evaluator.seeds)) == 1


def test_reward_completion_without_text_is_none_and_not_zero() -> None:
    call = [{"role": "assistant", "content": None, "tool_calls": [{}]}]
    found = rewards(GroupRubricReward(FakeEvaluator(), group_size=2), ["a", "a"], [call, LONG])
    assert found == [None, 1.0]


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        (["a", "a", "a"], "begins with row 2"),
        (["a", "b"], "rows of 2 prompts"),
        (["a", "b", "b", "a"], "begins with row 0"),
        (["a"], "got 1 rows"),
    ],
)
def test_reward_cut_group_is_refused_before_anything_is_scored(
    prompts: list[str], said: str
) -> None:
    evaluator = FakeEvaluator()
    with pytest.raises(UserError, match=said) as caught:
        rewards(GroupRubricReward(evaluator, group_size=2), prompts, [SHORT] * len(prompts))
    assert "num_generations" in str(caught.value)
    assert evaluator.sizes == []


def test_reward_group_size_that_cuts_every_group_in_parts_is_refused() -> None:
    evaluator = FakeEvaluator()
    reward = GroupRubricReward(evaluator, group_size=2)
    halves = ["a"] * 4 + ["b"] * 8
    with pytest.raises(UserError, match="parts of groups of 4") as caught:
        rewards(reward, halves, [SHORT] * 12)
    assert "num_generations" in str(caught.value)
    assert evaluator.sizes == []
    twice = ["a"] * 4 + ["b"] * 2
    assert rewards(reward, twice, [SHORT] * 6) == [0.6] * 6
    few = GroupRubricReward(evaluator, group_size=2, repeated_prompts=True)
    assert rewards(few, halves, [SHORT] * 12) == [0.6] * 12


@pytest.mark.parametrize("prompt", [None, 5, "", " ", [], [{"role": "user", "content": None}]])
def test_reward_prompt_without_text_is_refused(prompt: object) -> None:
    with pytest.raises(UserError, match="reading the prompt of row 0"):
        rewards(GroupRubricReward(FakeEvaluator(), group_size=2), [prompt] * 2, [SHORT, LONG])


def test_reward_logs_rates_cost_rubric_and_verdicts() -> None:
    metrics: dict[str, float] = {}
    columns: dict[str, list[Any]] = {}
    reward = GroupRubricReward(FakeEvaluator(), group_size=2, max_unscored_rate=1.0)
    rewards(
        reward,
        ["a", "a", "no rubric", "no rubric"],
        [SHORT, LONG, SHORT, LONG],
        log_metric=metrics.__setitem__,
        log_extra=columns.__setitem__,
    )
    assert metrics == {
        "rubric/unscored_rate": 0.5, "rubric/invalid_rate": 0.5, "rubric/items": 2.0,
        "rubric/calls": 2.0, "rubric/prompt_tokens": 20.0, "rubric/completion_tokens": 10.0,
        "rubric/verdicts": 8.0,
    }  # fmt: skip
    assert columns["verdicts"] == ["yes no", "yes yes", "", ""]
    assert columns["rubric"] == ["[the rubric]"] * 2 + ["nonsense"] * 2
    assert columns["unscored"] == ["", "", *["invalid_rubric:not_json"] * 2]


def test_reward_step_with_too_little_scored_stops_with_the_reasons() -> None:
    logged: dict[str, float] = {}
    reward = GroupRubricReward(FakeEvaluator(), group_size=2, max_unscored_rate=0.4)
    prompts = ["a", "a", "no rubric", "no rubric"]
    with pytest.raises(InstrumentError, match=r"2 of 4 completions.*not_json 2.*0\.4"):
        rewards(reward, prompts, [SHORT] * 4, log_metric=logged.__setitem__)
    assert logged["rubric/unscored_rate"] == 0.5
    with pytest.raises(InstrumentError, match="down"):
        rewards(reward, ["the verifier is down"] * 2, [SHORT] * 2)


def test_reward_with_end_ids_a_cut_completion_earns_nothing() -> None:
    reward = GroupRubricReward(FakeEvaluator(), group_size=2, end_ids=[7])
    ids = [[1, 7], [1, 2]]
    assert rewards(reward, ["a"] * 2, [SHORT, LONG], completion_ids=ids) == [0.6, 0.0]
    assert rewards(reward, ["a"] * 2, [SHORT, LONG], completion_ids=[[], [7]]) == [0.0, 1.0]
    scored = GroupRubricReward(FakeEvaluator(), group_size=2)
    assert rewards(scored, ["a"] * 2, [SHORT, LONG], completion_ids=ids) == [0.6, 1.0]


def test_reward_prompt_column_is_what_the_evaluator_reads() -> None:
    evaluator = FakeEvaluator()
    reward = GroupRubricReward(evaluator, group_size=2, prompt_column="asked")
    rewards(reward, ["<bos>a"] * 2, [SHORT, LONG], asked=["a", "a"], answer=["x"] * 2)
    assert evaluator.seen == ["a"]
    with pytest.raises(UserError, match="the columns answer"):
        rewards(reward, ["<bos>a"] * 2, [SHORT, LONG], answer=["x"] * 2)


@pytest.mark.parametrize("wrong", [{"group_size": 1}, {"group_size": 2, "max_unscored_rate": 2}])
def test_reward_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="making a GroupRubricReward"):
        GroupRubricReward(FakeEvaluator(), **wrong)


def test_importing_the_package_stays_cheap_and_the_reward_needs_no_torch() -> None:
    code = (
        "import sys, dynamicrubric; a = 'pydantic' in sys.modules;"
        "from dynamicrubric import GroupRubricReward;"
        "print(a, *[n for n in ('torch', 'trl', 'transformers', 'fastapi') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
