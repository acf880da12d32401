"""The policy's rollout under an oracle: K responses a prompt, rewarded with their true quality.

No rubric, no verifier: the ceiling of what an evaluator could teach. As under a rubric, a response
cut at `max_tokens` earns the lowest reward there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import Generation
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.evaluation import NO_RUBRIC
from dynamicrubric.evaluators.judging import text_hash
from dynamicrubric.training.policy import policy_requests
from dynamicrubric.training.rollout import Rollout, RolloutBatch, RowGroup, sample_rows


@dataclass(frozen=True)
class OracleRollout(Rollout):
    """Samples responses and rewards each with its true quality.

    Attributes:
        prompts: prompt text by id.
        quality: true quality of (prompt id, text).
        lowest: the least there is, the reward of a cut response.
        sampling: how responses are sampled.
        seed_name: words that name this training's draws (run seed, round, step name).
        cell_hash: the cell's training hash, for lineage.
    """

    prompts: Mapping[str, str]
    quality: Callable[[str, str], float]
    lowest: float
    sampling: Sampling
    seed_name: tuple[str | int, ...]
    cell_hash: str

    def __call__(
        self, groups: Sequence[RowGroup], engine: TransformersEngine, step: int
    ) -> RolloutBatch:
        """Sample each prompt's group and reward it."""
        requests = policy_requests(groups, engine, self.prompts, (*self.seed_name, step))
        responses = sample_rows(engine, requests, self.sampling, groups)
        places = [(key, sample) for key, size in groups for sample in range(size)]
        rewards = [
            self._reward(key, response)
            for (key, _), response in zip(places, responses, strict=True)
        ]
        return RolloutBatch(
            prompt_ids=[list(request.prompt_ids) for request in requests],
            completion_ids=[list(response.token_ids) for response in responses],
            rewards={"true_quality": list(rewards)},
            metrics={},
            lineage=[
                self._row(step, place, response, reward)
                for place, response, reward in zip(places, responses, rewards, strict=True)
            ],
        )

    def _reward(self, prompt_id: str, response: Generation) -> float | None:
        if response.failure is not None:
            return None
        finished = response.finish_reason == "stop"
        return self.quality(prompt_id, response.text) if finished else self.lowest

    def _row(
        self, step: int, place: tuple[str, int], response: Generation, reward: float | None
    ) -> dict[str, Any]:
        """Return a row with the columns of the policy's rollouts; there is no rubric to name."""
        prompt_id, sample = place
        return {
            "cell_hash": self.cell_hash,
            "step": step,
            "prompt_id": prompt_id,
            "sample_index": sample,
            "text": response.text,
            "text_hash": text_hash(response.text),
            "rubric_id": None,
            "rubric": None,
            "verdicts": [],
            "score": None,
            "score_reason": NO_RUBRIC,
            "reward": reward,
        }
