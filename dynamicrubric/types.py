"""Domain types: rubrics, verdicts, scores and means that say how much they rest on.

A verdict is yes, no or unscored(reason); a score is a number in [0, 1] or unscored(reason).
"Unscored" never silently becomes 0, 1, yes or no: a `Score` or `Verdict` has no truth value and no
arithmetic, so its reader has to look at `value`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, NoReturn

MIN_WEIGHT: Final = 1
MAX_WEIGHT: Final = 5
MISSING: Final = "missing"
"""Reason that `mean_of` counts for a bare None."""


class InvalidReason(StrEnum):
    """Every way in which a generator's text fails to be a rubric."""

    FAILED = "failed"
    """The engine has no text at all (`Generation.failure`): nothing that the generator did."""
    TRUNCATED = "truncated"
    """The engine stopped at its token limit, whatever the text looks like."""
    NOT_JSON = "not_json"
    NOT_FINITE = "not_finite"
    """The constants NaN, Infinity or -Infinity, which JSON does not have."""
    TOO_DEEP = "too_deep"
    """Nested beyond what the JSON reader can follow."""
    ABSURD_NUMBER = "absurd_number"
    """An integer with more digits than any weight could need."""
    DUPLICATE_KEY = "duplicate_key"
    """An object that names one field twice, so that which value counts is a guess."""
    TRAILING_TEXT = "trailing_text"
    """A JSON value, and then more text."""
    NOT_A_LIST = "not_a_list"
    NO_ITEMS = "no_items"
    TOO_FEW_ITEMS = "too_few_items"
    TOO_MANY_ITEMS = "too_many_items"
    ITEM_NOT_OBJECT = "item_not_object"
    UNKNOWN_FIELD = "unknown_field"
    MISSING_CRITERION = "missing_criterion"
    CRITERION_NOT_TEXT = "criterion_not_text"
    EMPTY_CRITERION = "empty_criterion"
    """Not one letter or digit: nothing to judge."""
    CRITERION_TOO_LONG = "criterion_too_long"
    BAD_CHARACTER = "bad_character"
    """A control character, line separator or lone surrogate in a criterion."""
    MISSING_WEIGHT = "missing_weight"
    WEIGHT_NOT_INTEGER = "weight_not_integer"
    """true, 3.0 and "3" are not integers here."""
    WEIGHT_OUT_OF_RANGE = "weight_out_of_range"
    DUPLICATE_CRITERION = "duplicate_criterion"
    """Two criteria that are equal after `rubrics.normalise_criterion`."""
    UNCHECKABLE_CRITERION = "uncheckable_criterion"
    """A criterion that the verifier in use cannot judge at all."""


@dataclass(frozen=True, slots=True)
class Item:
    """One criterion with its weight, an integer in 1..5."""

    criterion: str
    weight: int


@dataclass(frozen=True, slots=True)
class Rubric:
    """A non-empty list of items. `rubrics.parse_rubric` is the boundary that vouches for texts."""

    items: tuple[Item, ...]

    def __post_init__(self) -> None:
        if not self.items:
            raise ValueError("a rubric needs at least one item")
        for item in self.items:
            if not MIN_WEIGHT <= item.weight <= MAX_WEIGHT:
                raise ValueError(f"weight {item.weight} is outside {MIN_WEIGHT}..{MAX_WEIGHT}")

    @property
    def weights(self) -> tuple[int, ...]:
        """Weights in item order, shape (M,)."""
        return tuple(item.weight for item in self.items)

    @property
    def criteria(self) -> tuple[str, ...]:
        """Criterion texts in item order, shape (M,)."""
        return tuple(item.criterion for item in self.items)


@dataclass(frozen=True, slots=True)
class InvalidRubric:
    """A text that is no rubric, and why. A cost to the generator, never a score of a response."""

    reason: InvalidReason
    detail: str


