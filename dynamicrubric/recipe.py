"""The recipe: what an arm trains and how. An arm is a diff of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from dynamicrubric.enginesettings import (
    IN_PROCESS,
    IN_PROCESS_VERIFIER,
    GeneratorEngine,
    OpenAI,
    PolicyEngine,
    VerifierEngine,
    Vllm,
)
from dynamicrubric.evaluatorkinds import (
    KEEPS_RUBRICS,
    SCORED,
    WITH_REWARD_MODEL,
    RewardModelConfig,
)
from dynamicrubric.objective import ObjectiveConfig
from dynamicrubric.settings import Grown, LearningRate, Listed, Rate, Section, Steps
from dynamicrubric.verdicts import LANGUAGES


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


GeneratorUpdate = Literal["none", "once", "stale", "fresh", "upfront", "reverted"]


class GeneratorConfig(Grown, GrpoConfig):
    """Training of the generator G."""

    later: ClassVar = frozenset({"engine", "orders", "constrained"})

    update: GeneratorUpdate
    """When G is trained: `none` (never), `once` (round 1), `stale` (each round on P_0's responses),
    `fresh` (each round on the current policy's), `upfront` (all rounds' steps in round 1),
    `reverted` (round 1; from round 2 on the untrained G_0 writes the rubrics again)."""
    first_steps: Steps
    """Optimiser steps in round 1; `steps` is for the rounds after it. The first round has to teach
    which criteria are good at all, the later ones only to follow the policy."""
    objective: ObjectiveConfig
    group_size: Annotated[int, Field(ge=2, le=256)]
    """Rubrics a response set gets in one step."""
    batch_size: Annotated[int, Field(ge=2)]
    """Rubrics in one optimiser step: prompts_per_step x group_size."""
    engine: GeneratorEngine = IN_PROCESS
    """What writes the rubrics that score responses, in the policy's training and in measurement."""
    orders: Annotated[int, Field(ge=1, le=16)] = 1
    """In how many orders it is shown a response set whose responses it scores; the rubrics of
    several are averaged into one. Its own training shows each set as it was sampled."""
    constrained: bool = False
    """Whether these rubrics are kept to the form of one, token by token. They come from another
    distribution than the generator's own then, so its own training always samples freely."""

    @model_validator(mode="after")
    def _engine_suits_the_update(self) -> Self:
        if isinstance(self.engine, OpenAI) and self.constrained:
            raise ValueError(
                "constrained is true with engine.kind 'openai', whose endpoints keep nothing to a "
                "grammar that can be relied on: it can only be false"
            )
        if isinstance(self.engine, OpenAI) and self.update != "none":
            raise ValueError(
                f"engine.kind is 'openai' with update {self.update!r}, which trains the generator; "
                "an endpoint's model is trained by nobody here: update can only be 'none'"
            )
        _check_room(self, self.engine)
        return self


def _check_room(section: Sampling, engine: GeneratorEngine) -> None:
    """Refuse a context that completions fill before there is a prompt in it."""
    if isinstance(engine, Vllm) and engine.max_model_len <= section.max_tokens:
        raise ValueError(
            f"engine.max_model_len is {engine.max_model_len} with max_tokens {section.max_tokens}, "
            "which leaves no room for a prompt: it has to be more"
        )


Truncated = Literal["zero", "scored"]


class PolicyConfig(Grown, GrpoConfig):
    """Training of the policy P."""

    later: ClassVar = frozenset({"truncated", "engine"})

    batch_size: Annotated[int, Field(ge=2)]
    """Responses in one optimiser step: prompts_per_step x responses_per_set."""
    truncated: Truncated = "zero"
    """What a response that is cut at max_tokens earns: `zero`, or what its score says (`scored`),
    where max_tokens is far below what a model would write."""
    engine: PolicyEngine = IN_PROCESS
    """What samples the responses that generators train on and that measurement is made on."""

    @model_validator(mode="after")
    def _engine_has_room(self) -> Self:
        _check_room(self, self.engine)
        return self


VerifierKind = Literal["programmatic", "language_model"]


class VerifierConfig(Grown):
    """The frozen verifier."""

    later: ClassVar = frozenset({"kind", "engine", "coverage_floor", "undecided_band", "languages"})
    error_rate: Rate
    """Share of verdicts that are flipped; of a programmatic verifier alone, like the next."""
    failure_rate: Rate
    """Share of verdicts that come back unscored."""
    max_unscored_rate: Rate
    """Share of unscored verdicts, in a training step or an evaluation, above which it stops."""
    kind: VerifierKind = "programmatic"
    """`programmatic`: a program that reads the criterion; one that it cannot read makes a rubric
    invalid. `language_model`: a language model, asked yes or no."""
    engine: VerifierEngine = IN_PROCESS_VERIFIER
    """What serves that model: the backbone's base, unless it is an endpoint's own."""
    coverage_floor: Rate = 0.5
    """Least probability on yes and no together for a verdict of a language model."""
    undecided_band: Annotated[float, Field(ge=0.0, lt=0.5)] | None = None
    """Half-width of the band around P(yes) = 1/2 that is no verdict; None measures it: what the
    same question varies by when it is asked in another batch."""
    languages: Annotated[tuple[str, ...], Listed, Field(min_length=1)] = ("en",)
    """In which a language model may say yes or no."""

    @model_validator(mode="after")
    def _keys_suit_the_kind(self) -> Self:
        if self.kind == "language_model":
            for name in ("error_rate", "failure_rate"):
                if getattr(self, name):
                    raise ValueError(
                        f"{name} is {getattr(self, name)} with kind 'language_model', whose errors "
                        "are its own: it can only be 0"
                    )
            unknown = [code for code in self.languages if code not in LANGUAGES]
            if unknown:
                raise ValueError(
                    f"languages has {', '.join(map(repr, unknown))}; it can have "
                    f"{', '.join(sorted(LANGUAGES))}"
                )
            return self
        for name in sorted(self.later - {"kind"}):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r} with kind 'programmatic', which reads no "
                    "probabilities: leave it out"
                )
        return self


