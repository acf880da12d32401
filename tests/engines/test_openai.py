"""A chat endpoint as an engine: what it says is read with care, and its troubles are told apart."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("openai", reason="the optional extra `openai` is not installed")

from fakeendpoint import Answer, Asked, FakeEndpoint, chat, failure, serving

from dynamicrubric.config import Sampling
from dynamicrubric.engines.access import EndpointConfig
from dynamicrubric.engines.base import GenerateRequest, JudgeRequest
from dynamicrubric.engines.endpoint import Endpoint
from dynamicrubric.engines.openai import OpenAIEngine
from dynamicrubric.errors import InstrumentError, UserError
from flows.services import reserved_port

YES = {" Yes": -1.2, "yes": -1.3, "No": -1.1, "**": -2.0}
SURE = chat("yes", tokens=[("yes", {"yes": -0.1, "no": -3.0})])
SAMPLING = Sampling(temperature=0.7, min_p=0.0, max_tokens=50)
REQUEST = JudgeRequest("dear Anna.", ["It greets somebody."], 1, prompt="Write to Anna")


class Bench:
    """Starts endpoints and engines on them; records the pauses instead of making them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.pauses: list[float] = []
        self.fake: FakeEndpoint

    def engine(
        self,
        answer: Callable[[Asked, int], Answer],
        *,
        settings: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> OpenAIEngine:
        self.fake = self._stack.enter_context(serving(answer))
        config = EndpointConfig(
            base_url=self.fake.url, model="judge", key_variable="TEST_KEY", **(settings or {})
        )
        return OpenAIEngine(Endpoint(config, pause=self.pauses.append), **options)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(stack)


def always(*answers: Answer) -> Callable[[Asked, int], Answer]:
    """Give the answers in turn, the last one for ever."""
    return lambda _, place: answers[min(place, len(answers) - 1)]


def judge(engine: OpenAIEngine, request: JudgeRequest = REQUEST) -> Any:
    ((verdict,),) = engine.judge([request])
    return verdict


# --- verdicts -----------------------------------------------------------------------------------


def test_verdict_rests_on_all_variants_of_yes_and_no(bench: Bench) -> None:
    engine = bench.engine(always(Answer(chat("No", tokens=[("No", YES)]))))
    verdict = judge(engine)
    assert (verdict.value, round(verdict.p_yes, 3)) == ("yes", 0.633)


def test_verdict_with_log_probabilities_is_none_the_worse_for_a_cut_reply(bench: Bench) -> None:
    reply = chat("Yes, the", finish="length", tokens=[("Yes", YES), (",", {",": -0.1})])
    assert judge(bench.engine(always(Answer(reply)))).value == "yes"


def test_token_texts_that_come_twice_are_added_up(bench: Bench) -> None:
    reply = chat("yes", tokens=[("yes", {"yes": -1.0, "no": -0.9})])
    alternatives = reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    alternatives.append({"token": "yes", "logprob": -1.6})
    verdict = judge(bench.engine(always(Answer(reply))))
    assert (verdict.value, round(verdict.p_yes, 3)) == ("yes", 0.584)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (chat("**Yes**"), "yes"),
        (chat("no."), "no"),
        (chat("No errors found, so yes"), "unreadable"),
        (chat("I'm sorry, I can't help with that."), "refusal"),
        (chat("Yes", finish="length"), "truncated"),
        (chat(None, finish="length"), "truncated"),
        (chat(""), "empty"),
        (chat(None), "empty"),
        (chat("<think>no?</think>\n\nyes"), "yes"),
        (chat("<think>yes"), "truncated"),
        (chat("", finish="length", reasoning_content="hm"), "truncated"),
    ],
)
def test_verdict_is_read_off_the_text_where_no_log_probabilities_are_asked_for(
    bench: Bench, reply: dict[str, Any], expected: str
) -> None:
    engine = bench.engine(always(Answer(reply)), top_logprobs=0)
    verdict = judge(engine)
    assert (verdict.reason or verdict.value) == expected
    assert verdict.p_yes is None
    assert "logprobs" not in bench.fake.bodies()[0]


