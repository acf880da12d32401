"""The server from outside: what it answers, refuses, and does when clients or models leave."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fakeevaluator import FakeEvaluator
from liveserver import Live, serving

from dynamicrubric.doors.documents import set_of
from dynamicrubric.doors.gate import MAX_RETRY_SECONDS
from dynamicrubric.doors.limits import KEY_VARIABLE, Limits, key_for
from dynamicrubric.doors.opening import EvaluatorOptions
from dynamicrubric.doors.server import make_app, server_of
from dynamicrubric.doors.worker import Closed, ScoringWorker
from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.base import ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.serve_command import run_serve

ASKED = {"prompt": "Why?", "responses": ["short", "a long response", None], "id": "a"}


def test_score_answers_scores_rubric_verdicts_reasons_and_cost() -> None:
    with serving(FakeEvaluator()) as live:
        answer = live.post(json=ASKED)
    assert answer.status_code == 200
    found = answer.json()
    assert found["scores"] == [0.6, 1.0, None]
    assert found["reasons"] == [None, None, "failed_response:no_text"]
    assert found["mean"] == {
        "value": 0.8, "n_scored": 2, "n_total": 3, "reasons": {"failed_response:no_text": 1},
    }  # fmt: skip
    assert found["rubric"][1] == {"criterion": "is long", "weight": 2}
    assert [[v["value"] for v in row] for row in found["verdicts"]] == [
        ["yes", "no"], ["yes", "yes"], ["unscored", "unscored"],
    ]  # fmt: skip
    assert found["cost"]["verdicts"] == 4
    assert (found["id"], found["evaluator"], found["breakdown"]) == ("a", "fake", {"k": 1})


def test_score_invalid_rubric_is_an_answer_without_a_number() -> None:
    with serving(FakeEvaluator()) as live:
        found = live.post(json={"prompt": "no rubric", "responses": ["a", "b"]}).json()
    assert found["scores"] == [None, None]
    assert found["reasons"] == ["invalid_rubric:not_json"] * 2
    assert found["invalid_rubric"] == {"reason": "not_json", "detail": "column 1"}
    assert found["rubric"] is found["verdicts"] is None


def test_score_same_set_has_same_seed_whatever_else_is_asked() -> None:
    evaluator = FakeEvaluator()
    with serving(evaluator) as live:
        for sent in (ASKED, {"prompt": "Other", "responses": ["a"]}, ASKED, {**ASKED, "seed": 7}):
            assert live.post(json=sent).status_code == 200
    first, other, again, seeded = evaluator.seeds
    assert first == again
    assert len({first, other, seeded}) == 3


BAD: list[tuple[Any, str]] = [
    (b"{", "body: not JSON"),
    (b"\xff\xfe", "body"),
    (b"[1]", "body"),
    (b"null", "body"),
    (json.dumps({"prompt": "Why?"}).encode(), "responses: Field required"),
    (json.dumps({"prompt": "Why?", "responses": []}).encode(), "responses"),
    (json.dumps({"prompt": "Why?", "responses": "abc"}).encode(), "responses"),
    (json.dumps({"prompt": "Why?", "responses": ["a", 5]}).encode(), "responses.1"),
    (json.dumps({"prompt": "", "responses": ["a"]}).encode(), "prompt"),
    (json.dumps({"prompt": " \n", "responses": ["a"]}).encode(), "prompt: got white space"),
    (json.dumps({"prompt": "\ud800", "responses": ["a"]}).encode(), "prompt"),
    (json.dumps({**ASKED, "id": "\ud800"}).encode(), "id"),
    (json.dumps({**ASKED, "seed": -1}).encode(), "seed"),
    (json.dumps({**ASKED, "seed": True}).encode(), "seed"),
    (json.dumps({**ASKED, "ranking": [0, 0]}).encode(), "ranking"),
    (json.dumps({"prompt": "Why?", "responses": ["a"] * 9}).encode(), "got 9, at most 8"),
    (json.dumps({"prompt": "Why?", "responses": ["a" * 101]}).encode(), "got 101 characters"),
    (b"[" * 100_000, "body"),
]


def test_score_bad_requests_are_refused_with_the_field_and_never_repeated() -> None:
    limits = Limits(max_responses=8, max_chars=100)
    evaluator = FakeEvaluator()
    with serving(evaluator, limits=limits) as live:
        for body, said in BAD:
            answer = live.post(content=body, headers={"content-type": "application/json"})
            assert answer.status_code in (400, 422), (body[:80], answer.text)
            found = answer.json()
            assert said in found["message"] or answer.status_code == 400, (body[:80], found)
            assert "\\ud800" not in found["message"]
        assert live.post(json=ASKED).status_code == 200
    assert evaluator.seen == ["Why?"]


def test_score_lone_surrogate_in_a_response_leaves_that_place_to_the_evaluator() -> None:
    with serving(FakeEvaluator()) as live:
        body = b'{"prompt": "Why?", "responses": ["\\ud800", "a long response"]}'
        answer = live.post(content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    assert answer.json()["scores"][1] == 1.0


def test_body_over_the_limit_is_refused_declared_or_not() -> None:
    with serving(FakeEvaluator(), limits=Limits(max_body_bytes=1000)) as live:
        assert live.post(json={**ASKED, "prompt": "x" * 2000}).status_code == 413
        chunks = (b"x" * 500 for _ in range(3))
        assert live.post(content=chunks).status_code == 413


def test_body_that_never_comes_is_given_up() -> None:
    with serving(FakeEvaluator(), limits=Limits(body_seconds=0.2)) as live:
        host, port = live.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as slow:
            slow.sendall(
                b"POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{"
            )
            assert slow.recv(1000).startswith(b"HTTP/1.1 408")


def test_key_is_needed_where_there_is_one_but_for_health_and_pages() -> None:
    key = "0123456789abcdef"
    with serving(FakeEvaluator(), key=key) as live:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {key}"}):
            answer = live.post(json=ASKED, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert live.get("/metrics").status_code == 401
        for path in ("/health", "/docs", "/openapi.json"):
            assert live.get(path).status_code == 200
        headers = {"authorization": f"Bearer {key}", "host": "reward.example"}
        assert live.post(json=ASKED, headers=headers).status_code == 200
        document = live.get("/openapi.json").json()
    assert document["paths"]["/v1/score"]["post"]["security"] == [{"key": []}]


def test_without_a_key_another_host_name_is_refused() -> None:
    with serving(FakeEvaluator()) as live:
        for host in ("evil.example", "evil.example:80", "[", ""):
            assert live.get("/health", headers={"host": host}).status_code in (400, 421)
        for host in ("localhost", "127.0.0.1:80", "[::1]:80"):
            assert live.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com"])
def test_key_for_another_host_than_loopback_is_required(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(UserError, match=KEY_VARIABLE):
        key_for(host)
    assert key_for("127.0.0.1") is None
    monkeypatch.setenv(KEY_VARIABLE, "short")
    with pytest.raises(UserError, match="at least 16"):
        key_for("127.0.0.1")
    monkeypatch.setenv(KEY_VARIABLE, "0123456789abcdef")
    assert key_for(host) == "0123456789abcdef"


def test_more_than_the_limit_gets_429_and_nobody_who_was_let_in_is_lost() -> None:
    evaluator = FakeEvaluator(held=True)
    with serving(evaluator, limits=Limits(max_requests=3)) as live, ThreadPoolExecutor(8) as pool:
        first = pool.submit(live.post, json=ASKED)
        assert evaluator.entered.wait(60)
        others = [pool.submit(live.post, json=ASKED) for _ in range(2)]
        _until(live, "dynamicrubric_requests_in_flight", 3)
        refused = [live.post(json=ASKED) for _ in range(4)]
        evaluator.released.set()
        taken = [one.result(60) for one in (first, *others)]
        assert live.post(json=ASKED).status_code == 200
        assert live.figure('dynamicrubric_requests_total{code="429"}') == 4
    assert [one.status_code for one in refused] == [429] * 4
    assert all(int(one.headers["retry-after"]) >= 1 for one in refused)
    assert [one.status_code for one in taken] == [200] * 3


def test_what_waits_is_scored_together_on_one_thread() -> None:
    evaluator = FakeEvaluator(held=True)
    with serving(evaluator, max_sets=4) as live, ThreadPoolExecutor(8) as pool:
        first = pool.submit(live.post, json=ASKED)
        assert evaluator.entered.wait(60)
        others = [pool.submit(live.post, json=ASKED) for _ in range(6)]
        _until_waiting(live, 6)
        evaluator.released.set()
        assert {one.result(60).status_code for one in (first, *others)} == {200}
    assert evaluator.sizes == [1, 4, 2]
    assert evaluator.threads == {"scoring"}


def test_client_that_leaves_costs_nothing_more() -> None:
    evaluator = FakeEvaluator(held=True)
    with serving(evaluator, max_sets=1) as live, ThreadPoolExecutor(1) as pool:
        first = pool.submit(live.post, json=ASKED)
        assert evaluator.entered.wait(60)
        with pytest.raises(httpx2.TimeoutException):
            httpx2.post(f"{live.url}/v1/score", json={**ASKED, "prompt": "Gone"}, timeout=0.5)
        _until(live, "dynamicrubric_clients_left_total", 1)
        assert live.get("/health").json()["waiting_sets"] == 0
        evaluator.released.set()
        assert first.result(60).status_code == 200
        assert live.post(json=ASKED).status_code == 200
    assert "Gone" not in evaluator.seen


def test_broken_instrument_is_503_and_the_next_request_is_served() -> None:
    with serving(FakeEvaluator()) as live:
        answer = live.post(json={**ASKED, "prompt": "the verifier is down"})
        assert live.post(json=ASKED).status_code == 200
    assert (answer.status_code, answer.json()["error"]) == (503, "instrument")
    assert answer.headers["retry-after"]


def test_fault_of_ours_fails_its_own_request_alone() -> None:
    evaluator = FakeEvaluator(held=True)
    with serving(evaluator) as live, ThreadPoolExecutor(4) as pool:
        first = pool.submit(live.post, json=ASKED)
        assert evaluator.entered.wait(60)
        bad = pool.submit(live.post, json={**ASKED, "prompt": "a fault of ours"})
        good = [pool.submit(live.post, json=ASKED) for _ in range(2)]
        _until_waiting(live, 3)
        evaluator.released.set()
        assert bad.result(60).status_code == 500
        assert bad.result(60).json()["error"] == "fault"
        assert {one.result(60).status_code for one in (first, *good)} == {200}


def test_too_long_a_wait_is_504_and_leaves_no_complaint_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    evaluator = FakeEvaluator(held=True)
    with serving(evaluator, limits=Limits(request_seconds=0.2)) as live:
        assert live.post(json=ASKED).status_code == 504
        evaluator.released.set()
    gc.collect()
    assert caplog.text == ""


class WithWords(FakeEvaluator):
    """Says what no JSON text holds, and fails as a network does."""

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        failures = {"reset": ConnectionResetError("theirs"), "slow": TimeoutError("theirs")}
        for one in sets:
            if one.prompt in failures:
                raise failures[one.prompt]
        said = {"raw": float("nan"), "tokens": ["\ud83d", float("inf"), 1.0]}
        found = super().score(sets, seeds)
        return [replace(one, rubric_text="a\ud83d", breakdown=said) for one in found]


def test_evaluators_words_that_no_json_holds_are_answered_all_the_same() -> None:
    with serving(WithWords()) as live:
        answer = live.post(json=ASKED)
    assert answer.status_code == 200
    assert answer.json()["rubric_text"] == "a\\ud83d"
    assert answer.json()["breakdown"] == {"raw": None, "tokens": ["\\ud83d", None, 1.0]}


@pytest.mark.parametrize("prompt", ["reset", "slow"])
def test_evaluators_own_network_error_is_a_fault_and_no_client_that_left(prompt: str) -> None:
    with serving(WithWords()) as live:
        answer = live.post(json={**ASKED, "prompt": prompt})
        assert live.figure("dynamicrubric_clients_left_total") == 0
    assert (answer.status_code, answer.json()["error"]) == (500, "fault")


def test_many_wrong_responses_cost_no_more_than_one() -> None:
    body = b'{"prompt": "Why?", "responses": [' + b"1," * 500_000 + b"1]}"
    with serving(FakeEvaluator()) as live:
        answer = live.post(content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["message"] == "responses.0: Input should be a valid string"


def test_client_that_leaves_in_its_body_is_no_fault_of_ours() -> None:
    with serving(FakeEvaluator()) as live:
        host, port = live.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as leaving:
            leaving.sendall(
                b"POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{"
            )
            _until(live, "dynamicrubric_requests_in_flight", 1)
        _until(live, "dynamicrubric_requests_in_flight", 0)
        assert live.figure('dynamicrubric_requests_total{code="499"}') == 1
        assert live.figure('dynamicrubric_requests_total{code="500"}') == 0


def test_connection_stays_open_until_after_the_longest_retry_after() -> None:
    server = server_of(make_app(FakeEvaluator()), grace_seconds=30)
    assert server.config.timeout_keep_alive >= 2 * MAX_RETRY_SECONDS
    assert server.config.timeout_graceful_shutdown == 30


class Panic(BaseException):
    """What a library in another language raises when it gives up."""


def test_worker_whose_thread_dies_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def panic() -> None:
        raise Panic

    evaluator = FakeEvaluator(held=True, slowly=panic)
    worker = ScoringWorker(evaluator, max_sets=1)
    first = worker.submit(set_of("Why?", ["a"]), 0)
    assert evaluator.entered.wait(60)
    second = worker.submit(set_of("Why?", ["a"]), 0)
    evaluator.released.set()
    for waiting in (first, second):
        with pytest.raises(Closed):
            waiting.result(60)
    with pytest.raises(Closed):
        worker.submit(set_of("Why?", ["a"]), 0)
    assert not worker.is_alive


def test_worker_whose_jobs_all_leave_goes_on() -> None:
    evaluator = FakeEvaluator()
    worker = ScoringWorker(evaluator, window_seconds=0.2)
    for _ in range(3):
        assert worker.submit(set_of("Gone", ["a"]), 0).cancel()
    assert worker.num_waiting == 0
    threading.Event().wait(0.4)
    assert worker.submit(set_of("Why?", ["a"]), 0).result(60).scores[0].value == 0.6
    assert worker.close(60)
    assert evaluator.seen == ["Why?"]


def test_name_that_stands_for_an_open_address_needs_a_key_before_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    anywhere = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("0.0.0.0", 0))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [anywhere])
    options = EvaluatorOptions(profile=tmp_path / "none.yaml")
    with pytest.raises(UserError, match=r"serving on 0\.0\.0\.0"):
        run_serve("localhost", 0, options, Limits(), max_sets=1, window_seconds=0.0)


def test_stopping_finishes_what_runs() -> None:
    evaluator = FakeEvaluator(held=True)
    with serving(evaluator) as live, ThreadPoolExecutor(1) as pool:
        running = pool.submit(live.post, json=ASKED)
        assert evaluator.entered.wait(60)
        live.stop()
        threading.Timer(0.3, evaluator.released.set).start()
        assert running.result(60).status_code == 200
        live.thread.join(60)
        assert not live.thread.is_alive()


STOPPED = """
import sys
sys.path.insert(0, {tests!r})
from contextlib import contextmanager
from fakeevaluator import FakeEvaluator
from dynamicrubric.doors import opening
from dynamicrubric.doors.limits import Limits
from dynamicrubric.serve_command import run_serve

