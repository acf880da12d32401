"""Judges that rate: a conversation and labels in, a distribution over the labels out.

An engine that takes token ids is asked for the probabilities of all ids that say a label, in the
one place behind the prompt, so that none is missing. A label that a vocabulary spells in two tokens
("10") is asked for once more behind its beginning. An endpoint tells its likeliest tokens alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Protocol

from dynamicrubric.engines.base import PromptTokenizer
from dynamicrubric.engines.pacing import Cost
from dynamicrubric.engines.reading import SampledToken
from dynamicrubric.engines.thinking import answer_slot
from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.prompts.chat import Message
from dynamicrubric.ratings import (
    ONE_TO_FIVE,
    Rating,
    label_ids_of,
    open_labels,
    rating_from_logprobs,
    rating_from_masses,
)
from dynamicrubric.verdicts import UnscoredReason

RATING_TOKENS: Final = 4
"""Room for a number of two tokens, its marks and the end token, at an endpoint."""
_NEGLIGIBLE: Final = 1e-6
"""A label with less than this is not asked how it goes on."""


@dataclass(frozen=True)
class RateRequest:
    """A conversation that asks for one of some labels.

    Attributes:
        messages: the conversation.
        labels: lowest first.
    """

    messages: tuple[Message, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Rated:
    """A rating and what it took."""

    rating: Rating
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Rater(Protocol):
    """Rates with a frozen language model."""

    def rate(self, requests: Sequence[RateRequest]) -> list[Rated]:
        """Return one rating for each request, in order."""
        ...


class NextTokens(Protocol):
    """Tells probabilities of the token that follows a prompt."""

    def next_probabilities(
        self, prompts: Sequence[Sequence[int]], ids: Sequence[int]
    ) -> list[Mapping[int, float] | str]:
        """Return the probability of each id behind each prompt, or why there is none."""
        ...


@dataclass
class IdRater:
    """Rates with an engine that takes token ids.

    Attributes:
        engine: tells probabilities.
        tokenizer: its tokenizer, with a chat frame.
        coverage_floor: least probability on all labels together for a rating.
    """

    engine: NextTokens
    tokenizer: PromptTokenizer
    coverage_floor: float = 0.5
    _ids: dict[tuple[str, ...], list[tuple[int, ...]]] = field(default_factory=dict, repr=False)

    def rate(self, requests: Sequence[RateRequest]) -> list[Rated]:
        """Return one rating for each request, in order; equal requests are asked once.

        Raises:
            UserError: no chat frame, or a vocabulary without a token for a label.
        """
        found: dict[RateRequest, Rated] = {}
        for labels in dict.fromkeys(request.labels for request in requests):
            asked = list(dict.fromkeys(r for r in requests if r.labels == labels))
            found |= dict(zip(asked, self._rate(asked, labels), strict=True))
        first: set[RateRequest] = set()
        rated = []
        for request in requests:  # what is asked once is paid once
            paid = found[request]
            rated.append(Rated(paid.rating) if request in first else paid)
            first.add(request)
        return rated

    def _rate(self, requests: Sequence[RateRequest], labels: tuple[str, ...]) -> list[Rated]:
        prompts = [self._render(request) for request in requests]
        ids = self._label_ids(labels)
        told = self.engine.next_probabilities(prompts, tuple(chain(*ids)))
        masses = [
            reason if isinstance(reason, str) else [_sum(reason, group) for group in ids]
            for reason in told
        ]
        more = self._split(prompts, masses, labels)
        return [
            Rated(Rating.unscored(one))
            if isinstance(one, str)
            else Rated(
                rating_from_masses(one, coverage_floor=self.coverage_floor),
                1 + extra,
                len(prompt) + extra * (len(prompt) + 1),
                1 + extra,
            )
            for one, prompt, extra in zip(masses, prompts, more, strict=True)
        ]

    def _split(
        self,
        prompts: Sequence[Sequence[int]],
        masses: list[list[float] | str],
        labels: tuple[str, ...],
    ) -> list[int]:
        """Share the mass of a label with the longer one that it begins, where no id says that.

        Returns:
            How many prompts more were asked, for each prompt.
        """
        ids, more = self._label_ids(labels), [0] * len(prompts)
        for short, longer in open_labels(labels).items():
            start, end = labels.index(short), labels.index(longer)
            if ids[end]:
                continue
            rest = self._ids_of_rest(longer.removeprefix(short))
            places = [
                place
                for place, one in enumerate(masses)
                if not isinstance(one, str) and one[start] > _NEGLIGIBLE
            ]
            rows = [[*prompts[place], ids[start][0]] for place in places]
            told = self.engine.next_probabilities(rows, rest) if rows else []
            for place, answer in zip(places, told, strict=True):
                one = masses[place]
                assert not isinstance(one, str)
                if isinstance(answer, str):
                    masses[place] = answer
                    continue
                share = min(1.0, _sum(answer, rest))
                one[end], one[start] = one[start] * share, one[start] * (1 - share)
                more[place] += 1
        return more

    def _label_ids(self, labels: tuple[str, ...]) -> list[tuple[int, ...]]:
        if labels not in self._ids:
            self._ids[labels] = label_ids_of(self._texts(), labels)
        return self._ids[labels]

    def _ids_of_rest(self, rest: str) -> tuple[int, ...]:
        return self._label_ids((rest,))[0]

    def _texts(self) -> dict[int, str]:
        return {i: self.tokenizer.text_of(i) for i in self.tokenizer.content_ids}

    def _render(self, request: RateRequest) -> list[int]:
        frame = self.tokenizer.frame
        if frame is None:
            raise UserError(
                doing="rating",
                got="a judge without a chat frame",
                expected="an instruction-tuned model",
                remedy="use a judge whose checkpoint has a chat template",
            )
        return frame.render(request.messages)


def check_alone_and_together(rater: IdRater, tolerance: float) -> None:
    """Check that a judge rates alike alone and in a batch (case 16).

    Raises:
        InstrumentError: its ratings differ by more than `tolerance`.
    """
    probes = [
        RateRequest((("user", text),), ONE_TO_FIVE)
        for text in ("Rate: 1 to 5.", "Rate this response from 1 to 5: it is short. " * 3)
    ]
    loose = IdRater(rater.engine, rater.tokenizer, 0.0)
    together = loose.rate(probes)
    alone = [loose.rate([probe])[0] for probe in probes]
    for one, other in zip(together, alone, strict=True):
        a, b = one.rating.mean, other.rating.mean
        if a is None and b is None:
            continue
        if a is None or b is None or not abs(a - b) <= tolerance:
            raise InstrumentError(
                f"the judge rates one response {_shown(one.rating)} in a batch and "
                f"{_shown(other.rating)} alone: its attention is none that this engine can pad. "
                "Use another engine for it"
            )


def _shown(rating: Rating) -> str:
    return f"not ({rating.reason})" if rating.mean is None else f"{rating.mean:.4g}"


def rating_of_tokens(
    tokens: Sequence[SampledToken], labels: Sequence[str], coverage_floor: float
) -> Rating:
    """Rate by the probabilities in the place where an endpoint's answer begins.

    A reply that never gets there, because its thinking does not end, is truncated.
    """
    if not tokens:
        return Rating.unscored(UnscoredReason.NO_USABLE_PROBABILITY)
    slot = answer_slot([token.text for token in tokens])
    if slot is None:
        return Rating.unscored(UnscoredReason.TRUNCATED)
    begun = tokens[slot].text.strip() in open_labels(labels)
    after = tokens[slot + 1].top if begun and slot + 1 < len(tokens) else None
    return rating_from_logprobs(
        tokens[slot].top, labels, coverage_floor=coverage_floor, after=after
    )


def shared_cost(ratings: Sequence[Rating], before: Cost, now: Cost) -> list[Rated]:
    """Share what an endpoint took for some ratings evenly, the rest to the first of them."""
    counts = [
        parts(after - earlier, len(ratings))
        for after, earlier in (
            (now.calls, before.calls),
            (now.prompt_tokens, before.prompt_tokens),
            (now.completion_tokens, before.completion_tokens),
        )
    ]
    return [Rated(rating, *took) for rating, *took in zip(ratings, *counts, strict=True)]


def parts(total: int, count: int) -> list[int]:
    """Return `total` in `count` equal parts, the rest added to the first ones.

    >>> parts(7, 3)
    [3, 2, 2]
    """
    whole, rest = divmod(total, count) if count else (0, 0)
    return [whole + (place < rest) for place in range(count)]


def _sum(probabilities: Mapping[int, float], ids: Sequence[int]) -> float:
    return math.fsum(probabilities.get(i, 0.0) for i in ids)
