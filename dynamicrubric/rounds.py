"""What each round of an arm computes: an arm's recipe turned into its cells' recipes."""

from __future__ import annotations

from pathlib import Path

from dynamicrubric.cells import (
    CellRecipe,
    EvaluationSettings,
    GeneratorTraining,
    PolicyTraining,
    ResponseSource,
    RewardTraining,
    RubricSettings,
)
from dynamicrubric.config import EvaluationConfig, GeneratorConfig, RecipeConfig
from dynamicrubric.evaluatorkinds import RATED, WITH_REWARD_MODEL
from dynamicrubric.prompts.judges import judge_texts_hash
from dynamicrubric.prompts.roles import reward_set_text_hash
from dynamicrubric.versions import STEP_VERSIONS
from dynamicrubric.worlds.language.sources import folder_content


def cell_recipe(
    arm: RecipeConfig, evaluation: EvaluationConfig, seed: int, round_number: int, rounds: int
) -> CellRecipe:
    """Return the recipe of one round.

    Args:
        arm: the arm's full recipe.
        evaluation: how every arm is measured.
        seed: the run's seed.
        round_number: 0 measures the untrained policy.
        rounds: T of the arm; a generator trained upfront gets all rounds' steps in the first.
    """
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
            weights=arm.weights,
            engine=arm.generator.engine,
            reward_model=_reward_checkpoint(arm),
            reward_content=_reward_content(arm),
            judge_texts=_judge_texts(arm),
            orders=arm.generator.orders,
            constrained=arm.generator.constrained,
        ),
        verifier=arm.verifier,
        generator_from="start" if _reverts(arm, round_number) else "previous",
        generator_training=_generator_training(arm, round_number, rounds),
        policy_training=_policy_training(arm) if training_round else None,
        policy_sampling=arm.policy.sampling,
        policy_engine=arm.policy.engine,
        evaluation=EvaluationSettings(**evaluation.model_dump()),
        reward_training=_reward_training(arm) if round_number == 1 else None,
        versions={name: STEP_VERSIONS[name] for name in names},
    )


def _generator_training(
    arm: RecipeConfig, round_number: int, rounds: int
) -> GeneratorTraining | None:
    """Return what the generator trains on in this round, or None if it is kept as it is.

    In round 1 the current policy is the start policy: `fresh`, `stale`, `once` and `reverted` are
    one recipe.
    """
    generator = arm.generator
    first, later = round_number == 1, round_number > 1
    source: ResponseSource | None = None
    if generator.update == "upfront":
        source = "anchors" if first else None
    elif generator.update in ("once", "reverted"):
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
        anchor_swap_rate=arm.anchor_swap_rate,
        anchor_shuffle_rate=arm.anchor_shuffle_rate,
        num_anchors=arm.num_anchors,
        anchor_source=arm.anchor_source,
    )


def _generator_steps(generator: GeneratorConfig, round_number: int, rounds: int) -> int:
    """Return the steps of one training; all rounds' together for a generator trained upfront."""
    if generator.update == "upfront":
        return generator.first_steps + (rounds - 1) * generator.steps
    return generator.first_steps if round_number == 1 else generator.steps


def _policy_training(arm: RecipeConfig) -> PolicyTraining:
    return PolicyTraining(**arm.policy.model_dump(include=set(PolicyTraining.model_fields)))


def _reward_checkpoint(arm: RecipeConfig) -> str:
    has = arm.evaluator in WITH_REWARD_MODEL and arm.reward_model is not None
    return arm.reward_model.checkpoint if has and arm.reward_model else ""


def _reward_content(arm: RecipeConfig) -> str:
    """Return a hash of a reward model in a folder: another one by the same name is another arm."""
    folder = Path(_reward_checkpoint(arm) or "-")
    return folder_content(folder) if folder.is_dir() else ""


def _judge_texts(arm: RecipeConfig) -> str:
    """Return a hash of what a language model is asked with in place of a verifier's question.

    In the embedded world a reward model reads a set in frames of control tokens, and no text.
    """
    if arm.evaluator in RATED:
        return judge_texts_hash()
    in_words = arm.evaluator == "scalar_set" and arm.verifier.kind == "language_model"
    return reward_set_text_hash() if in_words else ""


def _reward_training(arm: RecipeConfig) -> RewardTraining | None:
    """Return the training of an arm's reward model; None if it has none, or a checkpoint."""
    model = arm.reward_model
    if arm.evaluator not in WITH_REWARD_MODEL or model is None or model.checkpoint:
        return None
    return RewardTraining(
        steps=model.steps,
        batch_size=model.batch_size,
        learning_rate=model.learning_rate,
        anchor_swap_rate=arm.anchor_swap_rate,
    )


def _reverts(arm: RecipeConfig, round_number: int) -> bool:
    return arm.generator.update == "reverted" and round_number > 1
