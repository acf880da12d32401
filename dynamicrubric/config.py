"""The one typed config: frozen, unknown keys refused, validated once at the entry.

`params.yaml` is read by `load_config`; nothing else in the project reads settings. Units are in
the names (`_tokens`, `_steps`, `_minutes`, `_rate` for shares in [0, 1]). The sections are in
`settings`, `recipe` and `arms`; here is what binds them to each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator

from dynamicrubric.arms import ArmConfig, ArmRun, Selection, StudyConfig
from dynamicrubric.errors import UserError
from dynamicrubric.problems import all_problems, one_line, problems_of
from dynamicrubric.recipe import (
    EvaluatorKind,
    GeneratorConfig,
    ObjectiveConfig,
    RecipeConfig,
    RubricWeights,
    Sampling,
    VerifierConfig,
)
from dynamicrubric.settings import (
    BackboneConfig,
    EvaluationConfig,
    LearningRate,
    Rate,
    RuntimeConfig,
    Section,
    Steps,
    SupervisedConfig,
    WarmStartConfig,
    WorldConfig,
)
from dynamicrubric.worlds.postcards.criteria import criteria_for
from dynamicrubric.worlds.postcards.prompts import all_prompts
from dynamicrubric.worlds.postcards.rules import RULES
from dynamicrubric.yamlio import parse_yaml, read_text

__all__ = [
    "ArmConfig",
    "ArmRun",
    "BackboneConfig",
    "Config",
    "EvaluationConfig",
    "EvaluatorKind",
    "GeneratorConfig",
    "LearningRate",
    "ObjectiveConfig",
    "Rate",
    "RecipeConfig",
    "RubricWeights",
    "RuntimeConfig",
    "Sampling",
    "Section",
    "Selection",
    "Steps",
    "StudyConfig",
    "SupervisedConfig",
    "VerifierConfig",
    "WarmStartConfig",
    "WorldConfig",
    "load_config",
    "merge",
    "parse_config",
    "resolve_arm",
]


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
    def _rules_fit_the_item_limits(self) -> Self:
        for name in self.study.arms:
            recipe = resolve_arm(self, name)
            if recipe.evaluator == "rule_based" and recipe.min_rubric_items > len(RULES.items):
                raise ValueError(
                    f"study.arms.{name}: min_rubric_items is {recipe.min_rubric_items}; the rubric "
                    f"of evaluator 'rule_based' has {len(RULES.items)} items"
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
    return parse_config(read_text(path), str(path))


def parse_config(text: str, name: str) -> Config:
    """Validate the text of a params.yaml; `name` says in errors where it is from.

    Raises:
        UserError: names the key, the value and what is allowed.
    """
    document = parse_yaml(text, name)
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        got, expected = all_problems(error, Config)
        raise UserError(
            doing=f"reading {name}",
            got=got,
            expected=expected,
            remedy="change what is named; profiles/ holds complete examples",
        ) from None
