"""What the two GRPO trainings of a cell have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dynamicrubric.cells import without
from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS
from dynamicrubric.plan import (
    Cell,
    CellRecipe,
    GeneratorTraining,
    PolicyTraining,
    identity_of,
)
from tasks.console import log_line
from tasks.record import StepRequest
from tasks.study import StepResult, Study


def training_identity(
    recipe: CellRecipe, training: GeneratorTraining | PolicyTraining | None
) -> dict[str, Any]:
    """Return what determines the content of a training of either role."""
    return {
        "seed": recipe.seed,
        "round": recipe.round,
        "rubrics": identity_of(recipe.rubrics),
        "verifier": identity_of(recipe.verifier),
        "training": identity_of(training) if training else None,
    }


def generator_identity(recipe: CellRecipe) -> dict[str, Any]:
    """Return what determines the content of the generator's training.

    What serves the generator elsewhere, in how many orders it is shown a set there, and whether it
    is kept to a form, is no part of it, since a training samples freely with the trainer's own
    model, each set as it was sampled; a static one's step also writes the rubrics that it keeps,
    by that engine.
    """
    identity = training_identity(recipe, recipe.generator_training)
    if recipe.rubrics.evaluator not in KEEPS_RUBRICS:
        elsewhere = frozenset({"engine", "orders", "constrained"})
        identity["rubrics"] = without(identity["rubrics"], elsewhere)
    if recipe.reward_training is not None:
        identity["training"] = identity_of(recipe.reward_training)
    return identity


def run_training(
    study: Study,
    cell: Cell,
    request: StepRequest,
    out_dir: Path,
    *,
    trains: bool = True,
    **arguments: str | int,
) -> StepResult:
    """Run a training step of a cell.

    Args:
        study: the study.
        cell: the cell.
        request: the step and everything that determines its content.
        out_dir: where the artefact is published.
        trains: False for a step that only writes rubrics; one process does that.
        **arguments: the step function's arguments beside those that both trainings take.
    """
    return study.run_gpu_step(
        request,
        out_dir,
        lambda dirs: {
            "recipe": cell.recipe.model_dump(mode="json"),
            "prepared_dir": str(study.prepared),
            "out_dir": str(dirs.out),
            "work_dir": str(dirs.work),
            "checkpoint_every_steps": study.config.runtime.checkpoint_every_steps,
            "rows_per_pass": study.config.runtime.rows_per_pass,
            "recompute_activations": study.config.runtime.recompute_activations,
            "engines": study.engine_places(cell.key),
            **arguments,
        },
        group=cell.key,
        on_line=log_line(),
        processes=study.config.runtime.processes if trains else 1,
    )
