"""What one item's scores say: its pairs' outcomes, and figures of the item. Pure.

A pair is two different texts that the data set puts into different tiers. In each order that was
read its better response wins (1), loses (0) or ties (1/2). With two orders the pair's credit is the
mean of both, and it is *inconsistent* if they do not say the same: so a judge that always names the
first place is right on half of the credit and inconsistent on every pair. A pair with an unscored
response in either order is unscored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

from dynamicrubric.benchmarks.scored import ScoredItem, Scores
from dynamicrubric.evaluators.base import INCONSISTENT_PAIRS

Outcome = Literal["win", "loss", "tie", "inconsistent", "unscored"]
FIGURES: Final[dict[str, str]] = {
    "accuracy": "share of decided pairs that it puts in the data set's order, ties 1/2",
    "longer_wins": "share of decided pairs whose longer response is the better one, equal ones 1/2",
    "accuracy_longer_loses": "its accuracy on the pairs whose longer response is the worse one",
    "flip_rate": "share of pairs on which both orders of the responses do not say the same",
    "tie_rate": "share of pairs to which its scores give no order",
    "prefers_longer": "share of pairs whose longer response it puts first, ties 1/2",
    "listwise_accuracy": "chance that its order, ties broken at random, is the data set's",
    "kendall": "Kendall's tau-b; 0 where it ties everything",
    "ndcg": "nDCG over the whole list, gain: tiers below; ties broken at random",
    "best_of_n": "chance that the response it puts first, ties broken at random, is of the best",
    "chosen_quality": "true quality of the response it puts first, where it is known",
    "gold_ties_tied": "share of pairs that the data set ties which it ties as well",
}
"""Every figure of an item, in words."""


@dataclass(frozen=True)
class ItemFigures:
    """Figures of one item under one evaluator.

    Attributes:
        item: the scores.
        values: by name of `FIGURES`; None where unscored or where the item has no such pair.
        outcomes: pairs by outcome.
        worst: accuracy if each unscored pair were lost; None without a decided pair.
        best: the same if each were won.
        num_unscored: responses without a score in some order.
        reasons: why, by response.
    """

    item: ScoredItem
    values: dict[str, float | None]
    outcomes: Counter[Outcome]
    worst: float | None
    best: float | None
    num_unscored: int
    reasons: Counter[str]


@dataclass(frozen=True)
class PairOutcome:
    """One decided pair.

    Attributes:
        better: place of the better response.
        worse: place of the worse one.
        credit: mean over the orders, None if unscored.
        outcome: what the orders say together.
        ties: share of orders in which its scores are equal, None if unscored.
    """

    better: int
    worse: int
    credit: float | None
    outcome: Outcome
    ties: float | None


def item_figures(item: ScoredItem) -> ItemFigures:
    """Return all figures of an item."""
    pairs = pair_outcomes(item)
    credits = [pair.credit for pair in pairs]
    scored = [credit for credit in credits if credit is not None]
    by_length = [longer_wins(item, pair.better, pair.worse) for pair in pairs]
    whole = [own for own in item.scores if all(value is not None for value in own)]
    is_whole = len(whole) == len(item.scores)
    has_order = bool(pairs)
    values: dict[str, float | None] = {
        "accuracy": _mean(credits),
        "longer_wins": _mean(by_length),
        "accuracy_longer_loses": _mean(
            [c for c, longer in zip(credits, by_length, strict=True) if longer == 0.0]
        ),
        "flip_rate": _flip_rate(item, pairs),
        "tie_rate": _mean([pair.ties for pair in pairs]),
        "prefers_longer": _prefers_longer(pairs, by_length),
        "gold_ties_tied": _gold_ties(item),
    }
    for name, figure in _LISTWISE.items():
        found = [figure(own, item.tiers) for own in _filled(whole)]
        values[name] = _mean(found) if is_whole and has_order else None
    values["chosen_quality"] = (
        _mean([_chosen(own, item.quality) for own in _filled(whole)])
        if is_whole and item.quality
        else None
    )
    unscored = [next(filter(None, column), None) for column in zip(*item.reasons, strict=True)]
    return ItemFigures(
        item=item,
        values=values,
        outcomes=Counter(pair.outcome for pair in pairs),
        worst=math.fsum(scored) / len(pairs) if pairs else None,
        best=(math.fsum(scored) + len(pairs) - len(scored)) / len(pairs) if pairs else None,
        num_unscored=sum(reason is not None for reason in unscored),
        reasons=Counter(reason for reason in unscored if reason is not None),
    )


def pair_outcomes(item: ScoredItem) -> list[PairOutcome]:
    """Return the item's decided pairs of different texts, the better response first."""
    return [
        _outcome(item, better, worse)
        for better, worse in combinations(range(len(item.tiers)), 2)
        if item.tiers[better] < item.tiers[worse] and item.same[better] != item.same[worse]
    ]