@contextmanager
def opened(options):
    try:
        yield opening.Opened(FakeEvaluator(), {{}})
    finally:
        print("closed", flush=True)

opening.open_evaluator = opened
run_serve("127.0.0.1", 0, opening.EvaluatorOptions(), Limits(), max_sets=1, window_seconds=0.0)
"""


def test_sigterm_closes_the_models_on_the_way_out() -> None:
    code = STOPPED.format(tests=str(Path(__file__).parent))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "Serving on http://127.0.0.1:" in process.stdout.readline()
        process.terminate()
        assert process.stdout.read() == "closed\n"
        assert process.wait(60) == 128 + signal.SIGTERM


def test_metrics_count_scores_reasons_and_cost() -> None:
    with serving(FakeEvaluator()) as live:
        live.post(json=ASKED)
        live.post(json={"prompt": "no rubric", "responses": ["a"]})
        assert live.figure("dynamicrubric_scores_total") == 2
        reason = 'dynamicrubric_unscored_total{reason="failed_response:no_text"}'
        assert live.figure(reason) == 1
        assert live.figure('dynamicrubric_cost_total{what="verdicts"}') == 6
        assert live.figure("dynamicrubric_request_seconds_count") == 2


def test_openrlhf_groups_by_prompt_and_gives_what_is_unscored_its_groups_mean() -> None:
    evaluator = FakeEvaluator()
    query = ["P1 short", "P2 a long response", "P1 a long response"]
    with serving(evaluator) as live:
        answer = live.post(
            "/openrlhf",
            json={"query": query, "prompts": ["P1 ", "P2 ", "P1 "], "labels": [1, 2, 3]},
        )
        cut = live.post("/openrlhf", json={"query": ["ab"], "prompts": ["x"]})
        none = live.post("/openrlhf", json={"query": ["no rubric"], "prompts": ["no rubric"]})
    assert answer.json()["rewards"] == [0.6, 1.0, 1.0]
    assert answer.json()["extra_logs"] == {"unscored": [0.0, 0.0, 0.0]}
    assert sorted(evaluator.seen)[:2] == ["P1 ", "P2 "]
    assert cut.status_code == 422
    assert (none.status_code, none.json()["error"]) == (503, "unscored")


def test_openrlhf_group_without_a_score_gets_the_mean_of_the_others_and_not_zero() -> None:
    query = ["no rubric", "P short", "P a long response"]
    sent = {"query": query, "prompts": ["no rubric", "P ", "P "]}
    with serving(FakeEvaluator()) as live:
        found = live.post("/openrlhf", json=sent).json()
    assert found["rewards"] == [pytest.approx(0.8), 0.6, 1.0]
    assert found["extra_logs"] == {"unscored": [1.0, 0.0, 0.0]}


def test_openrlhf_takes_so_many_prompts_and_no_more() -> None:
    evaluator = FakeEvaluator()
    with serving(evaluator, limits=Limits(max_request_sets=2)) as live:
        answer = live.post("/openrlhf", json={"query": ["a", "b", "c"], "prompts": ["a", "b", "c"]})
    assert (answer.status_code, evaluator.seen) == (422, [])
    assert "got 3 different ones, at most 2" in answer.json()["message"]


def test_page_needs_nothing_from_a_network_and_names_every_path() -> None:
    with serving(FakeEvaluator()) as live:
        page = live.get("/docs").text
        paths = live.get("/openapi.json").json()["paths"]
    assert "<script" not in page
    assert "http://" not in page.replace("http://127.0.0.1:8100", "")
    assert "https://" not in page
    assert all(path in page for path in paths)


def _until_waiting(live: Live, sets: int) -> None:
    """Wait until so many sets stand in the worker's queue."""
    for _ in range(2000):
        if live.get("/health").json()["waiting_sets"] == sets:
            return
        threading.Event().wait(0.01)
    raise AssertionError(live.get("/health").text)


def _until(live: Live, name: str, value: float) -> None:
    """Wait until a figure of the server has a value."""
    for _ in range(2000):
        if live.figure(name) == value:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{name} is {live.figure(name)}, not {value}")
