"""How much a generator's rubric, scores and order depend on the order in which it is shown a set.

A generator samples, so the same set in the same order gives other rubrics too. What order does is
therefore told beside what asking again does: only the difference of the two is the order's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from dynamicrubric.evaluators.judging import JudgedSet
from dynamicrubric.rubrics import normalise_criterion
from dynamicrubric.stats import Estimate, Paired, estimate, prompt_means
from dynamicrubric.theory import delta_gap, ordered_pairs
from dynamicrubric.types import Mean, Rubric, mean_of

CHANGES: Final = ("criteria_kept", "score_change", "pairs_flipped", "pairs_changed")
"""What is compared between two rubrics for one set."""


@dataclass(frozen=True, slots=True)
class Change:
    """One rubric for a set compared with another; None where one of the two is invalid or unscored.

    Attributes:
        criteria_kept: criteria that both have, over those that either has.
        score_change: mean absolute difference of the responses' scores.
        pairs_flipped: share of pairs of responses whose scores are the other way round.
        pairs_changed: share of pairs whose order differs at all, ties included.
    """

    criteria_kept: float | None = None
    score_change: float | None = None
    pairs_flipped: float | None = None
    pairs_changed: float | None = None


def change_between(first: JudgedSet, other: JudgedSet) -> Change:
    """Compare two rubrics that were applied to the same responses, in the same places."""
    if not (isinstance(first.rubric, Rubric) and isinstance(other.rubric, Rubric)):
        return Change()
    mine, theirs = (
        {normalise_criterion(text) for text in rubric.criteria}
        for rubric in (first.rubric, other.rubric)
    )
    kept = len(mine & theirs) / len(mine | theirs)
    scores = [
        (one.value, two.value)
        for one, two in zip(first.scores, other.scores, strict=True)
        if one.value is not None and two.value is not None
    ]
    if len(scores) < 2:
        return Change(kept)
    signs = [(_sign(a[0] - b[0]), _sign(a[1] - b[1])) for a, b in combinations(scores, 2)]
    return Change(
        criteria_kept=kept,
        score_change=sum(abs(one - two) for one, two in scores) / len(scores),
        pairs_flipped=sum(one * two < 0 for one, two in signs) / len(signs),
        pairs_changed=sum(one != two for one, two in signs) / len(signs),
    )


@dataclass(frozen=True)
class OrderFigures:
    """What the order of the responses in the generator's prompt does, for one cell.

    Attributes:
        orders: orders of each set, the one it is in among them.
        sets: response sets.
        reproduced: sets whose stored rubric was written again, word for word, in the first order.
        valid: valid rubrics of (first order, other orders, asked again), with their counts.
        permuted: changes between the first order and the others.
        again: changes between the first order and the same order, asked again.
        of_order: permuted less again, paired by prompt.
        gap: mean Delta_gap of one order's rubric, unscored where no order of responses is known.
        averaged_gap: mean Delta_gap of the rubric averaged over all orders.
        averaging: averaged_gap less the gap of the first order, paired by prompt.
    """

    orders: int
    sets: int
    reproduced: int
    valid: tuple[Mean, Mean, Mean]
    permuted: Mapping[str, Mean]
    again: Mapping[str, Mean]
    of_order: Mapping[str, Estimate]
    gap: Mean
    averaged_gap: Mean
    averaging: Estimate


@dataclass(frozen=True)
class ShownSet:
    """One response set under the rubrics of a check.

    Attributes:
        prompt_id: its prompt.
        quality: true quality of the responses, None where nobody knows it.
        reproduced: whether the first order's rubric is the stored one.
        first: the set under the rubric of the order it is in.
        permuted: under those of other orders; responses in their own places.
        again: under those of the same order, asked again.
        averaged: under the rubric averaged over the first and the permuted ones.
    """

    prompt_id: str
    quality: tuple[float | None, ...]
    reproduced: bool
    first: JudgedSet
    permuted: Sequence[JudgedSet]
    again: Sequence[JudgedSet]
    averaged: JudgedSet


def order_figures(sets: Sequence[ShownSet], seed: int) -> OrderFigures:
    """Put the sets of one cell together.

    Args:
        sets: at least one.
        seed: the run's, whose prompts are paired.
    """
    permuted = [(one, change_between(one.first, two)) for one in sets for two in one.permuted]
    again = [(one, change_between(one.first, two)) for one in sets for two in one.again]
    gaps = [(one.prompt_id, _gap(one, one.first)) for one in sets]
    averaged = [(one.prompt_id, _gap(one, one.averaged)) for one in sets]
    return OrderFigures(
        orders=1 + len(sets[0].permuted),
        sets=len(sets),
        reproduced=sum(one.reproduced for one in sets),
        valid=(
            _valid([one.first for one in sets]),
            _valid([two for one in sets for two in one.permuted]),
            _valid([two for one in sets for two in one.again]),
        ),
        permuted={name: _mean(name, permuted) for name in CHANGES},
        again={name: _mean(name, again) for name in CHANGES},
        of_order={
            name: _difference(_rows(name, permuted), _rows(name, again), seed) for name in CHANGES
        },
        gap=mean_of([gap for _, gap in gaps]),
        averaged_gap=mean_of([gap for _, gap in averaged]),
        averaging=_difference(averaged, gaps, seed),
    )


Row = tuple[str, float | None]


def _rows(name: str, changes: Sequence[tuple[ShownSet, Change]]) -> list[Row]:
    return [(one.prompt_id, getattr(change, name)) for one, change in changes]


def _mean(name: str, changes: Sequence[tuple[ShownSet, Change]]) -> Mean:
    return mean_of([value for _, value in _rows(name, changes)])


def _difference(rows: Sequence[Row], others: Sequence[Row], seed: int) -> Estimate:
    mine, theirs = prompt_means(rows), prompt_means(others)
    by_prompt = {
        prompt: None if value is None or other is None else value - other
        for prompt, value in mine.items()
        for other in [theirs.get(prompt)]
    }
    return estimate(Paired.of({seed: by_prompt}))


def _valid(judged: Sequence[JudgedSet]) -> Mean:
    return mean_of([float(isinstance(one.rubric, Rubric)) for one in judged])


def _gap(one: ShownSet, judged: JudgedSet) -> float | None:
    known = [value for value in one.quality if value is not None]
    if len(known) < len(one.quality):
        return None
    return delta_gap(judged.scores, ordered_pairs(known)).value


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
