"""The plan: params.yaml expanded into the lattice of cells, written to cells.yaml.

A cell is one round of one seed: a generator update and a policy update with a recipe. An arm is a
path through the cells; arms with an equal recipe prefix share its cells, each trained once. DVC
runs one stage per cell (`foreach` over cells.yaml) and each stage depends on its own entry alone.

Cell keys (`coevolved-s1-r2`: the first arm on that path, seed, round) are stable, so that metrics
and parameters of two experiments can be compared by name. The cell id is the key plus a short hash
of the full recipe, which changes with any number that the cell's results depend on.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from dynamicrubric.config import (
    Config,
    EvaluatorKind,
    GeneratorConfig,
    LearningRate,
    ObjectiveConfig,
    Rate,
    RecipeConfig,
    Sampling,
    Section,
    Steps,
    VerifierConfig,
    resolve_arm,
)
from dynamicrubric.errors import UserError
from dynamicrubric.grid import grid_structure, planned_grids
from dynamicrubric.versions import STEP_VERSIONS
from dynamicrubric.yamlio import dump_yaml, load_yaml

WARM_DIR = "data/warm"
RUNS_DIR = "data/runs"
ROLES = ("policy", "generator")
HEADER = (
    "# Generated from params.yaml by `dynamicrubric plan`; do not edit.\n"
    "# arms: the path of each arm and seed, round 0 first. cells: one DVC stage each.\n"
    "# grids: of each seed the folders of rounds 0 to 2 that the G x P grid reads.\n"
)
ResponseSource = Literal["current", "start", "anchors"]


class RubricSettings(Section):
    """How rubrics are written, in training and in measurement."""

    evaluator: EvaluatorKind
    min_items: Annotated[int, Field(ge=1)]
    max_items: Annotated[int, Field(ge=1)]
    sampling: Sampling


class GeneratorTraining(Section):
    """One round's training of the generator."""

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


class PolicyTraining(Section):
    """One round's training of the policy."""

    steps: Steps
    prompts_per_step: int
    learning_rate: LearningRate
    kl_beta: float
    max_invalid_rate: Rate


class EvaluationSettings(Section):
    """Measurement on held-out prompts."""

    sets_per_prompt: int
    max_invalid_rate: Rate


class CellRecipe(Section):
    """Everything that decides a cell's results, beside the artefacts that it starts from."""

    seed: int
    round: int
    responses_per_set: int
    rubrics: RubricSettings
    verifier: VerifierConfig
    generator_training: GeneratorTraining | None
    policy_training: PolicyTraining | None
    """None in round 0 alone: the untrained policy is measured, nothing is trained."""
    policy_sampling: Sampling
    evaluation: EvaluationSettings
    versions: dict[str, int]


LIMITS: Final = frozenset({"max_invalid_rate", "max_unscored_rate"})
"""Keys that can stop a step but never change what it computes."""
_MEASUREMENT: Final = frozenset({"evaluation", "evaluate_round"})
"""Keys of a recipe that only measurement reads."""


def identity_of(section: Section) -> dict[str, Any]:
    """Return a section as a mapping without the limits, which are no part of any identity."""
    return _without(section.model_dump(mode="json"), LIMITS)


@dataclass(frozen=True)
class Cell:
    """One node of the lattice.

    Attributes:
        key: stable name, the DVC stage's and the folder's.
        id: key plus a short hash of the full recipe and all that comes before it.
        training_hash: hash of what training computes: neither limits nor measurement are in it, so
            that a change of those throws no checkpoint away.
        prev: folder that holds the policy and the generator this cell starts from.
        recipe: what the cell computes.
    """

    key: str
    id: str
    training_hash: str
    prev: str
    recipe: CellRecipe

    @property
    def hash(self) -> str:
        """The id's hash: equal for equal work, whichever arm gave the cell its name."""
        return self.id.rpartition("-")[2]

    @property
    def directory(self) -> str:
        """Folder of the cell's artefacts, relative to the project."""
        return f"{RUNS_DIR}/{self.key}"


@dataclass(frozen=True)
class Plan:
    """The lattice.

    Attributes:
        starts: round 0 cells by key: P_0 measured by an untrained evaluator.
        cells: training cells by key, every cell after the one it starts from.
        paths: for each arm and seed the cell keys of rounds 0, 1, ..., T.
        shared: identity of the steps that every cell starts from: `prepare`, and `warm_start` by
            role.
    """

    starts: dict[str, Cell]
    cells: dict[str, Cell]
    paths: dict[tuple[str, int], tuple[str, ...]]
    shared: dict[str, Any]

    def cell(self, key: str) -> Cell:
        """Return a cell of any round by key, or raise a UserError that names those there are."""
        found = self.starts.get(key) or self.cells.get(key)
        if found is None:
            raise UserError(
                doing="looking up a cell",
                got=repr(key),
                expected=f"one of {', '.join([*self.starts, *self.cells])}",
                remedy="run `dynamicrubric plan` if params.yaml was changed",
            )
        return found

    def arms_of(self, key: str) -> tuple[str, ...]:
        """Return the names of the arms whose path holds the cell."""
        return tuple(dict.fromkeys(arm for (arm, _), keys in self.paths.items() if key in keys))

    @property
    def num_arm_rounds(self) -> int:
        """Training rounds if no cell were shared: arms x seeds x rounds."""
        return sum(len(keys) - 1 for keys in self.paths.values())


