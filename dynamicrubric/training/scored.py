"""The policy's rollout under an evaluator without verdicts: K responses a prompt, scored as a set.

As under a rubric, what is unscored is left out (None), and a response cut at `max_tokens` earns 0
unless the recipe says otherwise: see `training.policy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dynamicrubric.evaluators.base import Evaluator
from dynamicrubric.evaluators.judging import ResponseSet, text_hash
from dynamicrubric.evaluators.limits import ScoreLimits, check_scores
from dynamicrubric.training.policy import SetRollout, SetsScored
from dynamicrubric.training.processes import gathered


@dataclass(frozen=True, kw_only=True)
class ScoredRollout(SetRollout):
    """Scores each set with an evaluator.

    Attributes:
        evaluator: scores each set.
        limits: on what it leaves unscored, for each step.
    """

    evaluator: Evaluator
    limits: ScoreLimits

    def score_sets(
        self, step: int, sets: Sequence[ResponseSet], seeds: Sequence[int]
    ) -> SetsScored:
        """Ask the evaluator; in the lineage nobody gave a verdict."""
        found = self.evaluator.score(sets, seeds)
        metrics = check_scores(f"step {step}", gathered(found), self.limits)
        lineage: list[dict[str, Any]] = [
            {
                "rubric_id": None if one.rubric_text is None else text_hash(one.rubric_text),
                "rubric": one.rubric_text,
                "verdicts": [],
            }
            for one in found
            for _ in one.scores
        ]
        return SetsScored([score for one in found for score in one.scores], metrics, lineage)
