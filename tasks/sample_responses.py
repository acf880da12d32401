"""Task: one response set for each training prompt, from the policy the generator is to learn on."""

from __future__ import annotations

from prefect import task

from dynamicrubric.plan import Cell, engine_identity, identity_of
from tasks.console import log_line
from tasks.study import StepResult, Study, request_for


@task(task_run_name="sample_responses")
def sample_responses(study: Study, cell: Cell) -> StepResult:
    """Sample from the policy the cell starts from; a stale generator learns on P_0's responses."""
    recipe = cell.recipe
    training = recipe.generator_training
    stale = training is not None and training.responses == "start"
    policy = study.warm("policy") if stale else study.root / cell.prev / "policy"
    identity = {
        "seed": recipe.seed,
        "round": recipe.round,
        "responses_per_set": recipe.responses_per_set,
        "sampling": identity_of(recipe.policy_sampling),
        **engine_identity(recipe.policy_engine),
    }
    return study.run_gpu_step(
        request_for("sample_responses", identity, policy=policy, prepared=study.prepared),
        study.cell_dir(cell) / "responses",
        lambda dirs: {
            "recipe": recipe.model_dump(mode="json"),
            "policy_dir": str(policy),
            "prepared_dir": str(study.prepared),
            "out_dir": str(dirs.out),
            "engines": study.engine_places(cell.key),
        },
        group=cell.key,
        on_line=log_line(),
    )
