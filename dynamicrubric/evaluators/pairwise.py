"""A judge that compares: every pair of a set, in both orders; the score is the share of wins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

from dynamicrubric.engines.rating import Rated, Rater, RateRequest
from dynamicrubric.evaluators.base import INCONSISTENT_PAIRS, ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.evaluators.rated import cost_of
from dynamicrubric.prompts.judges import pairwise_messages
from dynamicrubric.ratings import A_OR_B
from dynamicrubric.types import Score

NO_OPPONENT: Final = "no_opponent"
"""Why the only response of a set has no share of wins."""
Outcome = Literal["first", "second", "tie", "inconsistent"]
_POINTS: Final[Mapping[Outcome, tuple[float, float]]] = {
    "first": (1.0, 0.0),
    "second": (0.0, 1.0),
    "tie": (0.5, 0.5),
    "inconsistent": (0.5, 0.5),
}
Both = tuple[Rated, Rated]
"""A pair's answers: as it stands, and the other way round."""


@dataclass(frozen=True)
class PairwiseEvaluator:
    """Scores by the share of a response's comparisons that it wins, ties half.

    Follows the pairwise comparison with swapped positions of "Judging LLM-as-a-Judge with MT-Bench
    and Chatbot Arena" (Zheng et al., 2023, arXiv 2306.05685): a win counts only if it is one in
    both orders.

    Differences: the judge has no word for a tie and gives no reasoning; which response it prefers
    is the likelier of A and B where its answer begins. Answers that disagree count half for each,
    as ties do, but are counted apart ("inconsistent"). Equal texts tie without a call. One
    comparison that cannot be read leaves both its responses unscored.
    """

    rater: Rater
    name: str = "pairwise"
    sees_set: bool = True

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        """Score each set, all comparisons in one call; the seeds change nothing.

        Sets that are one another's reverse ask the same: it is asked, and paid, once.
        """
        pairs = [list(combinations(dict.fromkeys(one.shown), 2)) for one in sets]
        requests = [
            RateRequest(pairwise_messages(one.prompt, *texts), A_OR_B)
            for one, texts_of in zip(sets, pairs, strict=True)
            for pair in texts_of
            for texts in (pair, pair[::-1])
        ]
        answers = iter(self._rate(requests))
        return [
            _scored(one, {pair: (next(answers), next(answers)) for pair in texts_of})
            for one, texts_of in zip(sets, pairs, strict=True)
        ]

    def _rate(self, requests: Sequence[RateRequest]) -> list[Rated]:
        """Return one rating for each request; of equal ones the first has the cost."""
        asked = list(dict.fromkeys(requests))
        told = dict(zip(asked, self.rater.rate(asked) if asked else [], strict=True))
        paid: set[RateRequest] = set()
        found = []
        for request in requests:
            found.append(Rated(told[request].rating) if request in paid else told[request])
            paid.add(request)
        return found


def outcome_of(both: Both) -> Outcome | None:
    """Return what two answers say of a pair; None if one of them is unscored."""
    shares = [answer.rating.shares for answer in both]
    if shares[0] is None or shares[1] is None:
        return None
    straight, swapped = shares[0][0] - shares[0][1], shares[1][1] - shares[1][0]
    if straight == swapped == 0:
        return "tie"
    if straight > 0 and swapped > 0:
        return "first"
    return "second" if straight < 0 and swapped < 0 else "inconsistent"


def _scored(one: ResponseSet, answers: Mapping[tuple[str, str], Both]) -> ScoredSet:
    outcomes = {pair: outcome_of(both) for pair, both in answers.items()}
    there = [place for place, reason in enumerate(one.reasons) if reason is None]
    texts = one.responses
    scores = [
        _share(place, [other for other in there if other != place], texts, outcomes, answers)
        if place in there
        else Score.unscored(str(one.reasons[place]))
        for place in range(len(texts))
    ]
    counts: Counter[str] = Counter(
        "tie" if texts[a] == texts[b] else _word(_either(outcomes, texts[a], texts[b]))
        for a, b in combinations(there, 2)
    )
    return ScoredSet(
        tuple(scores),
        breakdown={
            "comparisons": {
                name: counts[name] for name in ("decided", "tie", "inconsistent", "unscored")
            },
            INCONSISTENT_PAIRS: [
                [a, b]
                for a, b in combinations(there, 2)
                if texts[a] != texts[b] and _either(outcomes, texts[a], texts[b]) == "inconsistent"
            ],
            "wins": _wins(texts, there, outcomes),
        },
        cost=cost_of(answer for both in answers.values() for answer in both),
    )


def _share(
    place: int,
    others: Sequence[int],
    texts: Sequence[str],
    outcomes: Mapping[tuple[str, str], Outcome | None],
    answers: Mapping[tuple[str, str], Both],
) -> Score:
    """Return the share of the comparisons that a response wins."""
    if not others:
        return Score.unscored(NO_OPPONENT)
    points = 0.0
    for other in others:
        if texts[other] == texts[place]:
            points += 0.5
            continue
        pair, side = _pair(outcomes, texts[place], texts[other])
        outcome = outcomes[pair]
        if outcome is None:
            reasons = (answer.rating.reason for answer in answers[pair])
            return Score.unscored(next(reason for reason in reasons if reason is not None))
        points += _POINTS[outcome][side]
    return Score.of(points / len(others))


def _pair(
    outcomes: Mapping[tuple[str, str], Outcome | None], text: str, other: str
) -> tuple[tuple[str, str], int]:
    """Return the pair as it was asked, and on which side of it the first text stands."""
    return ((text, other), 0) if (text, other) in outcomes else ((other, text), 1)


def _either(
    outcomes: Mapping[tuple[str, str], Outcome | None], text: str, other: str
) -> Outcome | None:
    return outcomes[_pair(outcomes, text, other)[0]]


def _word(outcome: Outcome | None) -> str:
    if outcome is None:
        return "unscored"
    return "decided" if outcome in ("first", "second") else outcome


def _wins(
    texts: Sequence[str], there: Sequence[int], outcomes: Mapping[tuple[str, str], Outcome | None]
) -> list[int]:
    """Return how many comparisons each response won in both orders."""
    wins = [0] * len(texts)
    for a in there:
        for b in there:
            if texts[a] != texts[b]:
                pair, side = _pair(outcomes, texts[a], texts[b])
                outcome = outcomes[pair]
                wins[a] += outcome is not None and _POINTS[outcome][side] == 1.0
    return wins
