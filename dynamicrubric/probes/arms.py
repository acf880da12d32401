"""The evaluator of a study's cell, as its rounds were measured with it, from the one factory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.evaluatorkinds import SCORED
from dynamicrubric.evaluators.base import Evaluator
from dynamicrubric.evaluators.spec import EvaluatorSpec, Kind
from dynamicrubric.plan import CellRecipe
from dynamicrubric.scoredparts import scoring_of
from dynamicrubric.worlds.prepared import PreparedData

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines

KINDS: Final[dict[str, Kind]] = {
    "dynamic": "dynamic",
    "static": "static",
    "rule_based": "programmatic",
}
"""Evaluators that give verdicts, by the kind that builds them; an oracle cannot be hacked."""


def rubric_spec(recipe: CellRecipe, generator_dir: Path) -> EvaluatorSpec:
    """Return the values of a cell's evaluator that scores by verdicts.

    Args:
        recipe: the cell's.
        generator_dir: the folder of its generator, with the rubrics that a static one keeps.
    """
    rubrics = recipe.rubrics
    kind = KINDS[rubrics.evaluator]
    written = kind != "programmatic"
    return EvaluatorSpec(
        kind=kind,
        name=rubrics.evaluator,
        generator=str(generator_dir) if written else None,
        generator_engine=rubrics.engine,
        sampling=rubrics.sampling,
        min_items=rubrics.min_items if written else 1,
        max_items=rubrics.max_items,
        weights=rubrics.weights,
        verifier=recipe.verifier,
        seed=recipe.seed,
    )


def evaluator_of(
    recipe: CellRecipe, generator_dir: Path, prepared: PreparedData, engines: Engines
) -> Evaluator | None:
    """Return the evaluator that measured a cell.

    Args:
        recipe: the cell's.
        generator_dir: the folder of its generator, or of the reward model in its place.
        prepared: the world and its prompts.
        engines: the step's engines.

    Returns:
        None where there is none yet: in round 0 of an arm whose reward model is trained.
    """
    from dynamicrubric.evaluators.build import build_evaluator

    if recipe.rubrics.evaluator in SCORED:
        return scoring_of(recipe, generator_dir, prepared, engines)
    return build_evaluator(rubric_spec(recipe, generator_dir), prepared, engines)
