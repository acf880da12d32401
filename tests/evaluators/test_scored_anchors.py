"""Held-out anchor lists under evaluators that read sets: the order of the list tells nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from dynamicrubric.evaluation import SampledSet
from dynamicrubric.evaluators.base import ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.evaluators.limits import ScoreLimits
from dynamicrubric.scoredevaluation import evaluate_scored
from dynamicrubric.types import Score

NUM_PROMPTS = 200
ANCHORS = {f"p{n}": ("worth 3", "worth 2", "worth 1") for n in range(NUM_PROMPTS)}


@dataclass(frozen=True)
class Scorer:
    """Scores each response by a function of its place and text."""

    of: Callable[[int, str], float]
    name: str = "scorer"
    sees_set: bool = True

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        return [
            ScoredSet(tuple(Score.of(self.of(n, text)) for n, text in enumerate(one.responses)))
            for one in sets
        ]


def by_first_place(place: int, text: str) -> float:
    return 1.0 - place / 10


def by_worth(place: int, text: str) -> float:
    return int(text.split()[1]) / 10 if text.startswith("worth") else 0.0


@pytest.mark.parametrize(("of", "expected"), [(by_first_place, 0.5), (by_worth, 1.0)])
def test_place_in_an_anchor_list_says_nothing_and_worth_everything(
    of: Callable[[int, str], float], expected: float
) -> None:
    sets = [
        SampledSet(f"{key}/0", ResponseSet(key, "Hi", ("x", "y")), (), (None, None))
        for key in ANCHORS
    ]
    found = evaluate_scored(
        sets, Scorer(of), ScoreLimits(1.0, 1.0), lambda prompt, text: 0.0, (1, 2), ANCHORS
    )
    value = found.metrics["anchor_rank_accuracy"].value
    # 600 pairs of lists of three in random order: 0.5 +- 4 standard errors at most.
    assert value == pytest.approx(expected, abs=0.0 if expected == 1.0 else 0.12)