def spoilt(place: int, entry: dict[str, Any]) -> dict[str, Any]:
    """Return a reply with `entry` among the alternatives of one of its two places."""
    reply = chat("Yes.", tokens=[("Yes", YES), (".", {".": -0.1})])
    reply["choices"][0]["logprobs"]["content"][place]["top_logprobs"].append(entry)
    return reply


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (chat("Yes"), "no_usable_probability"),
        (spoilt(0, {"token": "no"}), "no_usable_probability"),
        (spoilt(0, {"token": "no", "logprob": "low"}), "no_usable_probability"),
        (spoilt(0, {"token": "no", "logprob": None}), "no_usable_probability"),
        (chat("yes", tokens=[("yes", {})]), "no_usable_probability"),
        (chat("", finish="length", reasoning_content="hm"), "truncated"),
        (chat("I'm sorry, I can't help with that."), "refusal"),
    ],
)
def test_reply_without_the_log_probabilities_asked_for_is_unscored_and_not_read_as_text(
    bench: Bench, reply: dict[str, Any], reason: str
) -> None:
    whole = chat("No", tokens=[("No", YES)])
    engine = bench.engine(always(Answer(reply), Answer(whole)), settings={"max_concurrency": 1})
    ((first, second),) = engine.judge([JudgeRequest("a", ["c", "d"], 1)])
    assert (first.value, first.reason, first.p_yes) == ("unscored", reason, None)
    assert second.value == "yes"


def test_null_outside_the_answer_s_place_leaves_the_verdict(bench: Bench) -> None:
    verdict = judge(bench.engine(always(Answer(spoilt(1, {"token": "!", "logprob": None})))))
    assert (verdict.value, round(verdict.p_yes, 3)) == ("yes", 0.633)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (chat("Yes", refusal="I can't judge this."), "refusal"),
        (chat("Yes", finish="content_filter"), "content_filter"),
        (chat(None, finish="tool_calls"), "tool_calls"),
        (chat("Yes", finish=None), "unknown_finish_reason"),
        ({**chat("Yes"), "choices": []}, "empty_choices"),
        ({**chat("Yes"), "choices": chat("Yes")["choices"] * 2}, "wrong_count"),
        ({**chat("Yes"), "choices": None}, "malformed_reply"),
        ({**chat("Yes"), "choices": [{"index": 0, "finish_reason": "stop"}]}, "malformed_reply"),
        (
            {"choices": [{"message": {"content": ["Yes"]}, "finish_reason": "stop"}]},
            "malformed_reply",
        ),
    ],
)
def test_bad_reply_is_unscored_with_its_reason(
    bench: Bench, reply: dict[str, Any], reason: str
) -> None:
    verdict = judge(bench.engine(always(Answer(reply))))
    assert (verdict.value, verdict.reason) == ("unscored", reason)


def test_verdict_of_a_model_that_thinks_is_at_the_end_of_its_thinking(bench: Bench) -> None:
    thought = [("<think>", {"<think>": -0.1}), ("no", {"no": -0.1, "yes": -3.0})]
    answer = [("</think>", {"</think>": -0.1}), ("\n", {"\n": -0.1}), ("Yes", YES)]
    reply = chat("<think>no</think>\nYes", tokens=thought + answer)
    verdict = judge(bench.engine(always(Answer(reply))))
    assert (verdict.value, round(verdict.p_yes, 3)) == ("yes", 0.633)


def test_thinking_without_end_among_the_tokens_is_truncated(bench: Bench) -> None:
    thought = [("<think>", {"<think>": -0.1}), ("yes", {"yes": -0.1, "no": -3.0})]
    reply = chat("<think>yes", finish="length", tokens=thought)
    assert judge(bench.engine(always(Answer(reply)))).reason == "truncated"


def test_thinking_that_the_endpoint_took_out_unmarked_is_not_taken_for_the_answer(
    bench: Bench,
) -> None:
    tokens = [("no", {"no": -0.1, "yes": -3.0}), ("yes", {"yes": -0.1, "no": -3.0})]
    reply = chat("yes", tokens=tokens, reasoning_content="no")
    assert judge(bench.engine(always(Answer(reply)))).reason == "no_usable_probability"
    assert judge(bench.engine(always(Answer(reply)), top_logprobs=0)).value == "yes"


@pytest.mark.parametrize(
    "said", ["logprobs is not supported with this model", "top_logprobs must be <= 5"]
)
def test_endpoint_that_refuses_log_probabilities_is_for_a_person_to_settle(
    bench: Bench, said: str
) -> None:
    def answer(asked: Asked, _: int) -> Answer:
        return failure(said) if "logprobs" in asked.body else Answer(chat("yes"))

    with pytest.raises(UserError, match=said) as caught:
        judge(bench.engine(answer))
    assert "top_logprobs to the endpoint's limit, or to 0" in str(caught.value)
    engine = bench.engine(answer, top_logprobs=0)
    assert (judge(engine).value, judge(engine).p_yes) == ("yes", None)