VerdictValue = Literal["yes", "no", "unscored"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verifier's answer to one criterion for one response.

    Attributes:
        value: yes, no or unscored.
        reason: why it is unscored; None for yes and no.
        p_yes: P(yes) / (P(yes) + P(no)) where the engine gives probabilities. It may accompany an
            unscored verdict (an undecided one), for the record.
    """

    value: VerdictValue
    reason: str | None = None
    p_yes: float | None = None

    def __post_init__(self) -> None:
        if self.value not in ("yes", "no", "unscored"):
            raise ValueError(f"no such verdict value: {self.value!r}")
        if (self.value == "unscored") != bool(self.reason):
            raise ValueError(f"a {self.value} verdict with reason {self.reason!r}")
        if self.p_yes is not None and not 0.0 <= self.p_yes <= 1.0:
            raise ValueError(f"p_yes {self.p_yes} is outside [0, 1]")

    @classmethod
    def yes(cls, p_yes: float | None = None) -> Verdict:
        """The response meets the criterion."""
        return cls("yes", None, p_yes)

    @classmethod
    def no(cls, p_yes: float | None = None) -> Verdict:
        """The response does not meet the criterion."""
        return cls("no", None, p_yes)

    @classmethod
    def unscored(cls, reason: str, p_yes: float | None = None) -> Verdict:
        """The verifier gave no usable answer; `reason` is a short name that can be counted."""
        return cls("unscored", str(reason), p_yes)  # a plain str even from a StrEnum

    @property
    def is_scored(self) -> bool:
        """True for yes and no."""
        return self.value != "unscored"

    def __bool__(self) -> NoReturn:
        """Refused: `if verdict` would take a no, or an unscored verdict, for a yes."""
        raise TypeError("a Verdict has no truth value; compare verdict.value")


@dataclass(frozen=True, slots=True)
class Score:
    """A number in [0, 1], or unscored with a reason."""

    value: float | None
    reason: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) != bool(self.reason):
            raise ValueError(f"a score of {self.value!r} with reason {self.reason!r}")
        if self.value is not None and not 0.0 <= self.value <= 1.0:  # NaN fails this as well
            raise ValueError(f"score {self.value} is outside [0, 1]")

    @classmethod
    def of(cls, value: float) -> Score:
        """A score. Raises ValueError outside [0, 1] and for NaN."""
        return cls(float(value))

    @classmethod
    def unscored(cls, reason: str) -> Score:
        """No score, because of `reason`."""
        return cls(None, str(reason))

    @property
    def is_scored(self) -> bool:
        """True when there is a number."""
        return self.value is not None

    def __bool__(self) -> NoReturn:
        """Refused: a score of 0.0 and an unscored one must not look alike."""
        raise TypeError("a Score has no truth value; use is_scored or value")


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over the scored values, with what it rests on.

    Attributes:
        value: mean of the scored values, None when there are none.
        n_scored: how many values were numbers.
        n_total: how many there were in all.
        reasons: how many were unscored for each reason; adds up to n_total - n_scored.
    """

    value: float | None
    n_scored: int
    n_total: int
    reasons: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        counts = {reason: self.reasons[reason] for reason in sorted(self.reasons)}
        if (self.value is None) != (self.n_scored == 0):
            raise ValueError(f"mean {self.value} over {self.n_scored} scored values")
        if sum(counts.values()) != self.n_total - self.n_scored:
            raise ValueError(f"{counts} does not add up to {self.n_total} - {self.n_scored}")
        object.__setattr__(self, "reasons", counts)

    @property
    def n_unscored(self) -> int:
        """Values without a number."""
        return self.n_total - self.n_scored

    @property
    def unscored_rate(self) -> float:
        """Share of unscored values; 0 for an empty mean."""
        return self.n_unscored / self.n_total if self.n_total else 0.0

    def bounds(self, low: float = 0.0, high: float = 1.0) -> tuple[float, float]:
        """Mean over all values if every unscored one had been worst, and if best.

        Only for quantities that cannot leave [low, high]. An empty mean is bounded by the range.

        >>> mean_of([1.0] * 6 + [0.0] * 2 + [None] * 2).bounds()
        (0.6, 0.8)
        """
        if not self.n_total:
            return (low, high)
        total = 0.0 if self.value is None else self.value * self.n_scored
        worst = (total + self.n_unscored * low) / self.n_total
        best = (total + self.n_unscored * high) / self.n_total
        return (worst, best)


def mean_of(values: Iterable[float | Score | None]) -> Mean:
    """Mean of the scored values; unscored ones are counted by reason, never averaged.

    A bare None counts under the reason "missing". NaN and infinities are bugs: ValueError.

    >>> mean_of([Score.of(0.5), Score.unscored("refusal"), 1.0, None])
    Mean(value=0.75, n_scored=2, n_total=4, reasons={'missing': 1, 'refusal': 1})
    """
    numbers: list[float] = []
    reasons: Counter[str] = Counter()
    for entry in values:
        number = entry.value if isinstance(entry, Score) else entry
        if number is None:
            reasons[(entry.reason if isinstance(entry, Score) else None) or MISSING] += 1
        elif not math.isfinite(number):
            raise ValueError(f"{number} cannot be averaged")
        else:
            numbers.append(float(number))
    # fsum: the same values in another order give the same bits.
    value = math.fsum(numbers) / len(numbers) if numbers else None
    return Mean(value, len(numbers), len(numbers) + reasons.total(), reasons)