def expand(config: Config) -> Plan:
    """Expand arms x seeds x rounds into cells; equal recipe prefixes are one cell.

    Raises:
        UserError: two different recipes got one id or one key, or two arms do the same.
    """
    _check_arms_differ(config)
    shared = _shared(config)
    base_hash = _digest(shared)
    nodes: dict[str, Cell] = {}
    paths: dict[tuple[str, int], tuple[str, ...]] = {}
    for arm in config.study.arms:
        recipe = resolve_arm(config, arm)
        for seed in config.study.seeds:
            paths[(arm, seed)] = _expand_path(config, recipe, arm, seed, base_hash, nodes)
    cells = list(nodes.values())
    _check_unique(cells)
    return Plan(
        starts={cell.key: cell for cell in cells if cell.recipe.round == 0},
        cells={cell.key: cell for cell in cells if cell.recipe.round > 0},
        paths=paths,
        shared=shared,
    )


def _shared(config: Config) -> dict[str, Any]:
    """Return what the prepared data and the two warm starts are made from."""
    backbone = config.backbone.model_dump(mode="json")
    return {
        "prepare": {
            "world": config.world.model_dump(mode="json"),
            "vocab_size": config.backbone.vocab_size,
            "responses_per_set": config.recipe.responses_per_set,
            "min_rubric_items": config.recipe.min_rubric_items,
            "max_rubric_items": config.recipe.max_rubric_items,
            "version": STEP_VERSIONS["prepare"],
        },
        "warm_start": {
            role: {
                "backbone": backbone,
                "settings": getattr(config.warm_start, role).model_dump(mode="json"),
                "seed": config.world.seed,
                "version": STEP_VERSIONS["warm_start"],
            }
            for role in ROLES
        },
    }


def _expand_path(
    config: Config,
    arm_recipe: RecipeConfig,
    arm: str,
    seed: int,
    base_hash: str,
    nodes: dict[str, Cell],
) -> tuple[str, ...]:
    """Walk one arm and seed from round 0 to T, adding the cells that no earlier arm has."""
    keys: list[str] = []
    before, prev = base_hash, WARM_DIR
    for round_number in range(config.study.rounds + 1):
        recipe = _cell_recipe(config, arm_recipe, seed, round_number)
        document = recipe.model_dump(mode="json")
        digest = _digest({"before": before, "recipe": document})
        trained = _digest({"before": before, "recipe": _without(document, LIMITS | _MEASUREMENT)})
        if digest not in nodes:
            key = f"{arm}-s{seed}-r{round_number}"
            nodes[digest] = Cell(
                key=key,
                id=f"{key}-{digest[:8]}",
                training_hash=trained[:8],
                prev=prev,
                recipe=recipe,
            )
        cell = nodes[digest]
        keys.append(cell.key)
        if round_number > 0:  # round 0 trains nothing: round 1 starts from the warm start itself
            before, prev = trained, cell.directory
    return tuple(keys)


def _cell_recipe(config: Config, arm: RecipeConfig, seed: int, round_number: int) -> CellRecipe:
    training_round = round_number > 0
    names = ["sample_responses", "evaluate_round"]
    names += ["train_generator", "keep_generator", "train_policy"] if training_round else []
    return CellRecipe(
        seed=seed,
        round=round_number,
        responses_per_set=arm.responses_per_set,
        rubrics=RubricSettings(
            evaluator=arm.evaluator,
            min_items=arm.min_rubric_items,
            max_items=arm.max_rubric_items,
            sampling=arm.generator.sampling,
        ),
        verifier=arm.verifier,
        generator_training=_generator_training(arm, round_number, config.study.rounds),
        policy_training=_policy_training(arm) if training_round else None,
        policy_sampling=arm.policy.sampling,
        evaluation=EvaluationSettings(**config.evaluation.model_dump()),
        versions={name: STEP_VERSIONS[name] for name in names},
    )


def _generator_training(
    arm: RecipeConfig, round_number: int, rounds: int
) -> GeneratorTraining | None:
    """Return what the generator trains on in this round, or None if it is kept as it is.

    In round 1 the current policy is the start policy: `fresh`, `stale` and `once` are one recipe.
    """
    generator = arm.generator
    first, later = round_number == 1, round_number > 1
    source: ResponseSource | None = None
    if generator.update == "upfront":
        source = "anchors" if first else None
    elif generator.update == "once":
        source = "current" if first else None
    elif generator.update == "fresh":
        source = "current" if first or later else None
    elif generator.update == "stale":
        source = "current" if first else "start" if later else None
    if source is None:
        return None
    return GeneratorTraining(
        responses=source,
        objective=generator.objective,
        steps=_generator_steps(generator, round_number, rounds),
        prompts_per_step=generator.prompts_per_step,
        group_size=generator.group_size,
        learning_rate=generator.learning_rate,
        kl_beta=generator.kl_beta,
        max_invalid_rate=generator.max_invalid_rate,
    )


