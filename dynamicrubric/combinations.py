"""Which settings suit each other across sections; a problem names key, value, what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dynamicrubric.engines.access import check_address
from dynamicrubric.enginesettings import (
    IN_PROCESS,
    IN_PROCESS_VERIFIER,
    MAX_LORA_RANK,
    GeneratorEngine,
    OpenAI,
    OpenAIVerifier,
    PolicyEngine,
    VerifierEngine,
    Vllm,
    VllmServerVerifier,
)
from dynamicrubric.errors import UserError
from dynamicrubric.evaluatorkinds import RATED
from dynamicrubric.recipe import RecipeConfig
from dynamicrubric.runtime import RuntimeConfig
from dynamicrubric.settings import (
    BackboneConfig,
    PretrainedConfig,
    WarmStartConfig,
    WorldConfig,
)
from dynamicrubric.worlds.language.settings import LanguageConfig
from dynamicrubric.worlds.postcards.criteria import criteria_for
from dynamicrubric.worlds.postcards.prompts import all_prompts
from dynamicrubric.worlds.postcards.rules import RULES

_NOT_IN_LANGUAGE: Final = {
    "oracle": "nobody knows the true quality of its responses",
    "rule_based": "no rubric was written by hand for all its prompts",
}
Recipes = Mapping[str, RecipeConfig]
"""The base recipe and every arm's, by where it is in params.yaml; `recipe` is the base."""


def check_world(
    world: WorldConfig | LanguageConfig,
    backbone: BackboneConfig | PretrainedConfig,
    warm_start: WarmStartConfig,
    recipes: Recipes,
) -> None:
    """Check the settings of all sections against the world.

    Raises:
        ValueError: something that this world has no use for, or cannot do.
    """
    if isinstance(world, LanguageConfig):
        _check_pretrained(backbone, warm_start)
        _check_language_recipes(recipes)
        _check_anchors(recipes, world.num_anchors)
        _check_prompts(recipes, world.num_train_prompts, "world.num_train_prompts")
        return
    _check_small(backbone, warm_start)
    for place, recipe in _arms(recipes):
        _check_postcards(place, recipe)
    _check_anchors(recipes, world.num_anchors)
    heldout = world.num_heldout_prompts
    training = len(all_prompts()) - heldout
    _check_prompts(recipes, training, f"world.num_heldout_prompts {heldout}")


def check_engines(
    world: WorldConfig | LanguageConfig,
    backbone: BackboneConfig | PretrainedConfig,
    runtime: RuntimeConfig,
    recipes: Recipes,
) -> None:
    """Check that each role's engine can serve it, and that its place is given.

    Raises:
        ValueError: an engine for models that this world has not, an address that leaks or lacks.
    """
    for name, place in runtime.endpoints.items():
        try:
            check_address(place)
        except UserError as error:
            raise ValueError(
                f"runtime.endpoints.{name}: {error.got}; expected {error.expected}"
            ) from None
    for where, recipe in recipes.items():
        for key, engine in _engines(recipe):
            if not isinstance(world, LanguageConfig) and engine not in (
                IN_PROCESS,
                IN_PROCESS_VERIFIER,
            ):
                raise ValueError(
                    f"{where}: {key}.kind is {engine.kind!r} with world.name 'postcards', whose "
                    "models are small and its own: it can only be 'transformers'"
                )
            if isinstance(engine, OpenAI | VllmServerVerifier):
                _check_endpoint(f"{where}: {key}", engine.model, runtime)
            if isinstance(engine, Vllm) and isinstance(backbone, PretrainedConfig):
                _check_rank(f"{where}: {key}", backbone)


def _engines(
    recipe: RecipeConfig,
) -> list[tuple[str, GeneratorEngine | PolicyEngine | VerifierEngine]]:
    sections = ("generator", "policy", "verifier")
    return [(f"{name}.engine", getattr(recipe, name).engine) for name in sections]


