"""A cell's recipe turned into an evaluator without verdicts, and into the training of its model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS, SCORED, WITH_REWARD_MODEL
from dynamicrubric.evaluators.limits import ScoreLimits
from dynamicrubric.evaluators.spec import EvaluatorSpec
from dynamicrubric.plan import CellRecipe, EvaluationSettings, PolicyTraining
from dynamicrubric.seeds import derive_seed
from dynamicrubric.worlds.noise import noisy_anchors
from dynamicrubric.worlds.prepared import PreparedData

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines
    from dynamicrubric.evaluation import SampledSet
    from dynamicrubric.evaluators.base import Evaluator
    from dynamicrubric.training.scored import ScoredRollout


def spec_of(cell: CellRecipe, generator_dir: Path) -> EvaluatorSpec | None:
    """Return the evaluator of a cell that scores without verdicts.

    Args:
        cell: the cell.
        generator_dir: its generator; of an arm with a reward model that is trained, the model.

    Returns:
        None in round 0 of such an arm: its model is not trained yet.
    """
    rubrics, kind = cell.rubrics, cell.rubrics.evaluator
    assert kind in SCORED, f"{kind} gives verdicts"
    has_model = kind in WITH_REWARD_MODEL
    if has_model and not rubrics.reward_model and cell.round == 0:
        return None
    values = {
        "kind": kind,
        "generator": str(generator_dir) if kind in KEEPS_RUBRICS else None,
        "generator_engine": rubrics.engine,
        "sampling": rubrics.sampling,
        "constrained": rubrics.constrained and kind in KEEPS_RUBRICS,
        "weights": rubrics.weights,
        "min_items": rubrics.min_items,
        "max_items": rubrics.max_items,
        "verifier": cell.verifier,
        "reward_model": (rubrics.reward_model or str(generator_dir)) if has_model else None,
        "seed": cell.seed,
    }
    return EvaluatorSpec.model_validate(values)


def scoring_of(
    cell: CellRecipe, generator_dir: Path, prepared: PreparedData, engines: Engines
) -> Evaluator | None:
    """Return a cell's evaluator; None where there is none yet (`spec_of`)."""
    from dynamicrubric.evaluators.build import build_evaluator

    spec = spec_of(cell, generator_dir)
    return None if spec is None else build_evaluator(spec, prepared, engines)


def limits_of(cell: CellRecipe, phase: PolicyTraining | EvaluationSettings) -> ScoreLimits:
    """Return the limits of one of a cell's phases."""
    return ScoreLimits(cell.verifier.max_unscored_rate, phase.max_invalid_rate)


def scored_rollout(
    cell: CellRecipe,
    training: PolicyTraining,
    prepared: PreparedData,
    generator_dir: Path,
    cell_hash: str,
    engines: Engines,
) -> ScoredRollout:
    """Return what samples and rewards the policy."""
    from dynamicrubric.training.scored import ScoredRollout

    evaluator = scoring_of(cell, generator_dir, prepared, engines)
    assert evaluator is not None, "round 0 trains nothing"
    return ScoredRollout(
        prompts=prepared.prompts["train"],
        evaluator=evaluator,
        limits=limits_of(cell, training),
        sampling=cell.policy_sampling,
        seed_name=(cell.seed, cell.round, "train_policy"),
        cell_hash=cell_hash,
        truncated=training.truncated,
    )


def measure_scored_cell(
    cell: CellRecipe,
    prepared: PreparedData,
    sets: Sequence[SampledSet],
    generator_dir: Path,
    before_dir: Path | None,
    engines: Engines,
    out_dir: Path,
) -> None:
    """Measure a policy whose evaluator gives scores without verdicts, in round 0 too."""
    from dynamicrubric.evaluation import evaluate_without_rubrics
    from dynamicrubric.evaluationfiles import read_sets, write_before, write_evaluation
    from dynamicrubric.scoredevaluation import evaluate_scored, measure_scored

    quality = prepared.world.true_quality
    evaluator = scoring_of(cell, generator_dir, prepared, engines)
    if evaluator is None:
        write_evaluation(evaluate_without_rubrics(sets, quality), out_dir)
        return
    limits, anchors = limits_of(cell, cell.evaluation), prepared.heldout_anchors
    name = (cell.seed, cell.round, "evaluate")
    write_evaluation(evaluate_scored(sets, evaluator, limits, quality, name, anchors), out_dir)
    if before_dir is not None:
        where = "the held-out sets of the policy before its update"
        sets, known = read_sets(before_dir)
        name = (cell.seed, cell.round - 1, "evaluate")
        write_before(measure_scored(where, sets, evaluator, limits, known, name), out_dir)


def train_reward(
    cell: CellRecipe,
    start_dir: Path,
    prepared: PreparedData,
    engines: Engines,
    *,
    out_dir: Path,
    work_dir: Path,
    checkpoint_every_steps: int,
    recompute_activations: bool,
) -> None:
    """Train a cell's reward model on the anchors, from the weights of a warm start."""
    from dynamicrubric.training.reward_model import RewardSettings, train_reward_model

    training = cell.reward_training
    assert training is not None
    swaps = training.anchor_swap_rate
    anchors = noisy_anchors(prepared.anchors, swaps, cell.seed) if swaps else prepared.anchors
    settings = RewardSettings(
        steps=training.steps,
        batch_size=training.batch_size,
        learning_rate=training.learning_rate,
        seed=derive_seed(cell.seed, cell.round, "reward_model"),
        checkpoint_every_steps=checkpoint_every_steps,
        sees_set=cell.rubrics.evaluator == "scalar_set",
        recompute_activations=recompute_activations,
    )
    train_reward_model(
        start_dir,
        prepared.prompts["train"],
        anchors,
        settings,
        out_dir=out_dir,
        work_dir=work_dir,
        models=engines.models,
    )