def test_verdicts_come_in_the_order_asked(bench: Bench) -> None:
    def answer(asked: Asked, _: int) -> Answer:
        text = asked.body["messages"][-1]["content"]
        return Answer(chat("yes" if "even" in text else "no"))

    engine = bench.engine(answer, top_logprobs=0)
    requests = [
        JudgeRequest(f"text {n}", ["even" if (n + m) % 2 == 0 else "odd" for m in range(n)], n)
        for n in range(6)
    ]
    found = [[v.value for v in row] for row in engine.judge(requests)]
    expected = [["yes" if (n + m) % 2 == 0 else "no" for m in range(n)] for n in range(6)]
    assert found == expected


def test_one_bad_reply_leaves_its_neighbours_scored(bench: Bench) -> None:
    def answer(asked: Asked, _: int) -> Answer:
        text = " ".join(message["content"] for message in asked.body["messages"])
        if "filtered" in text:
            return failure("filtered", code="content_filter")
        if "long" in text:
            return failure("maximum context length is 5", code="context_length_exceeded")
        return Answer("<html>" if "broken" in text else chat("yes"))

    requests = [JudgeRequest(t, ["c"], 1) for t in ("a", "filtered", "long", "broken", "b")]
    verdicts = [row[0] for row in bench.engine(answer, top_logprobs=0).judge(requests)]
    assert [v.reason or v.value for v in verdicts] == [
        "yes",
        "content_filter",
        "too_long",
        "malformed_reply",
        "yes",
    ]


def test_text_that_has_no_encoding_is_unscored(bench: Bench) -> None:
    engine = bench.engine(always(Answer(chat("yes"))))
    assert judge(engine, JudgeRequest("a \ud800 b", ["c"], 1)).reason == "unencodable"


# --- generation ---------------------------------------------------------------------------------


def generate(engine: OpenAIEngine, *seeds: int) -> Any:
    messages = [("system", "Be brief."), ("user", "Write to Anna")]
    return engine.generate([GenerateRequest((), seed, messages) for seed in seeds], SAMPLING)


def test_generation_has_text_finish_reason_and_log_probabilities(bench: Bench) -> None:
    cut = chat("dear An", finish="length")
    whole = chat("dear Anna", tokens=[("dear", {"dear": -0.25}), (" Anna", {" Anna": -0.5})])

    def answer(asked: Asked, _: int) -> Answer:
        return Answer(whole if asked.body["seed"] == 1 else cut)

    first, second = generate(bench.engine(answer), 1, 2)
    assert (first.text, first.finish_reason, first.logprobs) == ("dear Anna", "stop", (-0.25, -0.5))
    assert (second.text, second.finish_reason, second.logprobs) == ("dear An", "length", None)


def test_generation_asks_for_its_own_seed_and_for_no_other_cut_of_the_distribution(
    bench: Bench,
) -> None:
    big = (1 << 62) + 5
    generate(bench.engine(always(Answer(chat("x"))), settings={"max_concurrency": 1}), big, 6)
    first, second = bench.fake.bodies()
    assert (first["seed"], second["seed"]) == (big % (1 << 31), 6)
    assert (first["temperature"], first["top_p"], first["max_tokens"]) == (0.7, 1.0, 50)
    assert first["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Write to Anna"},
    ]


def test_generation_keeps_thinking_out_of_the_text(bench: Bench) -> None:
    replies = [chat("<think>[1]</think>[2]"), chat("<think>[1]", finish="stop")]
    engine = bench.engine(lambda asked, _: Answer(replies[asked.body["seed"]]))
    first, second = generate(engine, 0, 1)
    assert (first.text, first.finish_reason) == ("[2]", "stop")
    assert (second.text, second.finish_reason) == ("", "length")


def test_generation_that_was_filtered_is_no_finished_text(bench: Bench) -> None:
    (found,) = generate(bench.engine(always(Answer(chat("par", finish="content_filter")))), 1)
    assert (found.text, found.finish_reason, found.failure) == ("", "length", "content_filter")


def test_prompt_of_token_ids_alone_is_refused(bench: Bench) -> None:
    engine = bench.engine(always(Answer(chat("x"))))
    with pytest.raises(UserError, match="conversation"):
        engine.generate([GenerateRequest([1, 2, 3], 1)], SAMPLING)
    assert bench.fake.asked == []


# --- troubles -----------------------------------------------------------------------------------


def test_429_is_retried_after_the_time_it_names(bench: Bench) -> None:
    busy = Answer({"error": {"message": "slow down"}}, 429, {"retry-after": "7"})
    engine = bench.engine(always(busy, Answer(SURE)))
    assert judge(engine).value == "yes"
    assert 7.0 in bench.pauses
    assert engine.cost.calls == 2


