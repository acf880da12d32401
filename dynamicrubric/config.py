"""The one typed config: frozen, unknown keys refused, validated once at the entry.

`params.yaml` is read by `load_config`; nothing else in the project reads settings. Units are in
the names (`_tokens`, `_steps`, `_minutes`, `_rate` for shares in [0, 1]).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from dynamicrubric.errors import UserError
from dynamicrubric.problems import all_problems, one_line, problems_of
from dynamicrubric.worlds.postcards.criteria import criteria_for
from dynamicrubric.worlds.postcards.prompts import all_prompts
from dynamicrubric.yamlio import load_yaml

Rate = Annotated[float, Field(ge=0.0, le=1.0)]
LearningRate = Annotated[float, Field(gt=0.0, lt=1.0)]
Steps = Annotated[int, Field(ge=1, le=1_000_000)]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
RESERVED_SLUGS = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(10)}
)


class Section(BaseModel):
    """A part of the config: immutable, strict about types, closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class WorldConfig(Section):
    """The embedded world, postcards: prompts, anchors and their noise."""

    name: Literal["postcards"]
    seed: Annotated[int, Field(ge=0)]
    """Seed of everything in the world: splits, texts of the warm start, anchors."""
    num_heldout_prompts: Annotated[int, Field(ge=8, le=120)]
    """Combinations that no training step sees; at most half of the world's 240."""
    num_anchors: Annotated[int, Field(ge=2, le=12)]
    """Length n of an anchor list; the paper uses Nectar's 7."""
    anchor_swap_rate: Rate
    """Share of adjacent anchor pairs that are swapped (label noise)."""


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


class SupervisedConfig(Section):
    """One warm start by supervised fine-tuning (TRL's SFTTrainer)."""

    steps: Steps
    batch_size: Annotated[int, Field(ge=1, le=4096)]
    learning_rate: LearningRate


class WarmStartConfig(Section):
    """Warm starts that turn the random backbone into P_0 and G_0."""

    policy: SupervisedConfig
    generator: SupervisedConfig


class ObjectiveConfig(Section):
    """Weights of the generator's rewards, applied to advantages; `anchor` is lambda."""

    disc: Annotated[float, Field(ge=0.0, le=100.0)]
    anchor: Annotated[float, Field(ge=0.0, le=100.0)]

    @model_validator(mode="after")
    def _one_weight_is_positive(self) -> Self:
        if self.disc == 0.0 and self.anchor == 0.0:
            raise ValueError("disc and anchor are both 0: the generator would learn nothing")
        return self


class Sampling(Section):
    """How completions are sampled."""

    temperature: Annotated[float, Field(gt=0.0, le=5.0)]
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)]
    """Tokens less likely than this share of the likeliest one are never sampled; 0 allows all.
    Without a floor, the tail of the vocabulary grows as GRPO pushes sampled tokens down, and long
    trainings end in broken JSON."""
    max_tokens: Annotated[int, Field(ge=1, le=65_536)]
    """Longest completion; a completion cut here is truncated, never read as finished."""


class GrpoConfig(Sampling):
    """What both GRPO trainings share."""

    steps: Steps
    """Optimiser steps in a round."""
    prompts_per_step: Annotated[int, Field(ge=1, le=4096)]
    """Groups in a step, each of another training prompt: at most as many as there are."""
    learning_rate: LearningRate
    kl_beta: Annotated[float, Field(ge=0.0, le=10.0)]
    """Weight of the KL to the reference, the model the round started from."""
    max_invalid_rate: Rate
    """Share of invalid rubrics in a step above which training stops."""

    @property
    def sampling(self) -> Sampling:
        """How the role samples, in training and in measurement."""
        return Sampling(**{name: getattr(self, name) for name in Sampling.model_fields})


GeneratorUpdate = Literal["none", "once", "stale", "fresh", "upfront"]


class GeneratorConfig(GrpoConfig):
    """Training of the generator G."""

    update: GeneratorUpdate
    """When G is trained: `none` (never), `once` (round 1), `stale` (each round on P_0's responses),
    `fresh` (each round on the current policy's), `upfront` (all rounds' steps in round 1)."""
    first_steps: Steps
    """Optimiser steps in round 1; `steps` is for the rounds after it. The first round has to teach
    which criteria are good at all, the later ones only to follow the policy."""
    objective: ObjectiveConfig
    group_size: Annotated[int, Field(ge=2, le=256)]
    """Rubrics a response set gets in one step."""
    batch_size: Annotated[int, Field(ge=2)]
    """Rubrics in one optimiser step: prompts_per_step x group_size."""