def _check_endpoint(key: str, model: str, runtime: RuntimeConfig) -> None:
    if model not in runtime.endpoints:
        known = ", ".join(map(repr, runtime.endpoints)) or "none"
        raise ValueError(
            f"{key}.model is {model!r}, which has no address in runtime.endpoints; it has {known}"
        )


def _check_rank(key: str, backbone: PretrainedConfig) -> None:
    if backbone.lora.rank > MAX_LORA_RANK:
        raise ValueError(
            f"{key}.kind is 'vllm' with backbone.lora.rank {backbone.lora.rank}; vLLM takes "
            f"adapters of at most {MAX_LORA_RANK}"
        )


def check_sharing(runtime: RuntimeConfig, place: str, recipe: RecipeConfig) -> None:
    """Check that the processes of a training share its steps in whole groups and equal passes.

    Raises:
        ValueError: names the arm, what it has and what would do.
    """
    policy, generator = recipe.policy, recipe.generator
    trained = [("policy", policy.prompts_per_step, recipe.responses_per_set)]
    if generator.update != "none":
        trained.append(("generator", generator.prompts_per_step, generator.group_size))
    for role, prompts, group in trained:
        groups, left = divmod(prompts, runtime.processes)
        if left:
            raise ValueError(
                f"{place}: {role}.prompts_per_step is {prompts}; with "
                f"runtime.processes {runtime.processes} it has to be a multiple of that, so that "
                "every group is whole on one process"
            )
        rows, at_once = groups * group, runtime.rows_per_pass
        if at_once and at_once < rows and rows % at_once:
            raise ValueError(
                f"{place}: runtime.rows_per_pass is {at_once}; a process has {rows} rows of the "
                f"{role} in a step, so it has to divide them"
            )


def check_dropout(backbone: BackboneConfig | PretrainedConfig, runtime: RuntimeConfig) -> None:
    """Check that what says how fast decides no figure: dropout draws a mask for each pass.

    Raises:
        ValueError: dropout, and a training in several processes or passes.
    """
    if not isinstance(backbone, PretrainedConfig) or not backbone.lora.dropout:
        return
    for key, whole in (("processes", 1), ("rows_per_pass", 0)):
        if getattr(runtime, key) != whole:
            raise ValueError(
                f"backbone.lora.dropout is {backbone.lora.dropout} with runtime.{key} "
                f"{getattr(runtime, key)}, which would decide what is dropped and so change "
                f"results: dropout can only be 0 then, or runtime.{key} {whole}"
            )


def _check_pretrained(
    backbone: BackboneConfig | PretrainedConfig, warm_start: WarmStartConfig
) -> None:
    if not isinstance(backbone, PretrainedConfig):
        raise ValueError(
            f"backbone has hidden_size {backbone.hidden_size} with world.name 'language'; it can "
            "only be a pretrained one: {checkpoint, dtype, lora}"
        )
    if warm_start.policy.steps:
        raise ValueError(
            f"warm_start.policy.steps is {warm_start.policy.steps} with world.name 'language', "
            "whose policy starts from the backbone as it is: it can only be 0"
        )
    if not warm_start.generator.steps:
        raise ValueError(
            "warm_start.generator.steps is 0; with world.name 'language' it has to be 1 or more, "
            "so that the adapter is one that writes rubrics"
        )


def _check_language_recipes(recipes: Recipes) -> None:
    for place, recipe in recipes.items():
        why = _NOT_IN_LANGUAGE.get(recipe.evaluator)
        if why is not None:
            raise ValueError(
                f"{place}: evaluator is {recipe.evaluator!r} with world.name 'language', where it "
                f"can be 'dynamic' or 'static', among others: {why}"
            )
        if recipe.evaluator in RATED:
            _check_rates(place, recipe)
        if recipe.anchor_source != "prepared":
            raise ValueError(
                f"{place}: anchor_source is {recipe.anchor_source!r} with world.name 'language', "
                "whose ranked answers are the prepared ones: it can only be 'prepared'"
            )
        if recipe.generator.objective.gap_order == "reference":
            raise ValueError(
                f"{place}: generator.objective.gap_order is 'reference' with world.name "
                "'language', where nobody knows the true quality of a response: it can only be "
                "'anchors'"
            )