def _generator_steps(generator: GeneratorConfig, round_number: int, rounds: int) -> int:
    """Return the steps of one training; all rounds' together for a generator trained upfront."""
    if generator.update == "upfront":
        return generator.first_steps + (rounds - 1) * generator.steps
    return generator.first_steps if round_number == 1 else generator.steps


def _policy_training(arm: RecipeConfig) -> PolicyTraining:
    return PolicyTraining(**arm.policy.model_dump(include=set(PolicyTraining.model_fields)))


def _without(document: Mapping[str, Any], keys: Set[str]) -> dict[str, Any]:
    """Copy a nested mapping without some keys, at whatever depth."""
    return {
        key: _without(value, keys) if isinstance(value, Mapping) else value
        for key, value in document.items()
        if key not in keys
    }


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _check_arms_differ(config: Config) -> None:
    """Refuse arms whose recipes differ only in keys that no round reads.

    Two rounds are looked at, however many there are: in a study of one round `fresh` and `stale`
    are rightly one path.
    """
    seen: dict[str, str] = {}
    for arm in config.study.arms:
        recipe = resolve_arm(config, arm)
        rounds = [_cell_recipe(config, recipe, 0, number) for number in (1, 2)]
        text = json.dumps([one.model_dump(mode="json") for one in rounds], sort_keys=True)
        if seen.setdefault(text, arm) != arm:
            raise UserError(
                doing="planning the study",
                got=f"study.arms.{arm}, which trains and measures exactly what {seen[text]!r} does",
                expected="each arm to differ in a key that some round reads",
                remedy="remove one of them, or change what its rounds do (update: none ignores the "
                "other keys of generator, for example)",
            )


def _check_unique(cells: list[Cell]) -> None:
    for kind in ("id", "key"):
        for name, count in Counter(getattr(cell, kind) for cell in cells).items():
            if count > 1:
                raise UserError(
                    doing="planning the study",
                    got=f"two different recipes with the cell {kind} {name!r}",
                    expected="one recipe for each cell",
                    remedy="rename one of the arms in params.yaml",
                )


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the plan as the mapping that cells.yaml holds."""
    paths: dict[str, dict[str, list[str]]] = {}
    for (arm, seed), keys in plan.paths.items():
        paths.setdefault(arm, {})[f"s{seed}"] = list(keys)
    return {
        "arms": paths,
        "shared": plan.shared,
        "starts": {key: _entry(cell) for key, cell in plan.starts.items()},
        "cells": {key: _entry(cell) for key, cell in plan.cells.items()},
        "grids": {key: grid.entry for key, grid in planned_grids(plan).items()},
    }


def _entry(cell: Cell) -> dict[str, Any]:
    return {"id": cell.id, "prev": cell.prev, "recipe": cell.recipe.model_dump(mode="json")}


def is_written(plan: Plan, path: Path) -> bool:
    """Return whether a cells.yaml holds exactly this plan."""
    try:
        found = load_yaml(path)
    except UserError:  # absent, or broken by a merge: either way to be written anew
        return False
    return found == plan_document(plan)


def write_plan(plan: Plan, path: Path) -> bool:
    """Write cells.yaml if it differs from the plan; return whether it was written."""
    if is_written(plan, path):
        return False
    dump_yaml(plan_document(plan), path, header=HEADER)
    return True


def stage_structure(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what DVC's graph depends on: each cell's key and where it starts, what grids read.

    A change of values alone leaves the graph as it is, and a running `dvc repro` picks the values
    up; a change of structure needs a new run of DVC.
    """
    return {
        f"{group}/{key}": str(entry.get("prev"))
        for group in ("starts", "cells")
        for key, entry in (document.get(group) or {}).items()
    } | grid_structure(document)


def load_plan(config: Config, path: Path) -> Plan:
    """Return the plan of `config` after checking that cells.yaml says the same.

    Raises:
        UserError: cells.yaml is missing, edited by hand, or older than params.yaml.
    """
    plan = expand(config)
    if load_yaml(path) != plan_document(plan):
        raise UserError(
            doing=f"reading {path}",
            got="a plan that does not match params.yaml",
            expected="the plan that `dynamicrubric plan` writes",
            remedy="run `dynamicrubric plan`, then the same command again",
        )
    return plan


def parse_recipe(entry: Mapping[str, Any]) -> CellRecipe:
    """Read a recipe back from JSON or YAML."""
    try:
        return CellRecipe.model_validate(dict(entry))
    except ValidationError as error:
        raise ValueError(f"not a cell recipe: {error}") from None