class PolicyConfig(GrpoConfig):
    """Training of the policy P."""

    batch_size: Annotated[int, Field(ge=2)]
    """Responses in one optimiser step: prompts_per_step x responses_per_set."""


class VerifierConfig(Section):
    """The frozen verifier of the embedded world."""

    error_rate: Rate
    """Share of verdicts that are flipped."""
    failure_rate: Rate
    """Share of verdicts that come back unscored."""
    max_unscored_rate: Rate
    """Share of unscored verdicts, in a training step or an evaluation, above which it stops."""


EvaluatorKind = Literal["dynamic", "static"]


class RecipeConfig(Section):
    """What an arm trains and how; an arm is a diff of it."""

    evaluator: EvaluatorKind
    """`dynamic`: the generator reads the prompt and the response set, for each set anew.
    `static`: it reads the prompt alone; its rubric is written once a prompt and kept."""
    responses_per_set: Annotated[int, Field(ge=2, le=64)]
    """K, the size of a response set and of the policy's GRPO group."""
    min_rubric_items: Annotated[int, Field(ge=1, le=64)]
    """Fewest items of a valid rubric. With 1, both generator rewards end in rubrics of a single
    item: no mean over items discriminates better than the best of them."""
    max_rubric_items: Annotated[int, Field(ge=1, le=64)]
    generator: GeneratorConfig
    policy: PolicyConfig
    verifier: VerifierConfig

    @model_validator(mode="after")
    def _item_limits_are_in_order(self) -> Self:
        if self.min_rubric_items > self.max_rubric_items:
            raise ValueError(
                f"min_rubric_items {self.min_rubric_items} is above max_rubric_items "
                f"{self.max_rubric_items}"
            )
        return self

    @model_validator(mode="after")
    def _groups_divide_batches(self) -> Self:
        for role, group, batch, prompts in (
            (
                "generator",
                self.generator.group_size,
                self.generator.batch_size,
                self.generator.prompts_per_step,
            ),
            (
                "policy",
                self.responses_per_set,
                self.policy.batch_size,
                self.policy.prompts_per_step,
            ),
        ):
            if batch != prompts * group:
                name = "group_size" if role == "generator" else "responses_per_set"
                raise ValueError(
                    f"{role}.batch_size is {batch}; with {role}.prompts_per_step {prompts} and "
                    f"{name} {group} it has to be {prompts * group}, so that every group is whole"
                )
        return self

    @model_validator(mode="after")
    def _verifier_can_stay_within_its_limit(self) -> Self:
        failures, limit = self.verifier.failure_rate, self.verifier.max_unscored_rate
        if failures > limit:
            raise ValueError(
                f"verifier.failure_rate {failures} is above verifier.max_unscored_rate {limit}: "
                "every training would stop at its first step"
            )
        return self

    @model_validator(mode="after")
    def _update_suits_evaluator(self) -> Self:
        if self.evaluator == "static" and self.generator.update not in ("none", "upfront"):
            raise ValueError(
                f"generator.update is {self.generator.update!r}; a static evaluator keeps its "
                "rubrics, so only 'none' (zero-shot) and 'upfront' are possible"
            )
        if self.evaluator == "dynamic" and self.generator.update == "upfront":
            raise ValueError("generator.update 'upfront' is for evaluator 'static'")
        return self


class EvaluationConfig(Section):
    """Measurement on held-out prompts after each round."""

    sets_per_prompt: Annotated[int, Field(ge=1, le=64)]
    """Response sets sampled for each held-out prompt."""
    max_invalid_rate: Rate
    """Share of invalid rubrics above which the evaluation fails."""


class ArmConfig(BaseModel):
    """One entry of `study.arms`: a question and the keys that differ from the recipe."""

    model_config = ConfigDict(frozen=True, extra="allow")

    question: Annotated[str, Field(min_length=8, max_length=300)]
    """The question that this arm answers."""

    @property
    def diff(self) -> dict[str, Any]:
        """The keys that differ from the recipe, nested as in params.yaml."""
        return dict(self.__pydantic_extra__ or {})


