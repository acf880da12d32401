"""A judge's rating as token log-probabilities in; shares of the labels, or unscored, out.

The third boundary beside `rubrics` and `verdicts`, with the mechanics of the latter: a rating is
the distribution over the labels in the one place where the answer begins. The sampled text is never
searched for a number. What cannot be read is unscored under a name that can be counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dynamicrubric.errors import UserError
from dynamicrubric.types import Score
from dynamicrubric.verdicts import (
    MASS_TOLERANCE,
    UnscoredReason,
    is_usable,
    slot_word,
    token_word,
)

ONE_TO_FIVE: Final = ("1", "2", "3", "4", "5")
ONE_TO_TEN: Final = (*ONE_TO_FIVE, "6", "7", "8", "9", "10")
A_OR_B: Final = ("A", "B")


@dataclass(frozen=True, slots=True)
class Rating:
    """A distribution over labels, or unscored.

    Attributes:
        shares: share of each label among all labels, shape (L,), sums to 1; None if unscored.
        reason: why it is unscored.
        covered: probability on all labels together, where it is known.
    """

    shares: tuple[float, ...] | None
    reason: str | None = None
    covered: float | None = None

    def __post_init__(self) -> None:
        if (self.shares is None) != bool(self.reason):
            raise ValueError(f"shares {self.shares!r} with reason {self.reason!r}")
        if self.shares is not None and not math.isclose(math.fsum(self.shares), 1.0):
            raise ValueError(f"shares {self.shares} do not add up to 1")

    @classmethod
    def unscored(cls, reason: str, covered: float | None = None) -> Rating:
        """No rating, because of `reason`."""
        return cls(None, str(reason), covered)

    @property
    def mean(self) -> float | None:
        """Expected number of the label, from 1 to L: G-Eval's score; None if unscored."""
        if self.shares is None:
            return None
        return math.fsum(number * share for number, share in enumerate(self.shares, start=1))

    @property
    def score(self) -> Score:
        """The expected number on a scale from 0 (all on the first label) to 1 (all on the last)."""
        mean = self.mean
        if mean is None or self.shares is None:
            return Score.unscored(str(self.reason))
        return Score.of(min(1.0, max(0.0, (mean - 1) / (len(self.shares) - 1))))


def rating_from_masses(masses: Sequence[float], *, coverage_floor: float = 0.5) -> Rating:
    """Rate by the probability of each label, summed over all tokens that say it.

    Args:
        masses: shape (L,), from the whole vocabulary.
        coverage_floor: least sum for a rating, in [0, 1].

    Raises:
        ValueError: for a floor out of range.

    >>> rating_from_masses([0.0, 0.2, 0.6]).mean
    2.75
    >>> rating_from_masses([0.1, 0.1, 0.1]).reason
    'low_coverage'
    """
    if not 0.0 <= coverage_floor <= 1.0:
        raise ValueError(f"coverage floor {coverage_floor} out of range")
    covered = math.fsum(masses)
    sound = 0.0 < covered <= 1.0 + MASS_TOLERANCE and min(masses) >= 0.0
    if not sound:  # NaN is none either
        return Rating.unscored(UnscoredReason.NO_USABLE_PROBABILITY)
    if covered < coverage_floor:
        return Rating.unscored(UnscoredReason.LOW_COVERAGE, covered)
    return Rating(tuple(mass / covered for mass in masses), None, covered)


def rating_from_logprobs(
    top: Mapping[str, float],
    labels: Sequence[str],
    *,
    coverage_floor: float = 0.5,
    after: Mapping[str, float] | None = None,
) -> Rating:
    """Rate by the log-probabilities of an answer's first token, as an endpoint tells them.

    A label that is absent from `top` counts as the smallest probability seen, as in
    `verdicts.verdict_from_logprobs`, or as its share of what is left of 1, if that is less. A
    token that may go on to a longer label ("1" of "10") counts only where it is known how it goes
    on: otherwise its mass is none of a label's, and the coverage floor shows it.

    Args:
        top: token text -> natural-log probability, raw.
        labels: L distinct labels.
        coverage_floor: least probability on labels that were seen.
        after: of the token that follows, where the first was sampled to be such a beginning.

    >>> round(rating_from_logprobs({"4": -0.3, " 5": -1.6, "!": -3.0}, ONE_TO_FIVE).mean, 1)
    4.0
    >>> rating_from_logprobs({"1": -0.1, "9": -3.0}, ONE_TO_TEN).reason
    'low_coverage'
    """
    if not is_usable(top):
        return Rating.unscored(UnscoredReason.NO_USABLE_PROBABILITY)
    words, masses = [label.casefold() for label in labels], dict[str, float]()
    for token, logprob in sorted(top.items()):  # one order of summing: equal tables, equal bits
        word = token_word(token)
        if word in words:
            masses[word] = masses.get(word, 0.0) + math.exp(logprob)
    for short, longer in open_labels(words).items():
        if short in masses and longer not in masses:
            mass = masses.pop(short)
            if after is not None and is_usable(after):
                masses |= _split(mass, short, longer, after)
    if math.fsum(masses.values()) < coverage_floor or not masses:
        return Rating.unscored(UnscoredReason.LOW_COVERAGE, math.fsum(masses.values()))
    unseen = _unseen(top, len(words) - len(masses))
    return rating_from_masses([masses.get(word, unseen) for word in words], coverage_floor=0.0)


def open_labels(labels: Sequence[str]) -> dict[str, str]:
    """Return each label that another one begins with, and that other one.

    >>> open_labels(["1", "2", "10"])
    {'1': '10'}
    """
    return {
        short: longer
        for short in labels
        for longer in labels
        if longer != short and longer.startswith(short)
    }


def label_ids_of(tokens: Mapping[int, str], labels: Sequence[str]) -> list[tuple[int, ...]]:
    """Return which ids of a vocabulary say each label, in ascending order.

    A label that goes on from another one ("10") may have none: it is spelt in two tokens then.

    Args:
        tokens: id -> the token's text as it decodes; control tokens left out.
        labels: L labels.

    Raises:
        UserError: a vocabulary without a token for another label.
    """
    words = {slot_word(label): place for place, label in enumerate(labels)}
    found: list[list[int]] = [[] for _ in labels]
    for token_id, text in sorted(tokens.items()):
        place = words.get(token_word(text))
        if place is not None:
            found[place].append(token_id)
    spelt = set(open_labels(list(labels)).values())
    missing = [label for label, ids in zip(labels, found, strict=True) if not ids]
    if set(missing) - spelt:
        raise UserError(
            doing=f"looking for the ratings {', '.join(labels)} in a vocabulary",
            got=f"no token for {', '.join(sorted(set(missing) - spelt))}",
            expected="at least one for each",
            remedy="use another judge",
        )
    return [tuple(ids) for ids in found]


def _unseen(top: Mapping[str, float], num_missing: int) -> float:
    """Return what each of the labels that are absent counts for: together at most what is left."""
    probabilities = [math.exp(logprob) for logprob in top.values()]
    left = max(0.0, 1.0 - math.fsum(probabilities))
    return min(min(probabilities), left / num_missing) if num_missing else 0.0


def _split(mass: float, short: str, longer: str, after: Mapping[str, float]) -> dict[str, float]:
    """Share the mass of a beginning between the label that ends there and the one that goes on."""
    rest = longer.removeprefix(short)
    share = math.fsum(math.exp(p) for token, p in after.items() if token_word(token) == rest)
    return {short: mass * (1 - min(1.0, share)), longer: mass * min(1.0, share)}
