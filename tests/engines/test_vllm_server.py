"""A `vllm serve` as an engine: ids over HTTP, and weights that are proven before they are used."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="the optional extra `openai` is not installed")

from fakeendpoint import Answer, Asked, FakeEndpoint, failure, serving
from faketokenizer import FakeTokenizer

from dynamicrubric.config import Sampling
from dynamicrubric.engines.access import EndpointConfig
from dynamicrubric.engines.base import GenerateRequest, JudgeRequest
from dynamicrubric.engines.endpoint import Endpoint
from dynamicrubric.engines.identity import Probe, checkpoint_hash
from dynamicrubric.engines.reading import VerdictReading
from dynamicrubric.engines.vllm_server import VllmServer
from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.prompts.chat import ChatFrame

SAMPLING = Sampling(temperature=0.5, min_p=0.1, max_tokens=40)
MODELS = {"object": "list", "data": [{"id": "tiny", "max_model_len": 600}]}
PROBE = tuple(range(10, 50))
WORDS = {30: "yes", 31: " Yes", 32: "no"}
FRAME = ChatFrame.from_template(
    lambda messages: "<a>" + "".join(text for _, text in messages) + "<b>",
    lambda text: [40 + len(word) % 40 for word in text.split()],
    {"<a>": 7, "<b>": 8},
)
TOKENIZER = FakeTokenizer(WORDS, ends={2, 9}, contents=range(10, 90), frame=FRAME)


class FakeServer:
    """Answers from `weights`; what it has answered for a prompt it may remember for ever."""

    def __init__(self, weights: int = 1, *, remembers: bool = False, salted: bool = True) -> None:
        self.weights = weights
        self._remembers = remembers
        self._salted = salted
        self._cache: dict[str, int] = {}
        self.spoil: Callable[[dict[str, Any]], object] = lambda answer: None

    def __call__(self, asked: Asked, _: int) -> Answer:
        if asked.path.endswith("/models"):
            return Answer(MODELS)
        body = asked.body
        if len(body["prompt"]) + body["max_tokens"] > 600:
            return failure("This model's maximum context length is 600 tokens.")
        key = json.dumps([body["prompt"], body["cache_salt"] if self._salted else ""])
        weights = self._cache.setdefault(key, self.weights) if self._remembers else self.weights
        answer = completion(body, weights)
        self.spoil(answer)
        return Answer(answer)


def completion(body: Mapping[str, Any], weights: int) -> dict[str, Any]:
    tokens = [20 + body["seed"] % 7, 2]
    told = body.get("logprob_token_ids") or range(30, 30 + body["logprobs"])
    top = {f"token_id:{i}": logprob(body["prompt"], i, weights, len(told)) for i in told}
    choice = {
        "index": 0,
        "text": "is not looked at",
        "finish_reason": "stop",
        "token_ids": tokens,
        "logprobs": {
            "tokens": [f"token_id:{i}" for i in tokens],
            "token_logprobs": [-1.0, -2.0],
            "top_logprobs": [top, top],
        },
    }
    return {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}


def logprob(prompt: list[int], token: int, weights: int, of: int) -> float:
    digest = hashlib.sha256(json.dumps([prompt, token, weights]).encode()).digest()
    return math.log((int.from_bytes(digest[:4], "big") + 1) / 2**33 / max(of, 1))


def answered_by(weights: int) -> Probe:
    return Probe(PROBE, {i: logprob(list(PROBE), i, weights, 20) for i in range(30, 50)})


class Bench:
    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self.fake: FakeEndpoint

    def checkpoint(self, weights: int) -> Path:
        folder = self._folder / str(weights)
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(bytes([weights]))
        return folder

    def engine(self, server: FakeServer, *, weights: int = 1, **options: Any) -> VllmServer:
        self.fake = self._stack.enter_context(serving(server))
        name = options.pop("model", "tiny")
        config = EndpointConfig(base_url=self.fake.url, model=name, max_attempts=2)
        return VllmServer(
            "verifier",
            self.checkpoint(weights),
            Endpoint(config, pause=lambda _: None),
            TOKENIZER,
            expected=answered_by(weights),
            tolerance=1e-6,
            **options,
        )

    def last(self) -> Any:
        return self.fake.asked[-1].body

    def completions(self) -> list[Asked]:
        return [asked for asked in self.fake.asked if asked.path.endswith("/completions")]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(stack, tmp_path)


def test_generation_sends_ids_and_overrides_the_model_s_own_sampling(bench: Bench) -> None:
    engine = bench.engine(FakeServer())
    (found,) = engine.generate([GenerateRequest([7, 40, 8], (1 << 62) + 3)], SAMPLING)
    assert found.token_ids == (20 + ((1 << 62) + 3) % 7, 2)
    assert (found.text, found.finish_reason, found.logprobs) == ("w20", "stop", (-1.0, -2.0))
    body = bench.last()
    assert body["prompt"] == [7, 40, 8]
    assert body["add_special_tokens"] is False
    assert body["seed"] == (1 << 62) + 3
    sampling = {k: body[k] for k in ("temperature", "top_p", "top_k", "min_p", "max_tokens")}
    assert sampling == {
        "temperature": 0.5,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.1,
        "max_tokens": 40,
    }
    assert body["repetition_penalty"] == 1.0
    assert body["stop_token_ids"] == [2, 9]


def test_limit_leaves_room_for_the_prompt(bench: Bench) -> None:
    engine = bench.engine(FakeServer())
    found = engine.generate([GenerateRequest([7] * n, 1) for n in (590, 600, 599)], SAMPLING)
    assert [one.failure for one in found] == [None, "too_long", None]
    asked = bench.completions()[-2:]  # in any order: requests are under way side by side
    assert {len(a.body["prompt"]): a.body["max_tokens"] for a in asked} == {590: 10, 599: 1}


def test_verdict_is_read_from_the_labels_ids(bench: Bench) -> None:
    engine = bench.engine(FakeServer(), reading=VerdictReading(coverage_floor=0.0))
    ((verdict,),) = engine.judge([JudgeRequest("a", ["c"], 1)])
    prompt = bench.last()["prompt"]
    yes = sum(math.exp(logprob(prompt, i, 1, 3)) for i in (30, 31))
    no = math.exp(logprob(prompt, 32, 1, 3))
    assert bench.last()["logprob_token_ids"] == [30, 31, 32]
    assert verdict.p_yes == pytest.approx(yes / (yes + no))
    assert verdict.value == ("yes" if yes > no else "no")


def test_masked_probabilities_are_not_used(bench: Bench) -> None:
    """Case 30: -9999 is how a server writes minus infinity."""
    server = FakeServer()
    engine = bench.engine(server)

    def mask(answer: dict[str, Any]) -> None:
        masked = {"token_id:30": 0.0, "token_id:31": -9999.0, "token_id:32": -9999.0}
        answer["choices"][0]["logprobs"]["top_logprobs"] = [masked, masked]

    server.spoil = mask
    ((verdict,),) = engine.judge([JudgeRequest("a", ["c"], 1)])
    assert verdict.reason == "no_usable_probability"


def test_identity_is_the_verified_checkpoint_s(bench: Bench) -> None:
    engine = bench.engine(FakeServer())
    assert engine.identity.checkpoint == checkpoint_hash(bench.checkpoint(1))
    assert engine.identity.role == "verifier"


def test_server_with_other_weights_is_refused(bench: Bench) -> None:
    with pytest.raises(InstrumentError, match="other weights"):
        bench.engine(FakeServer(weights=2), weights=1)


def test_reload_is_verified_and_finds_no_cache_of_the_weights_before(bench: Bench) -> None:
    server = FakeServer(remembers=True)
    engine = bench.engine(server)
    first = bench.last()["cache_salt"]
    server.weights = 2
    engine.reload(bench.checkpoint(2), answered_by(2))
    assert engine.identity.checkpoint == checkpoint_hash(bench.checkpoint(2))
    assert bench.last()["cache_salt"] != first


def test_reload_on_a_server_that_answers_from_a_stale_cache_is_refused(bench: Bench) -> None:
    """Case 26: the cache goes by prompt alone and nothing resets it."""
    server = FakeServer(remembers=True, salted=False)
    engine = bench.engine(server)
    server.weights = 2
    with pytest.raises(InstrumentError, match="prefix cache of earlier ones"):
        engine.reload(bench.checkpoint(2), answered_by(2))
    asked = len(bench.fake.asked)
    with pytest.raises(InstrumentError, match="a reload failed"):
        engine.generate([GenerateRequest([7], 1)], SAMPLING)
    assert len(bench.fake.asked) == asked
    server.weights = 1
    engine.reload(bench.checkpoint(1), answered_by(1))
    assert engine.identity.checkpoint == checkpoint_hash(bench.checkpoint(1))


def test_model_that_the_server_does_not_have_is_named_with_those_it_has(bench: Bench) -> None:
    with pytest.raises(UserError, match=r"'other'.*'tiny'"):
        bench.engine(FakeServer(), model="other")


def drop_ids(answer: dict[str, Any]) -> None:
    del answer["choices"][0]["token_ids"]


def two_choices(answer: dict[str, Any]) -> None:
    answer["choices"] *= 2


def no_logprobs(answer: dict[str, Any]) -> None:
    answer["choices"][0]["logprobs"] = None


@pytest.mark.parametrize(
    ("said", "failure", "finish"),
    [
        ("stop", None, "stop"),
        ("length", None, "length"),
        ("abort", "unknown_finish_reason", "length"),
        ("error", "unknown_finish_reason", "length"),
        (None, "unknown_finish_reason", "length"),
    ],
)
def test_completion_that_ended_otherwise_than_at_an_end_or_a_limit_is_a_failure(
    bench: Bench, said: str | None, failure: str | None, finish: str
) -> None:
    server = FakeServer()
    engine = bench.engine(server)
    server.spoil = lambda answer: answer["choices"][0].update(finish_reason=said)
    (found,) = engine.generate([GenerateRequest([7], 1)], SAMPLING)
    assert (found.failure, found.finish_reason) == (failure, finish)
    assert bool(found.token_ids) is (failure is None)


@pytest.mark.parametrize("spoil", [drop_ids, two_choices, no_logprobs])
def test_answer_that_is_no_completion_of_ours_is_data(
    bench: Bench, spoil: Callable[[dict[str, Any]], object]
) -> None:
    server = FakeServer()
    engine = bench.engine(server)
    server.spoil = spoil
    (found,) = engine.generate([GenerateRequest([7], 1)], SAMPLING)
    assert (found.failure, found.text, found.finish_reason) == ("malformed_reply", "", "length")


def test_wrong_count_of_log_probabilities_is_a_broken_instrument(bench: Bench) -> None:
    server = FakeServer()
    engine = bench.engine(server)
    server.spoil = lambda answer: answer["choices"][0]["logprobs"]["token_logprobs"].pop()
    with pytest.raises(InstrumentError, match="2 tokens with 1"):
        engine.generate([GenerateRequest([7], 1)], SAMPLING)
