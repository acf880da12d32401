"""A cell: one round of one seed, with everything that decides what it computes.

Settings at their default that older plans did not have are left out of a recipe's document, so that
a new setting changes no identity of what is finished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, ValidationError

from dynamicrubric.config import (
    EvaluatorKind,
    Grown,
    LearningRate,
    ObjectiveConfig,
    Rate,
    RubricWeights,
    Sampling,
    Section,
    Steps,
    Truncated,
    VerifierConfig,
)
from dynamicrubric.enginesettings import IN_PROCESS, GeneratorEngine, PolicyEngine
from dynamicrubric.recipe import AnchorSource

WARM_DIR: Final = "data/warm"
RUNS_DIR: Final = "data/runs"
ResponseSource = Literal["current", "start", "anchors"]
GeneratorSource = Literal["previous", "start"]


class RubricSettings(Grown):
    """How rubrics are written, in training and in measurement."""

    later: ClassVar = frozenset(
        {
            *("weights", "engine", "reward_model", "reward_content"),
            *("judge_texts", "orders", "constrained"),
        }
    )
    evaluator: EvaluatorKind
    min_items: Annotated[int, Field(ge=1)]
    max_items: Annotated[int, Field(ge=1)]
    sampling: Sampling
    weights: RubricWeights = "written"
    engine: GeneratorEngine = IN_PROCESS
    """What writes them, but for the rollouts of the generator's own training."""
    reward_model: str = ""
    """The checkpoint of a reward model that is not trained here."""
    reward_content: str = ""
    """Hash of its files, where it is a folder."""
    judge_texts: str = ""
    """Hash of the texts that a language model that rates, or a reward model, reads around the
    responses."""
    orders: Annotated[int, Field(ge=1)] = 1
    """In how many orders the set is shown, likewise."""
    constrained: bool = False
    """Whether it is kept to the form of a rubric; rollouts of that training never are."""


class GeneratorTraining(Grown):
    """One round's training of the generator."""

    later: ClassVar = frozenset(
        {"anchor_swap_rate", "anchor_shuffle_rate", "num_anchors", "anchor_source"}
    )
    responses: ResponseSource
    """Whose responses the rubrics are written for: the current policy's, the start policy's, or
    (a generator that reads the prompt alone) the anchor list itself."""
    objective: ObjectiveConfig
    steps: Steps
    prompts_per_step: int
    group_size: int
    learning_rate: LearningRate
    kl_beta: float
    max_invalid_rate: Rate
    anchor_swap_rate: Rate = 0.0
    anchor_shuffle_rate: Rate = 0.0
    num_anchors: int | None = None
    anchor_source: AnchorSource = "prepared"


class RewardTraining(Grown):
    """The training of a reward model on the anchors, in round 1."""

    later: ClassVar = frozenset({"anchor_swap_rate"})
    steps: Steps
    batch_size: Annotated[int, Field(ge=1)]
    learning_rate: LearningRate
    anchor_swap_rate: Rate = 0.0


class PolicyTraining(Grown):
    """One round's training of the policy."""

    later: ClassVar = frozenset({"truncated"})

    steps: Steps
    prompts_per_step: int
    learning_rate: LearningRate
    kl_beta: float
    max_invalid_rate: Rate
    truncated: Truncated = "zero"


class EvaluationSettings(Grown):
    """Measurement on held-out prompts."""

    later: ClassVar = frozenset({"stop_on_divergence"})
    sets_per_prompt: int
    max_invalid_rate: Rate
    stop_on_divergence: bool = False


class CellRecipe(Grown):
    """Everything that decides a cell's results, beside the artefacts that it starts from."""

    later: ClassVar = frozenset({"generator_from", "policy_engine", "reward_training"})
    seed: int
    round: int
    responses_per_set: int
    rubrics: RubricSettings
    verifier: VerifierConfig
    generator_from: GeneratorSource = "previous"
    """Which generator the round starts from: that of the round before, or G_0 again."""
    generator_training: GeneratorTraining | None
    policy_training: PolicyTraining | None
    """None in round 0 alone: the untrained policy is measured, nothing is trained."""
    policy_sampling: Sampling
    policy_engine: PolicyEngine = IN_PROCESS
    """What samples responses, but for the rollouts of the policy's own training."""
    reward_training: RewardTraining | None = None
    """In round 1 of an arm whose reward model is trained: its artefact takes the generator's
    place."""
    evaluation: EvaluationSettings
    versions: dict[str, int]


LIMITS: Final = frozenset({"max_invalid_rate", "max_unscored_rate", "stop_on_divergence"})
"""Keys that can stop a step but never change what it computes."""
MEASUREMENT: Final = frozenset({"evaluation", "evaluate_round"})
"""Keys of a recipe that only measurement reads."""


def identity_of(section: Section) -> dict[str, Any]:
    """Return a section as a mapping without the limits, which are no part of any identity."""
    return without(section.model_dump(mode="json"), LIMITS)


def engine_identity(engine: PolicyEngine) -> dict[str, Any]:
    """Return what a step's identity says of its engine: nothing of the one that was there first."""
    return {} if engine == IN_PROCESS else {"engine": identity_of(engine)}


@dataclass(frozen=True)
class Cell:
    """One node of the lattice.

    Attributes:
        key: stable name, the DVC stage's and the folder's.
        id: key plus a short hash of the full recipe and all that comes before it.
        training_hash: hash of what training computes: neither limits nor measurement are in it, so
            that a change of those throws no checkpoint away.
        prev: folder that holds the policy and the generator this cell starts from.
        before: folder of the round before, round 0 included; None in round 0.
        recipe: what the cell computes.
    """

    key: str
    id: str
    training_hash: str
    prev: str
    before: str | None
    recipe: CellRecipe

    @property
    def hash(self) -> str:
        """The id's hash: equal for equal work, whichever arm gave the cell its name."""
        return self.id.rpartition("-")[2]

    @property
    def generator_dir(self) -> str:
        """Folder of the generator that the cell starts from."""
        start = self.recipe.generator_from == "start"
        return f"{WARM_DIR if start else self.prev}/generator"

    @property
    def directory(self) -> str:
        """Folder of the cell's artefacts, relative to the project."""
        return f"{RUNS_DIR}/{self.key}"


def without(document: Mapping[str, Any], keys: Set[str]) -> dict[str, Any]:
    """Copy a nested mapping without some keys, at whatever depth."""
    return {
        key: without(value, keys) if isinstance(value, Mapping) else value
        for key, value in document.items()
        if key not in keys
    }


def digest(document: Mapping[str, Any]) -> str:
    """Return the hash of a document, whatever the order of its keys."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def parse_recipe(entry: Mapping[str, Any]) -> CellRecipe:
    """Read a recipe back from JSON or YAML."""
    try:
        return CellRecipe.model_validate(dict(entry))
    except ValidationError as error:
        raise ValueError(f"not a cell recipe: {error}") from None
