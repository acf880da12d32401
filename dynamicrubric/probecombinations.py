"""Which settings of probes suit the rest; a problem names key, value, what is allowed."""

from __future__ import annotations

from collections.abc import Mapping

from dynamicrubric.enginesettings import OpenAIVerifier, VllmServerVerifier
from dynamicrubric.errors import UserError
from dynamicrubric.probes.names import check_names
from dynamicrubric.probesettings import GoldJudge, ProbeConfig
from dynamicrubric.recipe import RecipeConfig
from dynamicrubric.runtime import RuntimeConfig
from dynamicrubric.settings import EvaluationConfig, WorldConfig
from dynamicrubric.worlds.language.settings import LanguageConfig

World = WorldConfig | LanguageConfig


def check_probe(
    probe: ProbeConfig,
    world: World,
    evaluation: EvaluationConfig,
    runtime: RuntimeConfig,
    arms: Mapping[str, RecipeConfig],
) -> None:
    """Check what is to be attacked, how, and who says what is good.

    Raises:
        ValueError: an arm or attack that there is not, an oracle, more sets than there are, or a
            judge that this world has no use for or that is no other than an arm's own.
    """
    for place, name in enumerate(probe.arms):
        if name not in arms or name in probe.arms[:place]:
            raise ValueError(
                f"probe.arms has {name!r}{'' if name not in arms else ' twice'}; it can have "
                f"{', '.join(arms)}, each once"
            )
        if arms[name].evaluator == "oracle":
            raise ValueError(
                f"probe.arms has {name!r}, whose evaluator is the true quality itself: there is "
                "nothing to hack"
            )
    try:
        check_names(probe.attacks)
    except UserError as error:
        raise ValueError(f"probe.attacks: {error.got}; expected {error.expected}") from None
    if probe.sets_per_prompt > evaluation.sets_per_prompt:
        raise ValueError(
            f"probe.sets_per_prompt is {probe.sets_per_prompt}; at most "
            f"evaluation.sets_per_prompt, {evaluation.sets_per_prompt}"
        )
    if probe.gold_judge is not None:
        chosen = {name: arms[name] for name in probe.arms}
        _check_judge(probe.gold_judge, world, runtime, chosen)


def _check_judge(
    judge: GoldJudge, world: World, runtime: RuntimeConfig, arms: Mapping[str, RecipeConfig]
) -> None:
    if not isinstance(world, LanguageConfig):
        raise ValueError(
            f"probe.gold_judge is there with world.name {world.name!r}, which knows true quality: "
            "leave it out"
        )
    for name, recipe in arms.items():
        if recipe.verifier == judge.verifier:
            raise ValueError(
                f"probe.gold_judge.verifier is that of study.arms.{name}: who judges the judge has "
                "to be another one"
            )
    engine = judge.verifier.engine
    if isinstance(engine, OpenAIVerifier | VllmServerVerifier) and (
        engine.model not in runtime.endpoints
    ):
        known = ", ".join(map(repr, runtime.endpoints)) or "none"
        raise ValueError(
            f"probe.gold_judge.verifier.engine.model is {engine.model!r}, which has no address in "
            f"runtime.endpoints; it has {known}"
        )


def check_stop(evaluation: EvaluationConfig, world: World, probe: ProbeConfig | None) -> None:
    """Check that a divergence could be seen where a run is to stop on it.

    Raises:
        ValueError: nobody knows what is good, or there are too few prompts for an interval.
    """
    if not evaluation.stop_on_divergence:
        return
    if isinstance(world, LanguageConfig) and (probe is None or probe.gold_judge is None):
        raise ValueError(
            "evaluation.stop_on_divergence is true with world.name 'language', where nobody knows "
            "true quality: it takes a probe.gold_judge"
        )
    from dynamicrubric.stats import MIN_PROMPTS  # with numpy, which a plan does without

    if world.num_heldout_prompts < MIN_PROMPTS:
        raise ValueError(
            f"evaluation.stop_on_divergence is true with {world.num_heldout_prompts} held-out "
            f"prompts: an interval takes {MIN_PROMPTS}"
        )
