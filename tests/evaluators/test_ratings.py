"""Ratings: what a distribution over tokens says, against sums done by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dynamicrubric.engines.rating import IdRater, RateRequest, rating_of_tokens
from dynamicrubric.engines.reading import SampledToken
from dynamicrubric.errors import UserError
from dynamicrubric.ratings import (
    A_OR_B,
    ONE_TO_FIVE,
    ONE_TO_TEN,
    label_ids_of,
    rating_from_logprobs,
    rating_from_masses,
)

LOG = math.log


def test_masses_are_normalised_and_weighted() -> None:
    rating = rating_from_masses([0.1, 0.0, 0.2, 0.4, 0.1])
    assert rating.mean == pytest.approx((0.1 + 0.6 + 1.6 + 0.5) / 0.8)
    assert rating.score.value == pytest.approx((2.8 / 0.8 - 1) / 4)
    assert rating.covered == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("masses", "reason"),
    [
        ([0.1, 0.1], "low_coverage"),
        ([0.0, 0.0], "no_usable_probability"),
        ([math.nan, 0.9], "no_usable_probability"),
        ([1.0, 0.9], "no_usable_probability"),
        ([-0.1, 0.9], "no_usable_probability"),
    ],
)
def test_masses_that_say_nothing_are_unscored(masses: list[float], reason: str) -> None:
    rating = rating_from_masses(masses)
    assert (rating.shares, rating.mean, rating.reason) == (None, None, reason)
    assert rating.score.reason == reason


def test_tokens_of_one_rating_are_added_up() -> None:
    top = {"4": LOG(0.3), " 4": LOG(0.3), "**4**": LOG(0.1), "5": LOG(0.2), "The": LOG(0.05)}
    rating = rating_from_logprobs(top, ONE_TO_FIVE)
    seen = [0.0, 0.0, 0.0, 0.7, 0.2]
    unseen = 0.05 / 3  # what is left of 1, shared by the three that are absent
    total = 0.9 + 3 * unseen
    expected = sum(n * (m or unseen) / total for n, m in enumerate(seen, start=1))
    assert rating.mean == pytest.approx(expected)


def test_a_number_within_prose_or_beyond_the_scale_is_no_rating() -> None:
    for token in ("4th", "45", "four", "-", "4/5"):
        assert rating_from_logprobs({token: LOG(0.9)}, ONE_TO_FIVE).reason == "low_coverage"


def test_masked_probabilities_are_not_used() -> None:
    top = {"1": -math.inf, "5": 0.0}
    assert rating_from_logprobs(top, ONE_TO_FIVE).reason == "no_usable_probability"


def test_ten_as_one_token_is_read() -> None:
    top = {"10": LOG(0.6), "1": LOG(0.2), "9": LOG(0.19)}
    rating = rating_from_logprobs(top, ONE_TO_TEN)
    assert rating.shares is not None
    assert rating.shares[9] == pytest.approx(0.6, abs=0.01)
    assert rating.shares[0] == pytest.approx(0.2, abs=0.01)


def test_one_that_may_become_ten_counts_only_where_it_is_known_how_it_goes_on() -> None:
    top = {"1": LOG(0.9), "9": LOG(0.09)}
    assert rating_from_logprobs(top, ONE_TO_TEN).reason == "low_coverage"
    goes_on = rating_from_logprobs(top, ONE_TO_TEN, after={"0": LOG(0.75), ".": LOG(0.2)})
    assert goes_on.shares is not None
    assert goes_on.shares[9] == pytest.approx(0.675, abs=0.01)
    assert goes_on.shares[0] == pytest.approx(0.225, abs=0.01)


def test_endpoint_reply_reads_the_place_where_the_answer_begins() -> None:
    top = {"4": LOG(0.8), "5": LOG(0.1)}
    plain = rating_of_tokens([SampledToken("4", top)], ONE_TO_FIVE, 0.5)
    thought = rating_of_tokens(
        [
            SampledToken("<think>", {"<think>": -0.01}),
            SampledToken("so 1", {"so 1": -0.01}),
            SampledToken("</think>", {"</think>": -0.01}),
            SampledToken("4", top),
        ],
        ONE_TO_FIVE,
        0.5,
    )
    assert plain == thought
    assert rating_of_tokens([], ONE_TO_FIVE, 0.5).reason == "no_usable_probability"
    never_ends = [SampledToken("<think>", {"<think>": -0.01})]
    assert rating_of_tokens(never_ends, ONE_TO_FIVE, 0.5).reason == "truncated"


def test_label_ids_are_all_tokens_that_say_a_label() -> None:
    tokens = {3: "1", 4: " 1", 5: "2", 6: "Ġ2", 7: "12", 8: "10"}
    assert label_ids_of(tokens, ("1", "2", "10")) == [(3, 4), (5, 6), (8,)]
    del tokens[8]
    assert label_ids_of(tokens, ("1", "2", "10"))[2] == ()
    assert label_ids_of({1: "A", 2: " b"}, A_OR_B) == [(1,), (2,)]
    with pytest.raises(UserError, match="no token for 2"):
        label_ids_of({3: "1"}, ("1", "2"))


class DigitsTokenizer:
    """Each digit and letter is a token; the id is its code point."""

    content_ids = frozenset(range(33, 127))

    class frame:
        @staticmethod
        def render(messages: Sequence[tuple[str, str]]) -> list[int]:
            return [ord(letter) for _, content in messages for letter in content]

    @staticmethod
    def text_of(token_id: int) -> str:
        return chr(token_id)


class FakeNext:
    """P(1) = 0.5, P(7) = 0.4; behind a 1 a 0 follows with 0.8."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def next_probabilities(
        self, prompts: Sequence[Sequence[int]], ids: Sequence[int]
    ) -> list[Mapping[int, float] | str]:
        self.asked += [list(p) for p in prompts]
        return [self._one(p) for p in prompts]

    def _one(self, prompt: Sequence[int]) -> Mapping[int, float] | str:
        if len(prompt) > 50:
            return "too_long"
        return {ord("0"): 0.8} if prompt[-1] == ord("1") else {ord("1"): 0.5, ord("7"): 0.4}


def request(text: str, labels: tuple[str, ...] = ONE_TO_TEN) -> RateRequest:
    return RateRequest((("user", text),), labels)


def test_id_rater_splits_one_from_ten_and_joins_results_by_request() -> None:
    engine = FakeNext()
    digits: Any = DigitsTokenizer()
    rater = IdRater(engine, digits, 0.5)
    rated = rater.rate([request("a?"), request("x" * 60), request("a?")])
    shares = rated[0].rating.shares
    assert shares is not None
    assert [shares[0], shares[6], shares[9]] == pytest.approx([0.1 / 0.9, 0.4 / 0.9, 0.4 / 0.9])
    assert rated[1].rating.reason == "too_long"
    assert rated[2].rating == rated[0].rating
    assert [one.calls for one in rated] == [2, 0, 0]
    assert rated[0].prompt_tokens == 2 + 3
    assert len(engine.asked) == 3  # two prompts, and one of them behind a 1


def test_id_rater_asks_nothing_twice_for_a_scale_of_five() -> None:
    engine = FakeNext()
    digits: Any = DigitsTokenizer()
    rater = IdRater(engine, digits, 0.6)
    (rated,) = rater.rate([request("a?", ONE_TO_FIVE)])
    assert rated.rating.reason == "low_coverage"  # 7 is none of five
    assert rated.rating.covered == pytest.approx(0.5)
    assert len(engine.asked) == 1
