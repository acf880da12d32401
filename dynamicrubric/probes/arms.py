"""The evaluator of a study's cell, as its rounds were measured with it, from the one factory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.evaluators.base import Evaluator
from dynamicrubric.evaluators.spec import EvaluatorSpec, Kind
from dynamicrubric.plan import CellRecipe
from dynamicrubric.worlds.prepared import PreparedData

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines

KINDS: Final[dict[str, Kind]] = {
    "dynamic": "dynamic",
    "static": "static",
    "rule_based": "programmatic",
}
"""Evaluators of cells by the kind that builds them; an oracle is none that can be hacked."""


def spec_of(recipe: CellRecipe, generator_dir: Path) -> EvaluatorSpec:
    """Return the values of a cell's evaluator.

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
) -> Evaluator:
    """Return the evaluator that measured a cell.

    Args:
        recipe: the cell's.
        generator_dir: the folder of its generator.
        prepared: the world and its prompts.
        engines: the step's engines.
    """
    from dynamicrubric.evaluators.build import build_evaluator

    return build_evaluator(spec_of(recipe, generator_dir), prepared, engines)