class StudyConfig(Section):
    """Which arms, for how many rounds, with which seeds."""

    rounds: Annotated[int, Field(ge=1, le=100)]
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, le=2**31)], ...], Field(min_length=1)]
    arms: Annotated[dict[Slug, ArmConfig], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _seeds_to_tuple(cls, data: Any) -> Any:  # noqa: ANN401 - pydantic's signature
        if isinstance(data, dict) and isinstance(data.get("seeds"), list):
            return {**data, "seeds": tuple(data["seeds"])}
        return data

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        repeated = sorted({seed for seed in self.seeds if self.seeds.count(seed) > 1})
        if repeated:
            raise ValueError(f"seeds lists {repeated[0]} more than once; each seed is one run")
        for name in self.arms:
            if name in RESERVED_SLUGS:
                raise ValueError(f"arm name {name!r} is reserved by some file systems")
        return self


class RuntimeConfig(Section):
    """Where and how fast: never part of any identity."""

    slots: Annotated[int, Field(ge=1, le=64)]
    """GPUs, or on a CPU machine the tasks that may run side by side."""
    threads_per_task: Annotated[int, Field(ge=1, le=256)]
    task_deadline_minutes: Annotated[float, Field(gt=0.0, le=100_000.0)]
    """Wall-clock limit of one GPU task, counted from when it holds its slot."""
    checkpoint_every_steps: Steps


class Config(Section):
    """Everything in params.yaml."""

    world: WorldConfig
    backbone: BackboneConfig
    warm_start: WarmStartConfig
    recipe: RecipeConfig
    evaluation: EvaluationConfig
    study: StudyConfig
    runtime: RuntimeConfig

    @model_validator(mode="after")
    def _arms_resolve_and_differ(self) -> Self:
        seen: dict[str, str] = {}
        for name in self.study.arms:
            text = resolve_arm(self, name).model_dump_json()
            if text in seen:
                raise ValueError(
                    f"study.arms.{name} has the same recipe as arm {seen[text]!r}; "
                    "each arm has to differ in at least one key"
                )
            seen[text] = name
        return self

    @model_validator(mode="after")
    def _world_has_items_for_a_rubric(self) -> Self:
        num_criteria = len(criteria_for(all_prompts()[0]))
        for name in self.study.arms:
            most = resolve_arm(self, name).max_rubric_items
            if most > num_criteria:
                raise ValueError(
                    f"study.arms.{name}: max_rubric_items is {most}; a prompt of the "
                    f"{self.world.name} world has {num_criteria} criteria, so at most that many "
                    "distinct items"
                )
        return self

    @model_validator(mode="after")
    def _prompts_are_enough_for_a_step(self) -> Self:
        heldout = self.world.num_heldout_prompts
        training = len(all_prompts()) - heldout
        recipes = {f"study.arms.{name}": resolve_arm(self, name) for name in self.study.arms}
        for place, recipe in {"recipe": self.recipe, **recipes}.items():
            for role, asked in (
                ("generator", recipe.generator.prompts_per_step),
                ("policy", recipe.policy.prompts_per_step),
            ):
                if asked > training:
                    raise ValueError(
                        f"{place}: {role}.prompts_per_step is {asked}; with "
                        f"world.num_heldout_prompts {heldout} it can be at most {training}, the "
                        "number of training prompts, so that no step has one twice"
                    )
        return self


def merge(base: Mapping[str, Any], diff: Mapping[str, Any]) -> dict[str, Any]:
    """Lay a nested diff over a nested mapping; values of the diff win."""
    merged = dict(base)
    for key, value in diff.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def resolve_arm(config: Config, name: str) -> RecipeConfig:
    """Return the full recipe of an arm: the base recipe with the arm's diff laid over it.

    Raises:
        ValueError: the diff has an unknown key or an impossible value; the arm is named.
    """
    merged = merge(config.recipe.model_dump(), config.study.arms[name].diff)
    try:
        return RecipeConfig.model_validate(merged)
    except ValidationError as error:
        found = (one_line(*problem) for problem in problems_of(error, RecipeConfig))
        raise ValueError(f"study.arms.{name}: {'; '.join(found)}") from None


def load_config(path: Path) -> Config:
    """Read and validate a params.yaml without loading any model.

    Raises:
        UserError: names the key, the value and what is allowed.
    """
    document = load_yaml(path)
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        got, expected = all_problems(error, Config)
        raise UserError(
            doing=f"reading {path}",
            got=got,
            expected=expected,
            remedy="change what is named; profiles/ holds complete examples",
        ) from None
