"""Scalar reward models as evaluators: the response alone, or with its whole set in front of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dynamicrubric.evaluators.base import Cost, ScoredSet
from dynamicrubric.evaluators.baselines import left_out
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.types import Score
from dynamicrubric.verdicts import UnscoredReason

NOT_FINITE: Final = "reward_not_finite"


class RewardEngine(Protocol):
    """Renders and rewards; `engines.reward.RewardModel` is one."""

    def render(self, prompt: str, response: str, shown: Sequence[str] = ()) -> list[int]:
        """Return what the model reads of a response."""
        ...

    def rewards(self, rows: Sequence[Sequence[int]]) -> list[float | None]:
        """Return the reward of each row, None where it does not fit into the context."""
        ...


@dataclass(frozen=True)
class ScalarEvaluator:
    """Scores by a reward model: the sigmoid of its reward; the raw reward is in the breakdown.

    Follows the reward models of "Training language models to follow instructions with human
    feedback" (Ouyang et al., 2022, arXiv 2203.02155) with the Bradley-Terry loss of TRL's
    RewardTrainer. `scalar_set` is the DynamicRubric paper's control, a reward model that is fed
    the response set.

    Differences: all pairs of an anchor list are rows of their own, where Ouyang et al. put a
    prompt's pairs into one batch element; rewards are not centred, so the sigmoid orders but says
    no probability; how the paper writes a set for a reward model is unknown, here the set stands
    before the response. Rewards beyond about 37 have a sigmoid of exactly 1: their order is in the
    breakdown alone.

    Attributes:
        engine: the reward model.
        name: its name in tables.
        sees_set: whether it reads the set.
    """

    engine: RewardEngine
    name: str = "scalar"
    sees_set: bool = False

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        """Score each set; equal texts of a set are read once; the seeds change nothing."""
        texts = [list(dict.fromkeys(one.shown)) for one in sets]
        rows = [
            self.engine.render(one.prompt, text, one.shown if self.sees_set else ())
            for one, distinct in zip(sets, texts, strict=True)
            for text in distinct
        ]
        read = iter(zip(rows, self.engine.rewards(rows), strict=True))
        return [
            _scored(one, {text: next(read) for text in distinct})
            for one, distinct in zip(sets, texts, strict=True)
        ]


def _scored(one: ResponseSet, read: dict[str, tuple[list[int], float | None]]) -> ScoredSet:
    there = [reason is None for reason in one.reasons]
    rewards = [
        read[text][1] if is_there else None
        for text, is_there in zip(one.responses, there, strict=True)
    ]
    asked = [row for row, reward in read.values() if reward is not None]
    return ScoredSet(
        left_out(one, [_score(reward) for reward in rewards]),
        breakdown={"rewards": [_finite(reward) for reward in rewards]},
        cost=Cost(len(asked), sum(map(len, asked))),
    )


def _score(reward: float | None) -> Score:
    if reward is None:
        return Score.unscored(UnscoredReason.TOO_LONG)
    return Score.of(sigmoid(reward)) if math.isfinite(reward) else Score.unscored(NOT_FINITE)


def _finite(reward: float | None) -> float | None:
    return reward if reward is not None and math.isfinite(reward) else None


def sigmoid(reward: float) -> float:
    """Return the logistic function of a reward, without overflow.

    >>> sigmoid(0.0), sigmoid(-1000.0)
    (0.5, 0.0)
    """
    if reward >= 0:
        return 1.0 / (1.0 + math.exp(-reward))
    power = math.exp(reward)
    return power / (1.0 + power)
