"""Ratings through engines that take token ids, and from an endpoint that tells its likeliest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from faketokenizer import FakeTokenizer

from dynamicrubric.engines.base import GenerateRequest
from dynamicrubric.engines.identity import EngineIdentity
from dynamicrubric.engines.rating import IdRater, RateRequest, check_alone_and_together
from dynamicrubric.engines.reading import VerdictReading
from dynamicrubric.engines.tokenengine import Completion, TokenEngine, TokenSampling
from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.prompts.chat import ChatFrame
from dynamicrubric.ratings import A_OR_B, ONE_TO_FIVE, ONE_TO_TEN

FRAME = ChatFrame.from_template(
    lambda messages: "<a>" + "".join(text for _, text in messages) + "<b>",
    lambda text: [40 + len(word) % 40 for word in text.split()],
    {"<a>": 7, "<b>": 8},
)
LETTERS = FakeTokenizer({30: "A", 31: " A", 32: "B"}, ends={2, 9}, contents=range(10, 90),
                        frame=FRAME)  # fmt: skip


class FakeTokenEngine(TokenEngine):
    """Tells what it was asked of: P(A) = 0.2 + 0.3, P(B) = 0.25."""

    asked: list[TokenSampling]

    @property
    def identity(self) -> EngineIdentity:
        return EngineIdentity("verifier", "0", "fake")

    @property
    def max_model_len(self) -> int:
        return 6

    def _complete(self, requests: Sequence[GenerateRequest], sampling: TokenSampling) -> list[Any]:
        self.asked = [*getattr(self, "asked", []), sampling]
        told = {30: math.log(0.2), 31: math.log(0.3), 32: math.log(0.25)}
        top = tuple((i, told[i]) for i in sampling.label_ids)
        return [Completion((32,), "stop", (told[32],), (top,)) for _ in requests]


def ask(text: str, labels: tuple[str, ...] = A_OR_B) -> RateRequest:
    return RateRequest((("user", text),), labels)


def test_token_engine_is_asked_by_the_ids_of_all_labels_and_one_too_long_is_alone() -> None:
    engine = FakeTokenEngine(LETTERS)
    rated = IdRater(engine, LETTERS, 0.5).rate([ask("x"), ask("a b c d e f"), ask("yy")])
    assert engine.asked[0].label_ids == (30, 31, 32)
    assert engine.asked[0].max_tokens == 1
    assert [one.rating.reason for one in rated] == [None, "too_long", None]
    assert rated[0].rating.shares == pytest.approx((0.5 / 0.75, 0.25 / 0.75))


def test_vocabulary_without_a_label_is_refused() -> None:
    with pytest.raises(UserError, match="no token for 1, 2, 3, 4, 5"):
        IdRater(FakeTokenEngine(LETTERS), LETTERS, 0.5).rate([ask("x", ONE_TO_FIVE)])


pytest.importorskip("openai", reason="the optional extra `openai` is not installed")

from fakeendpoint import Answer, chat, serving  # noqa: E402

from dynamicrubric.engines.access import EndpointConfig  # noqa: E402
from dynamicrubric.engines.endpoint import Endpoint  # noqa: E402
from dynamicrubric.engines.openai import OpenAIEngine  # noqa: E402


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def engine_that_says(stack: ExitStack, *replies: dict[str, Any], **options: Any) -> OpenAIEngine:
    fake = stack.enter_context(
        serving(lambda _, place: Answer(replies[min(place, len(replies) - 1)]))
    )
    config = EndpointConfig(base_url=fake.url, model="judge", key_variable="TEST_KEY")
    return OpenAIEngine(Endpoint(config, pause=lambda seconds: None), **options)


def test_endpoint_rating_is_read_off_its_probabilities_and_paid(stack: ExitStack) -> None:
    reply = chat("4", tokens=[("4", {"4": -0.7, "5": -0.8, "!": -4.0})])
    reply["usage"] = {"prompt_tokens": 11, "completion_tokens": 1}
    rated = engine_that_says(stack, reply).rate([ask("x", ONE_TO_FIVE), ask("y", ONE_TO_FIVE)])
    four, five = math.exp(-0.7), math.exp(-0.8)
    left = 1 - four - five - math.exp(-4.0)
    unseen = min(math.exp(-4.0), left / 3)
    mean = (4 * four + 5 * five + 6 * unseen) / (four + five + 3 * unseen)
    assert rated[0].rating.mean == pytest.approx(mean)
    assert [(one.calls, one.prompt_tokens) for one in rated] == [(1, 11), (1, 11)]


def test_endpoint_ten_is_split_where_one_was_sampled(stack: ExitStack) -> None:
    tokens = [("1", {"1": -0.1, "9": -2.4}), ("0", {"0": -0.2, "<|end|>": -1.8})]
    (rated,) = engine_that_says(stack, chat("10", tokens=tokens)).rate([ask("x", ONE_TO_TEN)])
    assert rated.rating.shares is not None
    assert rated.rating.shares[9] == pytest.approx(math.exp(-0.3), abs=0.01)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (chat("4"), "no_usable_probability"),
        (chat("Four", tokens=[("Four", {"Four": -0.1, "4": -3.0})]), "low_coverage"),
        (chat(None, finish="content_filter"), "content_filter"),
        (chat("<think>so", tokens=[("<think>", {"<think>": -0.1}), ("so", {"so": -0.1})]),
         "truncated"),
    ],
)  # fmt: skip
def test_endpoint_reply_that_is_no_rating_is_unscored(
    stack: ExitStack, reply: dict[str, Any], reason: str
) -> None:
    (rated,) = engine_that_says(stack, reply).rate([ask("x", ONE_TO_FIVE)])
    assert rated.rating.reason == reason


def test_endpoint_without_probabilities_is_refused(stack: ExitStack) -> None:
    engine = engine_that_says(stack, chat("4"), top_logprobs=0)
    with pytest.raises(UserError, match="top_logprobs = 0"):
        engine.rate([ask("x", ONE_TO_FIVE)])


def test_endpoint_floor_is_that_of_its_reading(stack: ExitStack) -> None:
    reply = chat("4", tokens=[("4", {"4": math.log(0.6), "The": math.log(0.4)})])
    strict = engine_that_says(stack, reply, reading=VerdictReading(coverage_floor=0.7))
    (rated,) = strict.rate([ask("x", ONE_TO_FIVE)])
    assert (rated.rating.reason, rated.rating.covered) == ("low_coverage", pytest.approx(0.6))


class LosesPadded:
    """A model whose padded rows are no numbers."""

    def next_probabilities(self, prompts: Sequence[Sequence[int]], ids: Sequence[int]) -> list[Any]:
        longest = max(map(len, prompts))
        return [dict.fromkeys(ids, 0.1 if len(p) == longest else math.nan) for p in prompts]


def test_judge_that_rates_alone_and_not_in_a_batch_is_refused() -> None:
    numbers = FakeTokenizer({30 + n: str(n) for n in range(1, 6)}, ends={2, 9},
                            contents=range(10, 90), frame=FRAME)  # fmt: skip
    with pytest.raises(InstrumentError, match=r"not \(no_usable_probability\) in a batch and 3"):
        check_alone_and_together(IdRater(LosesPadded(), numbers), 1.0)
