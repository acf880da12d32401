"""Task: the policy's update of a round, on scores of the current generator's rubrics."""

from __future__ import annotations

from prefect import task

from dynamicrubric.plan import Cell, identity_of
from tasks.study import StepResult, Study, request_for
from tasks.training import run_training, training_identity


@task(task_run_name="train_policy")
def train_policy(study: Study, cell: Cell, generator: StepResult) -> StepResult:
    """Train P with GRPO on its own groups of K, scored online."""
    recipe = cell.recipe
    assert recipe.policy_training is not None, "round 0 trains nothing"
    inputs = {
        "policy": study.root / cell.prev / "policy",
        "generator": study.root / generator.path,
        "prepared": study.prepared,
    }
    identity = {
        **training_identity(recipe, recipe.policy_training),
        "cell_hash": cell.training_hash,
        "responses_per_set": recipe.responses_per_set,
        "sampling": identity_of(recipe.policy_sampling),
    }
    return run_training(
        study,
        cell,
        request_for("train_policy", identity, **inputs),
        study.cell_dir(cell) / "policy",
        cell_hash=cell.training_hash,
        policy_dir=str(inputs["policy"]),
        generator_dir=str(inputs["generator"]),
    )
