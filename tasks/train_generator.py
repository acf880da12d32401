"""Task: the generator's update of a round; one that is not updated is carried over, or G_0 is."""

from __future__ import annotations

from prefect import task

from dynamicrubric.audit.planned import planned_audits, snapshot_every
from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS
from dynamicrubric.plan import Cell
from tasks.record import carry, load_artefact
from tasks.study import StepResult, Study, request_for
from tasks.training import generator_identity, run_training


@task(task_run_name="train_generator")
def train_generator(study: Study, cell: Cell, responses: StepResult) -> StepResult:
    """Train G with GRPO, or keep it; a static evaluator's first round writes its rubrics too.

    An arm whose reward model is trained has that in the generator's place.
    """
    recipe = cell.recipe
    before = study.root / cell.generator_dir
    out_dir = study.cell_dir(cell) / "generator"
    makes_rubrics = recipe.rubrics.evaluator in KEEPS_RUBRICS and recipe.round == 1
    makes = makes_rubrics or recipe.reward_training is not None
    if recipe.generator_training is None and not makes:
        request = request_for("keep_generator", {"round": recipe.round}, generator=before)
        return StepResult.of(carry(load_artefact(before), out_dir, request), study.root)
    inputs = {"generator": before, "prepared": study.prepared}
    if recipe.generator_training is not None and recipe.generator_training.responses != "anchors":
        inputs["responses"] = study.root / responses.path
    return run_training(
        study,
        cell,
        request_for("train_generator", generator_identity(recipe), **inputs),
        out_dir,
        trains=recipe.generator_training is not None,
        generator_dir=str(before),
        responses_dir=str(study.root / responses.path),
        snapshot_every_steps=_snapshots(study, cell),
    )


def _snapshots(study: Study, cell: Cell) -> int:
    """Return after how many steps the training keeps its weights for the audit; 0: never.

    No part of its identity: what is trained is the same.
    """
    for audit in planned_audits(study.plan).values():
        if cell.key in {one.key for one in audit.cells}:
            return snapshot_every(cell, audit.checkpoints)
    return 0