AnchorSource = Literal["prepared", "strong", "weak", "elsewhere"]
EvaluatorKind = Literal[
    "dynamic",
    "static",
    "oracle",
    "rule_based",
    "static_implicit",
    "scalar",
    "scalar_set",
    "geval",
    "flask",
    "pairwise",
    "length",
    "random",
]
RubricWeights = Literal["written", "equal"]
UPDATES: Final[dict[EvaluatorKind, tuple[GeneratorUpdate, ...]]] = {
    "dynamic": ("none", "once", "stale", "fresh", "reverted"),
    "static": ("none", "upfront"),
    "oracle": ("none",),
    "rule_based": ("none",),
    "static_implicit": ("none", "upfront"),
    "scalar": ("none",),
    "scalar_set": ("none",),
    "geval": ("none",),
    "flask": ("none",),
    "pairwise": ("none",),
    "length": ("none",),
    "random": ("none",),
}
"""The generator updates that suit each evaluator."""
_REASONS: Final[dict[str, str]] = {
    "dynamic": "its generator reads response sets, and 'upfront' trains on the anchors alone",
    "static": "it keeps its rubrics: 'none' is zero-shot, 'upfront' trains before they are written",
    "static_implicit": "as for 'static'",
}
_OF_ANCHORS: Final[Mapping[str, object]] = {
    "anchor_swap_rate": 0,
    "anchor_shuffle_rate": 0,
    "num_anchors": None,
    "anchor_source": "prepared",
}
"""Keys that say how a training reads the anchors, as they are where nothing is changed."""
_OF_REWARD_MODELS: Final = frozenset({"anchor_swap_rate"})
"""Those of them that the training of a reward model knows too."""


