"""A rollout that notes what the parts of each step take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import GenerateRequest, Generation, PromptTokenizer
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.training.rollout import Rollout, RolloutBatch, RowGroup


class Clock:
    """Wall time and memory since the last look, when the GPU has done what it was told."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start anew."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        self._started = time.perf_counter()

    def read(self) -> tuple[float, int | None]:
        """Return seconds and most bytes, and start anew."""
        memory = None
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            memory = torch.cuda.max_memory_allocated()
        seconds = time.perf_counter() - self._started
        self.restart()
        return seconds, memory


@dataclass
class TimedEngine:
    """An engine that says what sampling took."""

    engine: TransformersEngine
    clock: Clock
    taken: list[tuple[float, int | None]] = field(default_factory=list)

    @property
    def tokenizer(self) -> PromptTokenizer:
        """The engine's."""
        return self.engine.tokenizer

    @property
    def context(self) -> int | None:
        """The engine's."""
        return self.engine.context

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling) -> list[Generation]:
        """Sample, and note time and memory."""
        self.clock.restart()
        found = self.engine.generate(requests, sampling)
        self.taken.append(self.clock.read())
        eos = self.engine.tokenizer.eos_id
        return [
            replace(one, token_ids=(*one.token_ids[:-1], eos), finish_reason="stop")
            for one in found
        ]


@dataclass
class Timed(Rollout):
    """A rollout that notes what its parts took: training is what lies between two rollouts.

    The reward it hands on is a completion's place in its group: a model with random weights earns
    equal ones, which would train nothing.
    """

    inner: Rollout
    clock: Clock = field(default_factory=Clock)
    sampling: list[tuple[float, int | None]] = field(default_factory=list)
    judging: list[tuple[float, int | None]] = field(default_factory=list)
    training: list[tuple[float, int | None]] = field(default_factory=list)
    batches: list[RolloutBatch] = field(default_factory=list)

    def __call__(
        self, groups: Sequence[RowGroup], engine: TransformersEngine, step: int
    ) -> RolloutBatch:
        """Roll out."""
        if step > 1:
            self.training.append(self.clock.read())
        timed = TimedEngine(engine, self.clock)
        batch = self.inner(groups, cast("TransformersEngine", timed), step)
        self.sampling += timed.taken
        self.judging.append(self.clock.read())
        self.batches.append(batch)
        places = [float(place) for group in groups for place in range(group.size)]
        return replace(batch, rewards=dict.fromkeys(batch.rewards, places))
