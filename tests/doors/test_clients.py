"""The hooks of docs/clients against the real server: what the guide says is what runs."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from fakeevaluator import FakeEvaluator
from liveserver import Live, serving

from dynamicrubric.doors.limits import Limits
from dynamicrubric.doors.messages import prompt_text

HOOKS = Path(__file__).parents[2] / "docs" / "clients" / "dynamicrubric_hooks.py"
KEY = "0123456789abcdef"
LONG, SHORT = "a long response", "short"


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The file as a trainer loads it: from its path."""
    spec = importlib.util.spec_from_file_location("hooks", HOOKS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("DYNAMICRUBRIC_API_KEY", KEY)
    monkeypatch.setenv("DYNAMICRUBRIC_GROUP_SIZE", "2")
    monkeypatch.setattr(module, "MAX_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(module, "ATTEMPTS", 10_000)
    yield module


@pytest.fixture
def evaluator() -> FakeEvaluator:
    return FakeEvaluator()


@pytest.fixture
def live(evaluator: FakeEvaluator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    with serving(evaluator, key=KEY) as running:
        monkeypatch.setenv("DYNAMICRUBRIC_URL", running.url)
        yield running


def test_verl_batch_hook_scores_whole_groups(
    hooks: ModuleType, live: Live, evaluator: FakeEvaluator
) -> None:
    rewards = hooks.compute_score_batch(
        data_sources=["x"] * 4,
        solution_strs=[LONG, SHORT, SHORT, LONG],
        ground_truths=[None] * 4,
        extra_infos=[{"prompt": p} for p in ("one", "two", "one", "two")],
    )
    assert rewards == [1.0, 0.6, 0.6, 1.0]
    assert evaluator.seen == ["one", "two"]


def test_batch_that_cuts_a_group_is_refused(
    hooks: ModuleType, live: Live, evaluator: FakeEvaluator
) -> None:
    with pytest.raises(RuntimeError, match="1 of 2 rollouts"):
        hooks.rewards_of_batch(["one", "one", "two"], [LONG, SHORT, SHORT])
    assert evaluator.seen == []


def test_verl_single_hook_waits_for_its_group(
    hooks: ModuleType, live: Live, evaluator: FakeEvaluator
) -> None:
    async def rollouts() -> list[float]:
        calls = [
            hooks.compute_score("x", text, None, {"prompt": prompt, "index": index})
            for prompt, index, text in (
                ("one", 0, LONG), ("one", 1, SHORT), ("one", 0, SHORT), ("one", 1, LONG),
            )
        ]  # fmt: skip
        return list(await asyncio.gather(*calls))

    assert asyncio.run(rollouts()) == [1.0, 0.6, 0.6, 1.0]
    assert evaluator.seen == ["one", "one"]


def test_verl_single_hook_forgets_who_gave_up_waiting(
    hooks: ModuleType, live: Live, evaluator: FakeEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rollouts() -> list[float]:
        info = {"prompt": "one", "index": 0}
        with monkeypatch.context() as patched:
            patched.setattr(hooks, "GROUP_SECONDS", 0.05)
            with pytest.raises(TimeoutError):
                await hooks.compute_score("x", "of an earlier step", None, info)
        calls = [hooks.compute_score("x", text, None, info) for text in (SHORT, LONG)]
        return list(await asyncio.gather(*calls))

    assert asyncio.run(rollouts()) == [0.6, 1.0]
    assert hooks._waiting == {}


def test_verl_single_hook_one_that_is_cancelled_costs_the_others_nothing(
    hooks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = FakeEvaluator(held=True)

    async def rollouts() -> list[float | BaseException]:
        calls = [
            asyncio.ensure_future(hooks.compute_score("x", text, None, {"prompt": "one"}))
            for text in (SHORT, LONG)
        ]
        await asyncio.to_thread(evaluator.entered.wait, 60)
        calls[1].cancel()  # the last of a group is who asks for it
        evaluator.released.set()
        return list(await asyncio.gather(*calls, return_exceptions=True))

    with serving(evaluator, key=KEY) as live:
        monkeypatch.setenv("DYNAMICRUBRIC_URL", live.url)
        first, second = asyncio.run(rollouts())
    assert first == 0.6
    assert isinstance(second, asyncio.CancelledError)


def test_hooks_come_again_when_the_server_goes_away_in_its_answer(
    hooks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = b'{"scores": [0.5], "reasons": [null]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("DYNAMICRUBRIC_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")

        def answers() -> None:
            for said in (b"", head + answer[:5], head + answer):
                with listening.accept()[0] as one:
                    one.recv(65_536)
                    one.sendall(said)

        thread = threading.Thread(target=answers)
        thread.start()
        assert hooks.rewards_of("one", [SHORT]) == [0.5]
        thread.join(60)


def test_openrlhf_hook_returns_tensors(hooks: ModuleType, live: Live) -> None:
    found = hooks.reward_func(["one" + LONG, "one" + SHORT], ["one", "one"], [None, None])
    assert [round(v, 3) for v in found["rewards"].tolist()] == [1.0, 0.6]
    assert found["scores"].shape == found["extra_logs"]["rubric_score"].shape == (2,)


def test_verifiers_hook_is_a_group_reward(
    hooks: ModuleType, live: Live, evaluator: FakeEvaluator
) -> None:
    prompts = [[{"role": "system", "content": "s"}, {"role": "user", "content": "one"}]] * 2
    completions = [[{"role": "assistant", "content": text}] for text in (SHORT, LONG)]
    assert asyncio.run(hooks.rubric_scores(prompts=prompts, completions=completions)) == [0.6, 1.0]
    assert evaluator.seen == [prompt_text(prompts[0])]
    blocks = [{"role": "assistant", "content": [{"type": "text", "text": LONG}]}]
    call = [{"role": "assistant", "content": None, "tool_calls": [{}]}]
    turns = [[{"role": "user", "content": "two"}]] * 3
    found = asyncio.run(hooks.rubric_scores(turns, [blocks, call, completions[0]]))
    assert found == [1.0, pytest.approx(0.8), 0.6]
    assert evaluator.seen[1] == "two"


def test_hooks_give_what_is_unscored_its_groups_mean_and_raise_without_a_score(
    hooks: ModuleType, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="invalid_rubric:not_json"):
        hooks.rewards_of("no rubric", [SHORT, LONG])
    scored = {"scores": [0.2, None, 0.6], "reasons": [None, "refusal", None]}
    monkeypatch.setattr(hooks, "score_group", lambda prompt, responses: scored)
    assert hooks.rewards_of("one", ["a", "b", "c"]) == [0.2, pytest.approx(0.4), 0.6]


def test_hooks_come_again_while_the_server_is_busy_and_lose_nothing(
    hooks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def many() -> list[list[float]]:
        calls = [asyncio.to_thread(hooks.rewards_of, f"p{n}", [SHORT, LONG]) for n in range(8)]
        return list(await asyncio.gather(*calls))

    with serving(FakeEvaluator(), key=KEY, limits=Limits(max_requests=1)) as live:
        monkeypatch.setenv("DYNAMICRUBRIC_URL", live.url)
        assert asyncio.run(many()) == [[0.6, 1.0]] * 8


def test_hooks_say_what_was_wrong_with_a_request(hooks: ModuleType, live: Live) -> None:
    with pytest.raises(RuntimeError, match=r"422.*white space"):
        hooks.rewards_of(" ", [SHORT])
