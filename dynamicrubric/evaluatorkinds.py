"""Evaluators that give scores without verdicts, and the settings of their reward model."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from dynamicrubric.settings import Section

SCORED: Final = frozenset(
    {"static_implicit", "scalar", "scalar_set", "geval", "flask", "pairwise", "length", "random"}
)
"""Evaluators that give scores without verdicts (`evaluators.base.Evaluator`)."""
RATED: Final = frozenset({"static_implicit", "geval", "flask", "pairwise"})
"""Those that ask a language model for something else than yes and no."""
WITH_REWARD_MODEL: Final = frozenset({"scalar", "scalar_set"})
KEEPS_RUBRICS: Final = frozenset({"static", "static_implicit"})
"""Evaluators whose rubrics are written once a prompt, in round 1, and kept."""


class RewardModelConfig(Section):
    """The reward model of the evaluators `scalar` and `scalar_set`: trained, or somebody's."""

    checkpoint: Annotated[str, Field(max_length=500)] = ""
    """A folder, or `hub:owner/name[@revision]`; empty: it is trained in round 1, on all pairs of
    the training prompts' anchor lists. A folder's content is part of a cell's identity;
    of a model of the hub its name alone, so name a revision."""
    steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Optimiser steps of that training."""
    batch_size: Annotated[int, Field(ge=0, le=4096)] = 0
    """Pairs in a step."""
    learning_rate: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0

    @model_validator(mode="after")
    def _is_trained_or_named(self) -> Self:
        trained = {name: getattr(self, name) for name in ("steps", "batch_size", "learning_rate")}
        odd = [name for name, value in trained.items() if bool(value) == bool(self.checkpoint)]
        if odd:
            raise ValueError(
                f"{odd[0]} is {trained[odd[0]]} with checkpoint {self.checkpoint!r}; a checkpoint "
                "is not trained, and without one steps, batch_size and learning_rate are above 0"
            )
        return self
