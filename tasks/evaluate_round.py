"""Task: the round's measurement on held-out prompts."""

from __future__ import annotations

from pathlib import Path

from prefect import task

from dynamicrubric.plan import Cell, engine_identity, identity_of
from tasks.console import log_line
from tasks.study import StepResult, Study, request_for


@task(task_run_name="evaluate_round")
def evaluate_round(
    study: Study, cell: Cell, policy: StepResult | None, generator: StepResult | None
) -> StepResult:
    """Measure the round's policy and generator; in round 0 those of the warm start."""
    recipe = cell.recipe
    policy_dir = _folder(study, cell, "policy", policy)
    generator_dir = _folder(study, cell, "generator", generator)
    identity = {
        "seed": recipe.seed,
        "round": recipe.round,
        "responses_per_set": recipe.responses_per_set,
        "rubrics": identity_of(recipe.rubrics),
        "verifier": identity_of(recipe.verifier),
        "sampling": identity_of(recipe.policy_sampling),
        **engine_identity(recipe.policy_engine),
        "evaluation": identity_of(recipe.evaluation),
    }
    before = {} if cell.before is None else {"before": study.root / cell.before / "evaluation"}
    return study.run_gpu_step(
        request_for(
            "evaluate_round",
            identity,
            policy=policy_dir,
            generator=generator_dir,
            start_policy=study.warm("policy"),
            prepared=study.prepared,
            **before,
        ),
        study.cell_dir(cell) / "evaluation",
        lambda dirs: {
            "recipe": recipe.model_dump(mode="json"),
            "policy_dir": str(policy_dir),
            "generator_dir": str(generator_dir),
            "start_policy_dir": str(study.warm("policy")),
            "prepared_dir": str(study.prepared),
            "out_dir": str(dirs.out),
            "engines": study.engine_places(cell.key),
            **{f"{name}_dir": str(folder) for name, folder in before.items()},
        },
        group=cell.key,
        on_line=log_line(),
    )


def _folder(study: Study, cell: Cell, role: str, result: StepResult | None) -> Path:
    return study.root / (result.path if result else f"{cell.prev}/{role}")
