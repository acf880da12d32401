"""The one typed config: frozen, unknown keys refused, validated once at the entry.

`params.yaml` is read by `load_config`; nothing else in the project reads settings. Units are in
the names (`_tokens`, `_steps`, `_minutes`, `_rate` for shares in [0, 1]). The sections are in
`settings`, `recipe` and `arms`; here is what binds them to each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from dynamicrubric.arms import ArmConfig, ArmRun, Selection, StudyConfig
from dynamicrubric.combinations import check_dropout, check_engines, check_sharing, check_world
from dynamicrubric.errors import UserError
from dynamicrubric.objective import ObjectiveConfig
from dynamicrubric.probecombinations import check_probe, check_stop
from dynamicrubric.probesettings import ProbeConfig
from dynamicrubric.problems import all_problems, one_line, problems_of
from dynamicrubric.recipe import (
    EvaluatorKind,
    GeneratorConfig,
    RecipeConfig,
    RubricWeights,
    Sampling,
    Truncated,
    VerifierConfig,
    VerifierKind,
)
from dynamicrubric.runtime import RuntimeConfig
from dynamicrubric.settings import (
    AdapterConfig,
    BackboneConfig,
    EvaluationConfig,
    Grown,
    LearningRate,
    PretrainedConfig,
    Rate,
    Section,
    Steps,
    SupervisedConfig,
    WarmStartConfig,
    WorldConfig,
)
from dynamicrubric.worlds.language.settings import LanguageConfig
from dynamicrubric.yamlio import parse_yaml, read_text

__all__ = [
    "AdapterConfig",
    "ArmConfig",
    "ArmRun",
    "BackboneConfig",
    "Config",
    "EvaluationConfig",
    "EvaluatorKind",
    "GeneratorConfig",
    "Grown",
    "LanguageConfig",
    "LearningRate",
    "ObjectiveConfig",
    "PretrainedConfig",
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
    "Truncated",
    "VerifierConfig",
    "VerifierKind",
    "WarmStartConfig",
    "WorldConfig",
    "load_config",
    "merge",
    "parse_config",
    "resolve_arm",
]


def _kind_of_backbone(value: object) -> str:
    if isinstance(value, Mapping):
        return "pretrained" if "checkpoint" in value else "small"
    return "pretrained" if isinstance(value, PretrainedConfig) else "small"


class Config(Section):
    """Everything in params.yaml."""

    world: Annotated[WorldConfig | LanguageConfig, Field(discriminator="name")]
    backbone: Annotated[
        Annotated[BackboneConfig, Tag("small")] | Annotated[PretrainedConfig, Tag("pretrained")],
        Discriminator(_kind_of_backbone),
    ]
    warm_start: WarmStartConfig
    recipe: RecipeConfig
    evaluation: EvaluationConfig
    study: StudyConfig
    runtime: RuntimeConfig
    probe: ProbeConfig | None = None
    """Attempts to hack the evaluators; None: none are made."""

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
    def _processes_share_steps_evenly(self) -> Self:
        for name in self.study.arms:
            check_sharing(self.runtime, f"study.arms.{name}", resolve_arm(self, name))
        check_dropout(self.backbone, self.runtime)
        return self

    @model_validator(mode="after")
    def _everything_suits_the_world(self) -> Self:
        arms = {f"study.arms.{name}": resolve_arm(self, name) for name in self.study.arms}
        check_world(self.world, self.backbone, self.warm_start, {"recipe": self.recipe, **arms})
        check_engines(self.world, self.backbone, self.runtime, {"recipe": self.recipe, **arms})
        return self

    @model_validator(mode="after")
    def _probes_suit_the_study(self) -> Self:
        arms = {name: resolve_arm(self, name) for name in self.study.arms}
        if self.probe is not None:
            check_probe(self.probe, self.world, self.evaluation, self.runtime, arms)
        check_stop(self.evaluation, self.world, self.probe)
        return self


def merge(base: Mapping[str, Any], diff: Mapping[str, Any]) -> dict[str, Any]:
    """Lay a nested diff over a nested mapping; values of the diff win.

    An engine of another kind takes the place of the one below it: it has other keys.
    """
    merged = dict(base)
    for key, value in diff.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            other = key == "engine" and value.get("kind", below.get("kind")) != below.get("kind")
            merged[key] = dict(value) if other else merge(below, value)
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
