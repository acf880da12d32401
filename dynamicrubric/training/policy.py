"""The policy's rollout: K responses a prompt, scored online by the current generator's rubric.

One rubric serves the K responses of a set. An invalid rubric, or an unscored verdict, leaves its
responses out (None), and so does an engine that gave no response: nothing unscored becomes a
reward.

Departure from the paper, which does not say: a response cut at `max_tokens` is unfinished and earns
the lowest score, 0, whatever its text meets. Rubrics have positive weights only, so no rubric can
speak against length, and without this cost a policy learns never to stop. A recipe may give a cut
response its score instead (`truncated: scored`), for a model that rarely ends within `max_tokens`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dynamicrubric.config import Sampling, Truncated
from dynamicrubric.engines.base import FinishReason, GenerateRequest, Generation
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.evaluators.judging import JudgedSet, Judging, ResponseSet, text_hash
from dynamicrubric.evaluators.writers import RubricWriter
from dynamicrubric.seeds import derive_seed
from dynamicrubric.training.processes import gathered
from dynamicrubric.training.rollout import Rollout, RolloutBatch, RowGroup, sample_rows
from dynamicrubric.types import Rubric, Score


class SetsScored(NamedTuple):
    """What an evaluator said of a step's response sets.

    Attributes:
        scores: one for each response, set by set.
        metrics: of the step.
        lineage: for each response its rubric, the rubric's id and the verdicts.
    """

    scores: Sequence[Score]
    metrics: dict[str, float]
    lineage: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class SetRollout(Rollout):
    """Samples responses and rewards each with its score in its response set.

    Attributes:
        prompts: prompt text by id.
        sampling: how responses are sampled.
        seed_name: words that name this training's draws (run seed, round, step name).
        cell_hash: the cell's training hash, for lineage.
        truncated: what a response that was cut earns.
    """

    prompts: Mapping[str, str]
    sampling: Sampling
    seed_name: tuple[str | int, ...]
    cell_hash: str
    truncated: Truncated = "zero"

    @abstractmethod
    def score_sets(
        self, step: int, sets: Sequence[ResponseSet], seeds: Sequence[int]
    ) -> SetsScored:
        """Score a step's sets, and hold it to the evaluator's limits."""

    def __call__(
        self, groups: Sequence[RowGroup], engine: TransformersEngine, step: int
    ) -> RolloutBatch:
        """Sample each prompt's group and score it as one response set."""
        requests = policy_requests(groups, engine, self.prompts, (*self.seed_name, step))
        responses = sample_rows(engine, requests, self.sampling, groups)
        sets = response_sets(groups, responses, self.prompts)
        seeds = [derive_seed(*self.seed_name, step, s.prompt_id, "rubric") for s in sets]
        scored = self.score_sets(step, sets, seeds)
        rewards = [
            reward_of(score, response.finish_reason, self.truncated)
            for score, response in zip(scored.scores, responses, strict=True)
        ]
        return RolloutBatch(
            prompt_ids=[list(request.prompt_ids) for request in requests],
            completion_ids=[list(response.token_ids) for response in responses],
            rewards={"score": rewards},
            metrics=scored.metrics,
            lineage=self._lineage(step, sets, scored, rewards),
        )

    def _lineage(
        self,
        step: int,
        sets: Sequence[ResponseSet],
        scored: SetsScored,
        rewards: Sequence[float | None],
    ) -> list[dict[str, Any]]:
        sampled = [
            (one.prompt_id, index, text) for one in sets for index, text in enumerate(one.responses)
        ]
        return [
            {
                "cell_hash": self.cell_hash,
                "step": step,
                "prompt_id": prompt_id,
                "sample_index": index,
                "text": text,
                "text_hash": text_hash(text),
                **said,
                "score": score.value,
                "score_reason": score.reason,
                "reward": reward,
            }
            for (prompt_id, index, text), said, score, reward in zip(
                sampled, scored.lineage, scored.scores, rewards, strict=True
            )
        ]


@dataclass(frozen=True, kw_only=True)
class PolicyRollout(SetRollout):
    """Scores each set with one rubric.

    Attributes:
        writer: writes the rubric of each set.
        judging: how rubrics are read and applied; its limits hold for each step.
    """

    writer: RubricWriter
    judging: Judging

    def score_sets(
        self, step: int, sets: Sequence[ResponseSet], seeds: Sequence[int]
    ) -> SetsScored:
        """Write a rubric for each set and judge its responses by it."""
        texts = self.writer.write(sets, seeds)
        judged = self.judging.judge_sets(texts, sets, seeds)
        everybodys = gathered(judged)  # limits hold for a step, whoever rolls it out
        metrics = self.judging.check_rates(f"step {step}", everybodys)
        metrics.update(_response_rates(everybodys))
        lineage = [
            {
                "rubric_id": text_hash(text.text),
                "rubric": text.text,
                "verdicts": [v.reason or v.value for v in verdicts],
            }
            for text, one in zip(texts, judged, strict=True)
            for verdicts in (one.verdicts or [()] * len(one.scores))
        ]
        return SetsScored([score for one in judged for score in one.scores], metrics, lineage)


def reward_of(
    score: Score, finish_reason: FinishReason, truncated: Truncated = "zero"
) -> float | None:
    """Return the policy's reward: the score, which `truncated` may make 0; None if unscored."""
    if score.value is None:
        return None
    return score.value if finish_reason == "stop" or truncated == "scored" else 0.0


def policy_requests(
    groups: Sequence[RowGroup],
    engine: TransformersEngine,
    prompts: Mapping[str, str],
    seed_name: tuple[str | int, ...],
) -> list[GenerateRequest]:
    """Return the requests of a step's responses, each with a seed of its own."""
    return [
        GenerateRequest(
            engine.tokenizer.policy_prompt(prompts[key]), derive_seed(*seed_name, key, sample)
        )
        for key, size in groups
        for sample in range(size)
    ]


def response_sets(
    groups: Sequence[RowGroup],
    responses: Sequence[Generation],
    prompts: Mapping[str, str],
) -> list[ResponseSet]:
    """Return a step's responses as one set a group."""
    sets, start = [], 0
    for key, size in groups:
        sets.append(ResponseSet.of(key, prompts[key], responses[start : start + size]))
        start += size
    return sets


def _response_rates(judged: Sequence[JudgedSet]) -> dict[str, float]:
    scores = [score for one in judged for score in one.scores]
    rates = {"rate/unscored_response": sum(not s.is_scored for s in scores) / len(scores)}
    sizes = [len(one.rubric.items) for one in judged if isinstance(one.rubric, Rubric)]
    if sizes:
        rates["rate/items_per_rubric"] = sum(sizes) / len(sizes)
    return rates