def test_500s_are_retried_with_growing_pauses(bench: Bench) -> None:
    broken = Answer("oops", 500)
    engine = bench.engine(always(broken, broken, broken, Answer(SURE)))
    assert judge(engine).value == "yes"
    first, second, third = bench.pauses
    assert 0.375 <= first <= 0.5 < 0.75 <= second <= 1.0 < 1.5 <= third <= 2.0


@pytest.mark.parametrize("status", [429, 500, 503])
def test_endpoint_that_stays_down_is_a_broken_instrument(bench: Bench, status: int) -> None:
    engine = bench.engine(always(Answer("down", status)), settings={"max_attempts": 3})
    with pytest.raises(InstrumentError, match=f"HTTP {status}.*3 attempts"):
        judge(engine)
    assert len(bench.fake.asked) == 3


def test_endpoint_that_nobody_runs_is_a_broken_instrument() -> None:
    with reserved_port() as port:
        address = f"http://127.0.0.1:{port}/v1"
        config = EndpointConfig(base_url=address, model="m", max_attempts=2)
        engine = OpenAIEngine(Endpoint(config, pause=lambda _: None))
        with pytest.raises(InstrumentError, match=r"no connection.*2 attempts"):
            judge(engine)


def test_answer_that_does_not_come_in_time_is_asked_for_again(bench: Bench) -> None:
    def answer(_: Asked, place: int) -> Answer:
        if place == 0:
            bench.fake.released.wait()
        return Answer(SURE)

    settings = {"timeout_seconds": 0.5, "max_attempts": 100}
    assert judge(bench.engine(answer, settings=settings)).value == "yes"
    assert len(bench.fake.asked) >= 2


def test_answer_that_trickles_in_is_given_up_at_its_deadline(bench: Bench) -> None:
    settings = {"timeout_seconds": 0.5, "max_attempts": 100}
    trickle = Answer(chat("no"), trickles=True)
    assert judge(bench.engine(always(trickle, Answer(SURE)), settings=settings)).value == "yes"
    assert len(bench.fake.asked) >= 2


def test_answer_with_an_empty_error_field_is_an_answer(bench: Bench) -> None:
    engine = bench.engine(always(Answer(SURE | {"error": None})))
    assert (judge(engine).value, len(bench.fake.asked)) == ("yes", 1)


def test_endpoint_that_never_answers_in_time_is_a_broken_instrument(bench: Bench) -> None:
    def answer(_: Asked, __: int) -> Answer:
        bench.fake.released.wait()
        return Answer(SURE)

    engine = bench.engine(answer, settings={"timeout_seconds": 0.1, "max_attempts": 2})
    with pytest.raises(InstrumentError, match=r"no answer within 0\.1 s"):
        judge(engine)


def test_pause_longer_than_allowed_ends_at_once(bench: Bench) -> None:
    busy = Answer("", 429, {"retry-after": "3600"})
    engine = bench.engine(always(busy), settings={"max_wait_seconds": 60.0})
    with pytest.raises(InstrumentError, match="3600 s"):
        judge(engine)
    assert (len(bench.fake.asked), bench.pauses) == (1, [])


def test_used_up_quota_is_not_waited_for(bench: Bench) -> None:
    engine = bench.engine(always(failure("pay", code="insufficient_quota", status=429)))
    with pytest.raises(InstrumentError, match="quota"):
        judge(engine)
    assert len(bench.fake.asked) == 1


@pytest.mark.parametrize(
    "broken", ["<html>gateway</html>", "[1, 2]", '{"error": {"code": 502}}', ""]
)
def test_answer_that_is_no_completion_is_retried_and_then_data(bench: Bench, broken: str) -> None:
    engine = bench.engine(always(Answer(broken), Answer(SURE)))
    assert judge(engine).value == "yes"
    engine = bench.engine(always(Answer(broken)), settings={"max_attempts": 2})
    assert judge(engine).reason == "malformed_reply"
    assert len(bench.fake.asked) == 2


