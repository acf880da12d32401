"""The policy's rollout under an evaluator without verdicts: K responses a prompt, scored as a set.

As under a rubric, what is unscored is left out (None), and a response cut at `max_tokens` earns 0
unless the recipe says otherwise: see `training.policy`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynamicrubric.config import Sampling, Truncated
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.evaluators.base import Evaluator, ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet, text_hash
from dynamicrubric.evaluators.limits import ScoreLimits, check_scores
from dynamicrubric.seeds import derive_seed
from dynamicrubric.training.policy import policy_requests, response_sets, reward_of
from dynamicrubric.training.processes import gathered
from dynamicrubric.training.rollout import Rollout, RolloutBatch, RowGroup, sample_rows


@dataclass(frozen=True)
class ScoredRollout(Rollout):
    """Samples responses and rewards each with its evaluator's score.

    Attributes:
        prompts: prompt text by id.
        evaluator: scores each set.
        limits: on what it leaves unscored, for each step.
        sampling: how responses are sampled.
        seed_name: words that name this training's draws (run seed, round, step name).
        cell_hash: the cell's training hash, for lineage.
        truncated: what a response that was cut earns.
    """

    prompts: Mapping[str, str]
    evaluator: Evaluator
    limits: ScoreLimits
    sampling: Sampling
    seed_name: tuple[str | int, ...]
    cell_hash: str
    truncated: Truncated = "zero"

    def __call__(
        self, groups: Sequence[RowGroup], engine: TransformersEngine, step: int
    ) -> RolloutBatch:
        """Sample each prompt's group and score it as one response set."""
        requests = policy_requests(groups, engine, self.prompts, (*self.seed_name, step))
        responses = sample_rows(engine, requests, self.sampling, groups)
        sets = response_sets(groups, responses, self.prompts)
        seeds = [derive_seed(*self.seed_name, step, s.prompt_id, "rubric") for s in sets]
        scored = self.evaluator.score(sets, seeds)
        scores = [score for one in scored for score in one.scores]
        rewards = [
            reward_of(score, response.finish_reason, self.truncated)
            for score, response in zip(scores, responses, strict=True)
        ]
        return RolloutBatch(
            prompt_ids=[list(request.prompt_ids) for request in requests],
            completion_ids=[list(response.token_ids) for response in responses],
            rewards={"score": rewards},
            metrics=check_scores(f"step {step}", gathered(scored), self.limits),
            lineage=self._lineage(step, sets, scored, rewards),
        )

    def _lineage(
        self,
        step: int,
        sets: Sequence[ResponseSet],
        scored: Sequence[ScoredSet],
        rewards: Sequence[float | None],
    ) -> list[dict[str, Any]]:
        """Return rows with the columns of the policy's other rollouts; nobody gave a verdict."""
        rows: list[dict[str, Any]] = []
        for responses, one in zip(sets, scored, strict=True):
            rubric = one.rubric_text
            for index, text in enumerate(responses.responses):
                rows.append(
                    {
                        "cell_hash": self.cell_hash,
                        "step": step,
                        "prompt_id": responses.prompt_id,
                        "sample_index": index,
                        "text": text,
                        "text_hash": text_hash(text),
                        "rubric_id": None if rubric is None else text_hash(rubric),
                        "rubric": rubric,
                        "verdicts": [],
                        "score": one.scores[index].value,
                        "score_reason": one.scores[index].reason,
                        "reward": rewards[len(rows)],
                    }
                )
        return rows