def longer_wins(item: ScoredItem, better: int, worse: int) -> float:
    """Return 1 if the better response is the longer one in characters, 0 if not, 1/2 if equal."""
    difference = item.lengths[better] - item.lengths[worse]
    return 0.5 if difference == 0 else float(difference > 0)


def _outcome(item: ScoredItem, better: int, worse: int) -> PairOutcome:
    credits = []
    for own in item.scores:
        first, second = own[better], own[worse]
        if first is None or second is None:
            return PairOutcome(better, worse, None, "unscored", None)
        credits.append(0.5 if first == second else float(first > second))
    ties = sum(credit == 0.5 for credit in credits) / len(credits)
    outcome: Outcome = "inconsistent"
    if len(set(credits)) == 1:
        outcome = "win" if credits[0] == 1.0 else "loss" if credits[0] == 0.0 else "tie"
    if outcome == "tie" and frozenset((better, worse)) in (compared_inconsistently(item) or ()):
        outcome = "inconsistent"
    return PairOutcome(better, worse, sum(credits) / len(credits), outcome, ties)


def _flip_rate(item: ScoredItem, pairs: Sequence[PairOutcome]) -> float | None:
    """Return the share of inconsistent pairs; nothing where one order was read alone.

    An evaluator that swaps each pair itself, and says of which the answers disagree, has those:
    its scores are the same in every order, whatever its judge does.
    """
    if len(item.orders) < 2:
        return None
    scored = [pair for pair in pairs if pair.outcome != "unscored"]
    own = compared_inconsistently(item)
    if own is None:
        return _mean([float(pair.outcome == "inconsistent") for pair in scored])
    return _mean([float(frozenset((pair.better, pair.worse)) in own) for pair in scored])


def compared_inconsistently(item: ScoredItem) -> set[frozenset[int]] | None:
    """Return the pairs of places that an evaluator of pairs says it compared inconsistently.

    Returns:
        None where it is none.
    """
    found: set[frozenset[int]] | None = None
    for order, said in zip(item.orders, item.said, strict=False):
        own = said.get("breakdown", {}).get(INCONSISTENT_PAIRS)
        if own is not None:
            found = (found or set()) | {frozenset((order[a], order[b])) for a, b in own}
    return found


def _prefers_longer(pairs: Sequence[PairOutcome], by_length: Sequence[float]) -> float | None:
    """Return how often the longer response of a pair is put first, where lengths differ."""
    return _mean(
        [
            None if pair.credit is None else pair.credit if longer else 1.0 - pair.credit
            for pair, longer in zip(pairs, by_length, strict=True)
            if longer != 0.5
        ]
    )


def _gold_ties(item: ScoredItem) -> float | None:
    """Return the share of pairs of different texts in one tier whose scores are equal too."""
    found = [
        float(own[one] == own[other])
        for one, other in combinations(range(len(item.tiers)), 2)
        if item.tiers[one] == item.tiers[other] and item.same[one] != item.same[other]
        for own in item.scores
        if own[one] is not None and own[other] is not None
    ]
    return _mean(found)


