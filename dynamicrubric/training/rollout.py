"""What a role's rollout is given and what it hands to the trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import GenerateRequest, Generation
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.errors import UserError
from dynamicrubric.rewards import combine_advantages
from dynamicrubric.training import processes


class RowGroup(NamedTuple):
    """One row of training data and the completions that a step samples for it.

    Attributes:
        key: the row; the rollout knows what it means.
        size: number of completions.
    """

    key: str
    size: int


@dataclass(frozen=True)
class RolloutBatch:
    """Completions of one step; all lists have one entry a completion.

    Attributes:
        prompt_ids: rendered prompts.
        completion_ids: sampled completions.
        rewards: for each reward's name its values; None leaves a row out.
        metrics: rates of this step.
        lineage: one JSON-able record a completion.
    """

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    rewards: Mapping[str, list[float | None]]
    metrics: Mapping[str, float]
    lineage: list[dict[str, Any]]

    def lineage_with_advantages(
        self, groups: Sequence[RowGroup], weights: Mapping[str, float]
    ) -> list[dict[str, Any]]:
        """Return the lineage with a last column `advantage`: what all rewards say together.

        Each reward is normalised in its group, times its weight (the paper's lambda), and summed.
        With several rewards TRL normalises these sums once more over the batch, which is not in the
        column: it moves and scales all of a step's advantages alike.
        """
        advantages: list[float] = []
        for group in groups:
            rows = slice(len(advantages), len(advantages) + group.size)
            rewards = [self.rewards[name][rows] for name in weights]
            advantages += combine_advantages(rewards, list(weights.values()))
        return [
            {**row, "advantage": advantage}
            for row, advantage in zip(self.lineage, advantages, strict=True)
        ]


def sample_rows(
    engine: TransformersEngine,
    requests: Sequence[GenerateRequest],
    sampling: Sampling,
    groups: Sequence[RowGroup],
) -> list[Generation]:
    """Sample a step's completions, one for each request, in the order of the groups.

    Raises:
        UserError: a row's prompt leaves no room in the model's context: there is nothing to train
            on, and an empty completion would be taken for the model's own.
    """
    keys = [key for key, size in groups for _ in range(size)]
    for key, request in zip(keys, requests, strict=True):
        if engine.context is not None and len(request.prompt_ids) >= engine.context:
            raise UserError(
                doing=f"sampling completions of the row {key!r} to train on",
                got=f"a prompt of {len(request.prompt_ids)} tokens",
                expected=f"fewer than the model's context of {engine.context}",
                remedy="leave the prompt out, sample shorter or fewer responses, or take a model "
                "with a longer context",
            )
    return engine.generate(requests, sampling)


def billed(rollout: Rollout, spent: Callable[[], Mapping[str, float]]) -> Rollout:
    """Return a rollout whose metrics say what a step's calls to paid endpoints came to.

    Args:
        rollout: samples and rewards.
        spent: what was spent since it was last asked.
    """

    def roll_out(groups: Sequence[RowGroup], engine: TransformersEngine, step: int) -> RolloutBatch:
        batch = rollout(groups, engine, step)
        first, *others = processes.gathered([spent()])  # what is logged is of all of them
        costs = {
            name: value + sum(part[name] for part in others)
            for name, value in first.items()
            if all(name in part for part in others)  # else it is not known
        }
        return replace(batch, metrics={**batch.metrics, **costs})

    return roll_out


class Rollout(Protocol):
    """Samples and rewards the completions of one step."""

    def __call__(
        self, groups: Sequence[RowGroup], engine: TransformersEngine, step: int
    ) -> RolloutBatch:
        """Roll out `groups` with the model as it is now."""
        ...