def _check_rates(place: str, recipe: RecipeConfig) -> None:
    """Check that the verifier's model can rate: ratings are read where the answer begins."""
    verifier, engine = recipe.verifier, recipe.verifier.engine
    key, found, wanted = "", "", ""
    if verifier.kind != "language_model":
        key, found, wanted = "kind", repr(verifier.kind), "only be 'language_model'"
    elif isinstance(engine, OpenAIVerifier):
        if not engine.top_logprobs:
            key, found, wanted = "engine.top_logprobs", "0", "not be 0"
    elif getattr(engine, "max_verdict_tokens", 1) > 1:
        key = "engine.max_verdict_tokens"
        found, wanted = str(getattr(engine, "max_verdict_tokens", 1)), "only be 1"
    if key:
        raise ValueError(
            f"{place}: verifier.{key} is {found} with evaluator {recipe.evaluator!r}, for which a "
            f"language model's probabilities are ratings: it can {wanted}"
        )


def _check_anchors(recipes: Recipes, num_anchors: int) -> None:
    for place, recipe in recipes.items():
        if (recipe.num_anchors or 0) > num_anchors:
            raise ValueError(
                f"{place}: num_anchors is {recipe.num_anchors}; with world.num_anchors "
                f"{num_anchors} it can be at most that"
            )


def _check_small(backbone: BackboneConfig | PretrainedConfig, warm_start: WarmStartConfig) -> None:
    if isinstance(backbone, PretrainedConfig):
        raise ValueError(
            f"backbone.checkpoint is {backbone.checkpoint!r} with world.name 'postcards', whose "
            "tokenizer and models are made from its own texts: it can only be the shape of a small "
            "one"
        )
    for role in ("policy", "generator"):
        if not getattr(warm_start, role).steps:
            raise ValueError(
                f"warm_start.{role}.steps is 0 with world.name 'postcards', whose backbone is "
                "random: it has to be 1 or more"
            )


def _check_postcards(place: str, recipe: RecipeConfig) -> None:
    num_criteria = len(criteria_for(all_prompts()[0]))
    if recipe.max_rubric_items > num_criteria:
        raise ValueError(
            f"{place}: max_rubric_items is {recipe.max_rubric_items}; a prompt of the postcards "
            f"world has {num_criteria} criteria, so at most that many distinct items"
        )
    if recipe.evaluator == "rule_based" and recipe.min_rubric_items > len(RULES.items):
        raise ValueError(
            f"{place}: min_rubric_items is {recipe.min_rubric_items}; the rubric of evaluator "
            f"'rule_based' has {len(RULES.items)} items"
        )
    if recipe.evaluator in RATED:
        raise ValueError(
            f"{place}: evaluator is {recipe.evaluator!r} with world.name 'postcards', where no "
            "language model can rate: it takes world.name 'language'"
        )
    if recipe.verifier.kind != "programmatic":
        raise ValueError(
            f"{place}: verifier.kind is {recipe.verifier.kind!r} with world.name 'postcards', "
            "whose models know no other language than its own: it can only be 'programmatic'"
        )


def _check_prompts(recipes: Recipes, training: int, key: str) -> None:
    for place, recipe in recipes.items():
        for role, asked in (
            ("generator", recipe.generator.prompts_per_step),
            ("policy", recipe.policy.prompts_per_step),
        ):
            if asked > training:
                raise ValueError(
                    f"{place}: {role}.prompts_per_step is {asked}; with {key} it can be at most "
                    f"{training}, the number of training prompts, so that no step has one twice"
                )


def _arms(recipes: Recipes) -> list[tuple[str, RecipeConfig]]:
    return [(place, recipe) for place, recipe in recipes.items() if place != "recipe"]