def _filled(scores: Sequence[Scores]) -> list[list[float]]:
    return [[value for value in own if value is not None] for own in scores]


def _groups(scores: Sequence[float]) -> list[list[int]]:
    """Return places grouped by equal score, the highest first."""
    found: dict[float, list[int]] = {}
    for place, score in enumerate(scores):
        found.setdefault(score, []).append(place)
    return [found[score] for score in sorted(found, reverse=True)]


def listwise_accuracy(scores: Sequence[float], tiers: Sequence[int]) -> float:
    """Return the chance that the scores' order, ties broken at random, respects all tiers.

    For two responses it is the pairwise accuracy with ties at 1/2; a scorer that ties everything
    earns `prod(tier sizes!) / K!`.

    >>> listwise_accuracy([0.9, 0.5, 0.1], [0, 1, 2]), listwise_accuracy([0.9, 0.5, 0.5], [0, 1, 2])
    (1.0, 0.5)
    """
    chance, reached = 1.0, 0
    for group in _groups(scores):
        own = [tiers[place] for place in group]
        if min(own) < reached:
            return 0.0
        reached = max(own)
        ways = math.prod(math.factorial(count) for count in Counter(own).values())
        chance *= ways / math.factorial(len(own))
    return chance


def kendall(scores: Sequence[float], tiers: Sequence[int]) -> float:
    """Return Kendall's (1945) tau-b of the scores and the tiers' order.

    `(C - D) / sqrt((pairs not tied by the scores) (pairs not tied by the tiers))`. Where the scores
    tie everything it is 0/0, and 0 here: no association, and no way round it by saying nothing.

    >>> kendall([0.3, 0.2, 0.1], [0, 1, 2]), kendall([0.5, 0.5], [0, 1])
    (1.0, 0.0)
    """
    balance = by_scores = by_tiers = 0
    for one, other in combinations(range(len(tiers)), 2):
        asked = (scores[one] > scores[other]) - (scores[one] < scores[other])
        true = (tiers[one] < tiers[other]) - (tiers[one] > tiers[other])
        balance += asked * true
        by_scores += asked != 0
        by_tiers += true != 0
    return balance / math.sqrt(by_scores * by_tiers) if by_scores and by_tiers else 0.0


def ndcg(scores: Sequence[float], tiers: Sequence[int]) -> float:
    """Return the normalised discounted cumulative gain of the scores' order over the whole list.

    Jarvelin and Kekalainen (2002): gain is the number of tiers below, discount 1 / log2(rank + 1).
    Tied responses share their places' mean gain (McSherry and Najork 2008).

    >>> ndcg([0.9, 0.5], [0, 1])
    1.0
    """
    gains = [max(tiers) - tier for tier in tiers]
    ideal = _discounted([[n] for n in sorted(range(len(gains)), key=lambda n: -gains[n])], gains)
    return _discounted(_groups(scores), gains) / ideal if ideal else 1.0


def best_of_n(scores: Sequence[float], tiers: Sequence[int]) -> float:
    """Return the chance that the response put first, ties broken at random, is of the best tier.

    >>> best_of_n([0.4, 0.4, 0.1], [0, 1, 1])
    0.5
    """
    first = _groups(scores)[0]
    return sum(tiers[place] == 0 for place in first) / len(first)


_LISTWISE: Final = {
    "listwise_accuracy": listwise_accuracy,
    "kendall": kendall,
    "ndcg": ndcg,
    "best_of_n": best_of_n,
}


def _discounted(groups: Sequence[Sequence[int]], gains: Sequence[int]) -> float:
    total, rank = 0.0, 0
    for group in groups:
        discounts = [1.0 / math.log2(rank + n + 2) for n in range(len(group))]
        total += math.fsum(discounts) * sum(gains[place] for place in group) / len(group)
        rank += len(group)
    return total


def _chosen(scores: Sequence[float], quality: Sequence[float]) -> float:
    first = _groups(scores)[0]
    return math.fsum(quality[place] for place in first) / len(first)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
