"""Task: the policy's update of a round, on scores of the current generator's rubrics."""

from __future__ import annotations

from prefect import task

from dynamicrubric.plan import Cell
from tasks.console import log_line
from tasks.study import StepResult, Study, request_for


@task(task_run_name="train_policy")
def train_policy(study: Study, cell: Cell, generator: StepResult) -> StepResult:
    """Train P with GRPO on its own groups of K, scored online."""
    recipe = cell.recipe
    assert recipe.policy_training is not None, "round 0 trains nothing"
    before = study.root / cell.prev / "policy"
    identity = {
        "cell_hash": cell.hash,
        "seed": recipe.seed,
        "round": recipe.round,
        "responses_per_set": recipe.responses_per_set,
        "rubrics": recipe.rubrics.model_dump(mode="json"),
        "verifier": recipe.verifier.model_dump(mode="json"),
        "training": recipe.policy_training.model_dump(mode="json"),
    }
    return study.run_gpu_step(
        request_for(
            "train_policy",
            identity,
            policy=before,
            generator=study.root / generator.path,
            prepared=study.prepared,
        ),
        study.cell_dir(cell) / "policy",
        lambda dirs: {
            "recipe": recipe.model_dump(mode="json"),
            "cell_hash": cell.hash,
            "policy_dir": str(before),
            "generator_dir": str(study.root / generator.path),
            "prepared_dir": str(study.prepared),
            "out_dir": str(dirs.out),
            "work_dir": str(dirs.work),
            "checkpoint_every_steps": study.config.runtime.checkpoint_every_steps,
        },
        group=cell.key,
        on_line=log_line(),
    )
