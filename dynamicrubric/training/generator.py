"""The generator's rollout: rubrics for a response set, rewarded by R_disc, R_anchor and R_gap.

The rubric is written from (x, C); R_disc is measured on C, R_anchor on the anchor list of the same
prompt, R_gap (where a recipe pays it) on either. A static generator reads x alone and never sees a
policy's responses: its C is the anchor list. An invalid rubric earns the worst value that each
reward can take, so it costs the generator; one that the engine never gave earns nothing (None).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import GenerateRequest, Generation
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.evaluators.judging import Job, JudgedSet, Judging, ResponseSet, job_of
from dynamicrubric.honesty.single import single_share
from dynamicrubric.rewards import (
    group_advantages,
    r_anchor,
    r_anchor_of_verdicts,
    r_disc_of_verdicts,
    rank_weights,
)
from dynamicrubric.seeds import derive_seed
from dynamicrubric.training.gap import GapReward
from dynamicrubric.training.processes import gathered
from dynamicrubric.training.rollout import Rollout, RolloutBatch, RowGroup, sample_rows
from dynamicrubric.types import InvalidReason, InvalidRubric

INVALID_R_DISC = 0.0


@dataclass(frozen=True)
class RubricReward:
    """Rewards of one rubric; None where the verifier left them unscored."""

    r_disc: float | None
    r_anchor: float | None
    judged: JudgedSet
    """The response set under this rubric."""
    ranked: JudgedSet
    """The anchor list under this rubric."""
    r_gap: float | None = None
    """None also where the recipe does not pay it."""
    single_share: float | None = None
    """Share of the weight on items that single out one response, which was taken off R_disc; None
    where the recipe takes nothing off."""

    @property
    def invalid_reason(self) -> str | None:
        """Why the rubric is invalid, if it is."""
        rubric = self.judged.rubric
        return str(rubric.reason) if isinstance(rubric, InvalidRubric) else None

    @property
    def num_items(self) -> int:
        """Items of a valid rubric, else 0."""
        rubric = self.judged.rubric
        return 0 if isinstance(rubric, InvalidRubric) else len(rubric.items)


@dataclass(frozen=True)
class GeneratorRollout(Rollout):
    """Samples and rewards rubrics.

    Attributes:
        sets: response set by row key.
        anchors: ranked anchor texts by prompt id.
        judging: how rubrics are read and applied; its limits hold for each step, on responses and
            anchors together.
        sees_responses: False for a static evaluator.
        sampling: how rubrics are sampled.
        seed_name: words that name this training's draws (run seed, round, step name).
        gap: computes R_gap; None where it is not paid.
        single_penalty: taken off R_disc for items that single out one response.
    """

    sets: Mapping[str, ResponseSet]
    anchors: Mapping[str, Sequence[str]]
    judging: Judging
    sees_responses: bool
    sampling: Sampling
    seed_name: tuple[str | int, ...]
    gap: GapReward | None = None
    single_penalty: float = 0.0

    def __call__(
        self, groups: Sequence[RowGroup], engine: TransformersEngine, step: int
    ) -> RolloutBatch:
        """Write one group of rubrics for each response set and reward them."""
        requests = [
            GenerateRequest(
                self._prompt(engine, key), derive_seed(*self.seed_name, step, key, sample)
            )
            for key, size in groups
            for sample in range(size)
        ]
        generations = sample_rows(engine, requests, self.sampling, groups)
        keys = [key for key, size in groups for _ in range(size)]
        rewards = self._rewards(generations, keys, step)
        everybodys = gathered(rewards)  # limits hold for a step, whoever rolls it out
        metrics = self.judging.check_rates(
            f"step {step}",
            [reward.judged for reward in everybodys],
            [reward.ranked for reward in everybodys],
        )
        metrics.update(_reward_rates(everybodys))
        return RolloutBatch(
            prompt_ids=[list(request.prompt_ids) for request in requests],
            completion_ids=[list(generation.token_ids) for generation in generations],
            rewards={name: [getattr(one, name) for one in rewards] for name in self._paid},
            metrics=metrics,
            lineage=self._lineage(groups, step, keys, generations, rewards),
        )

    def _prompt(self, engine: TransformersEngine, key: str) -> list[int]:
        rows = self.sets[key]
        responses = rows.shown if self.sees_responses else ()
        return engine.tokenizer.generator_prompt(rows.prompt, responses)

    @property
    def _paid(self) -> tuple[str, ...]:
        return ("r_disc", "r_anchor", *(["r_gap"] if self.gap else []))

    def _rewards(
        self, generations: Sequence[Generation], keys: Sequence[str], step: int
    ) -> list[RubricReward]:
        """Reward rubric texts; the verdicts on response sets and anchor lists are asked at once."""
        jobs: list[Job] = []
        for generation, key in zip(generations, keys, strict=True):
            rows, rubric = self.sets[key], self.judging.read(generation)
            seed = derive_seed(*self.seed_name, step, rows.prompt_id, "judge")
            anchors = self.anchors[rows.prompt_id]
            jobs.append(job_of(rubric, rows, seed))
            jobs.append(Job(rubric, anchors, derive_seed(seed, "anchors"), rows.prompt))
        judged = self.judging.judge(jobs)
        pairs = zip(keys, judged[::2], judged[1::2], strict=True)
        return [self._reward(key, one, ranked) for key, one, ranked in pairs]

    def _reward(self, key: str, judged: JudgedSet, ranked: JudgedSet) -> RubricReward:
        reward = reward_of(judged, ranked)
        if self.gap:
            reward = replace(reward, r_gap=self.gap(key, judged, ranked))
        if not self.single_penalty or isinstance(judged.rubric, InvalidRubric):
            return reward
        share = single_share(judged, self.sets[key])
        # Never below what an invalid rubric earns: nonsense would be the better answer.
        disc = reward.r_disc
        paid = None if disc is None else max(INVALID_R_DISC, disc - self.single_penalty * share)
        return replace(reward, r_disc=paid, single_share=share)

    def _lineage(
        self,
        groups: Sequence[RowGroup],
        step: int,
        keys: Sequence[str],
        generations: Sequence[Generation],
        rewards: Sequence[RubricReward],
    ) -> list[dict[str, Any]]:
        """Return a row a rubric; columns of what the recipe does not pay are not there."""
        advantages: dict[str, list[float]] = {name: [] for name in self._paid}
        start = 0
        for _, size in groups:
            rows = rewards[start : start + size]
            for name in self._paid:
                advantages[name] += group_advantages([getattr(row, name) for row in rows])
            start += size
        return [
            {
                "step": step,
                "row": key,
                "prompt_id": self.sets[key].prompt_id,
                "text": generation.text,
                "finish_reason": generation.finish_reason,
                "num_tokens": len(generation.token_ids),
                "invalid_reason": reward.invalid_reason,
                "num_items": reward.num_items,
                **{name: getattr(reward, name) for name in self._paid},
                **({"single_share": reward.single_share} if self.single_penalty else {}),
                **{f"advantage_{name[2:]}": own[place] for name, own in advantages.items()},
            }
            for place, (key, generation, reward) in enumerate(
                zip(keys, generations, rewards, strict=True)
            )
        ]


def reward_of(judged: JudgedSet, ranked: JudgedSet) -> RubricReward:
    """Return R_disc and R_anchor of a rubric from its verdicts on response set and anchor list."""
    rubric = judged.rubric
    if isinstance(rubric, InvalidRubric):
        if rubric.reason is InvalidReason.FAILED:
            return RubricReward(None, None, judged, ranked)
        return RubricReward(INVALID_R_DISC, worst_r_anchor(len(ranked.scores)), judged, ranked)
    disc = r_disc_of_verdicts(rubric.weights, judged.verdicts)
    anchor = r_anchor_of_verdicts(rubric.weights, ranked.verdicts)
    return RubricReward(disc.value, anchor, judged, ranked)


def worst_r_anchor(num_anchors: int) -> float:
    """Return a lower bound of R_anchor: every pair of the list at the worst gap, S_i - S_j = -1."""
    worst_pair = r_anchor([0.0, 1.0])
    assert worst_pair is not None
    return worst_pair * float(rank_weights(num_anchors).sum())


def _reward_rates(rewards: Sequence[RubricReward]) -> dict[str, float]:
    """Return the items of a valid rubric, and the share of valid ones whose R_anchor is a bound.

    Each unscored verdict on an anchor lowers R_anchor: a verifier that fails often pays for
    criteria that it can judge, so this share is logged.
    """
    valid = [reward for reward in rewards if reward.invalid_reason is None]
    if not valid:
        return {}
    single = [r.single_share for r in valid if r.single_share is not None]
    return {
        "rate/items_per_rubric": sum(r.num_items for r in valid) / len(valid),
        "rate/unscored_anchor": sum(bool(r.ranked.unscored_reasons) for r in valid) / len(valid),
        **({"rate/single": sum(single) / len(single)} if single else {}),
    }