def test_wrong_key_is_told_to_a_person_without_the_key(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-secret")
    engine = bench.engine(always(failure("Incorrect API key", status=401)))
    with pytest.raises(UserError, match="key_variable") as caught:
        judge(engine)
    assert bench.fake.asked[0].headers["authorization"] == "Bearer sk-secret"
    assert "secret" not in str(caught.value)


def test_request_that_the_endpoint_does_not_take_names_what_it_said(bench: Bench) -> None:
    engine = bench.engine(always(failure("Unsupported parameter: 'max_tokens'")))
    with pytest.raises(UserError, match="Unsupported parameter"):
        judge(engine)


def test_first_failure_sends_nothing_more(bench: Bench) -> None:
    engine = bench.engine(
        always(failure("no", status=403)), settings={"max_concurrency": 1, "max_attempts": 1}
    )
    with pytest.raises(UserError):
        engine.judge([JudgeRequest("a", ["c"] * 50, 1)])
    assert len(bench.fake.asked) == 1


def test_failure_that_ends_the_others_is_the_one_that_is_told() -> None:
    is_down = threading.Event()

    def answer(asked: Asked, _: int) -> Answer:
        if "It thanks." in asked.body["messages"][-1]["content"]:
            is_down.set()
            return Answer("down", 503)  # tried again until the other one fails
        assert is_down.wait(240)
        return failure("no", status=403)

    with serving(answer) as fake:
        config = EndpointConfig(base_url=fake.url, model="m", max_concurrency=2, max_attempts=100)
        engine = OpenAIEngine(Endpoint(config))
        with pytest.raises(UserError, match="403"):
            engine.judge([JudgeRequest("a", ["It thanks.", "It greets."], 1)])


# --- address, key, package ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/v1",
        "ftp://127.0.0.1/v1",
        "https://name:sk-secret@example.org/v1",
        "http://127.0.0.1.example.org/v1",
        "https://example.org/v1?api-key=sk-secret",
        "https://example.org/v1#sk-secret",
        "http://127.0.0.1:8000/v1?key=sk-secret",
        "",
    ],
)
def test_address_that_leaks_is_refused(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("TEST_KEY", "k")
    with pytest.raises(UserError, match="https") as caught:
        Endpoint(EndpointConfig(base_url=url, model="m", key_variable="TEST_KEY"))
    assert "secret" not in str(caught.value)


def test_plain_http_elsewhere_is_taken_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "k")
    config = EndpointConfig(
        base_url="http://example.org/v1", model="m", key_variable="TEST_KEY", allow_plain_http=True
    )
    assert Endpoint(config).host == "example.org"


def test_endpoint_elsewhere_without_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_KEY", raising=False)
    config = EndpointConfig(base_url="https://example.org/v1", model="m", key_variable="TEST_KEY")
    with pytest.raises(UserError, match="Export TEST_KEY"):
        Endpoint(config)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    config = EndpointConfig(base_url="http://127.0.0.1:1/v1", model="m")
    with pytest.raises(UserError, match=r"extra `openai`.*\.\[openai\]"):
        Endpoint(config)


def test_identity_is_no_more_than_the_endpoint_s_name_for_its_model(bench: Bench) -> None:
    identity = bench.engine(always(Answer(SURE)), role="generator").identity
    assert (identity.role, identity.checkpoint) == ("generator", "named:judge")
    assert "verdicts_from" not in identity.settings


@pytest.mark.parametrize(("top", "source"), [(20, "probabilities"), (0, "text")])
def test_identity_of_a_verifier_says_what_its_verdicts_are_read_from(
    bench: Bench, top: int, source: str
) -> None:
    engine = bench.engine(always(Answer(SURE)), top_logprobs=top)
    assert engine.identity.settings["verdicts_from"] == source


# --- cost and concurrency -----------------------------------------------------------------------


def test_cost_counts_calls_tokens_and_answers_without_a_count(bench: Bench) -> None:
    uncounted = {k: v for k, v in chat("yes").items() if k != "usage"}
    engine = bench.engine(
        always(Answer(chat("yes")), Answer("x", 500), Answer(uncounted)),
        settings={"max_concurrency": 1},
    )
    engine.judge([JudgeRequest("a", ["c", "d"], 1)])
    cost = engine.cost
    assert (cost.calls, cost.answered, cost.without_count) == (3, 2, 1)
    assert (cost.prompt_tokens, cost.completion_tokens) == (10, 2)
    assert cost.seconds > 0.0


def test_calls_run_side_by_side_up_to_the_limit(bench: Bench) -> None:
    together = threading.Barrier(3)  # opens only if three calls are there at a time
    active: list[int] = []
    seen: list[int] = []

    def answer(_: Asked, place: int) -> Answer:
        active.append(place)
        seen.append(len(active))
        together.wait(timeout=240)
        active.remove(place)
        return Answer(chat("yes"))

    engine = bench.engine(answer, settings={"max_concurrency": 3})
    assert len(engine.judge([JudgeRequest("a", ["c"] * 9, 1)])[0]) == 9
    assert max(seen) == 3


def test_progress_counts_up_to_all(bench: Bench) -> None:
    told: list[tuple[int, int]] = []
    engine = bench.engine(
        always(Answer(chat("yes"))), on_progress=lambda done, of: told.append((done, of))
    )
    engine.judge([JudgeRequest("a", ["c"] * 4, 1)])
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