class RecipeConfig(Grown):
    """What an arm trains and how; an arm is a diff of it."""

    later: ClassVar = frozenset(
        {"reward_model", "anchor_shuffle_rate", "num_anchors", "anchor_source"}
    )

    evaluator: EvaluatorKind
    """`dynamic`: the generator reads the prompt and the response set, for each set anew.
    `static`: it reads the prompt alone; its rubric is written once a prompt and kept.
    `rule_based`: one rubric written by hand for every prompt. `oracle`: no rubric, the policy's
    reward is the true quality. `scalar`, `scalar_set`: a reward model that reads a response, or
    the set and the response. `length`, `random`: what their names say. Of a language model's
    ratings: `geval`, `flask`, `pairwise`, and `static_implicit`, `static`'s rubrics in one call."""
    weights: RubricWeights
    """`written`: an item counts with the weight the rubric gives it. `equal`: all weights are 1,
    wherever a rubric scores."""
    anchor_swap_rate: Rate
    """Probability of each swap of neighbours, walking down an anchor list, when a training reads it
    (label noise); the prepared anchors have none. At 0.3 about a fifth of the pairs that were
    neighbours end up the wrong way round, since a swap may be followed by the next."""
    anchor_shuffle_rate: Rate = 0.0
    """Probability that an anchor list is in an order drawn at random when a training reads it,
    which puts half of its pairs the wrong way round. (A walk's swaps reach far less: at a swap rate
    of 0.5 one pair in seven is wrong.)"""
    num_anchors: Annotated[int, Field(ge=2, le=64)] | None = None
    """How many anchors of each prepared list a training reads, the best and the worst among them
    and the rest evenly between; None: all."""
    anchor_source: AnchorSource = "prepared"
    """What a training reads as anchors: the `prepared` lists; in the embedded world also lists from
    another distribution: of `strong` or of `weak` writers alone, or those written from `elsewhere`,
    whose place decides other criteria."""
    responses_per_set: Annotated[int, Field(ge=2, le=64)]
    """K, the size of a response set and of the policy's GRPO group."""
    min_rubric_items: Annotated[int, Field(ge=1, le=64)]
    """Fewest items of a valid rubric. With 1, both generator rewards end in rubrics of a single
    item: no mean over items discriminates better than the best of them."""
    max_rubric_items: Annotated[int, Field(ge=1, le=64)]
    generator: GeneratorConfig
    policy: PolicyConfig
    verifier: VerifierConfig
    """What gives verdicts; the language model that rates, too."""
    reward_model: RewardModelConfig | None = None
    """Of `scalar` and `scalar_set`; other evaluators have no use for it."""

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
        allowed = UPDATES[self.evaluator]
        if self.generator.update not in allowed:
            raise ValueError(
                f"generator.update is {self.generator.update!r} with evaluator "
                f"{self.evaluator!r}, where it can be {' or '.join(map(repr, allowed))}: "
                f"{_REASONS.get(self.evaluator, 'it has no generator')}"
            )
        return self

    @model_validator(mode="after")
    def _evaluator_has_its_model(self) -> Self:
        if self.evaluator in WITH_REWARD_MODEL and self.reward_model is None:
            raise ValueError(
                f"there is no reward_model with evaluator {self.evaluator!r}, which scores by one: "
                "{steps, batch_size, learning_rate} to train it, or {checkpoint}"
            )
        return self

    @model_validator(mode="after")
    def _there_is_a_generator_to_constrain(self) -> Self:
        writes = self.evaluator == "dynamic" or self.evaluator in KEEPS_RUBRICS
        if self.generator.constrained and not writes:
            raise ValueError(
                f"generator.constrained is true with evaluator {self.evaluator!r}, which has no "
                "generator: it can only be false"
            )
        return self

    @model_validator(mode="after")
    def _there_are_weights_and_anchors_to_change(self) -> Self:
        if self.evaluator == "oracle" and self.weights == "equal":
            raise ValueError("weights is 'equal' with evaluator 'oracle', which has no rubric")
        if self.evaluator in SCORED - KEEPS_RUBRICS and self.weights == "equal":
            raise ValueError(
                f"weights is 'equal' with evaluator {self.evaluator!r}, which has no rubric"
            )
        if self.generator.update == "none":
            for name, none in _OF_ANCHORS.items():
                if getattr(self, name) == none or (
                    name in _OF_REWARD_MODELS and self._trains_reward_model
                ):
                    continue
                who = (
                    "its reward model reads the prepared lists"
                    if self._trains_reward_model
                    else "no training reads the anchors"
                )
                raise ValueError(
                    f"{name} is {getattr(self, name)!r} with generator.update 'none': {who}, so it "
                    f"can only be {none}"
                )
        return self

    @model_validator(mode="after")
    def _what_is_shown_or_judged_is_a_set(self) -> Self:
        if self.evaluator == "dynamic":
            return self
        if self.generator.orders > 1:
            raise ValueError(
                f"generator.orders is {self.generator.orders} with evaluator {self.evaluator!r}, "
                "which shows its generator no response set: it can only be 1"
            )
        if self.generator.objective.gap_order == "reference":
            raise ValueError(
                f"generator.objective.gap_order is 'reference' with evaluator {self.evaluator!r}, "
                "whose generator sees no policy's responses: it can only be 'anchors'"
            )
        return self

    @property
    def _trains_reward_model(self) -> bool:
        return (
            self.evaluator in WITH_REWARD_MODEL
            and self.reward_model is not None
            and not self.reward_model.checkpoint
        )
