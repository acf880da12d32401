"""Task: every generator of a seed on every policy's held-out responses (`dynamicrubric.grid`)."""

from __future__ import annotations

from prefect import task

from dynamicrubric.grid import LAST_ROUND, PlannedGrid
from dynamicrubric.plan import identity_of
from tasks.console import log_line
from tasks.study import StepResult, Study, request_for


@task(task_run_name="evaluate_grid")
def evaluate_grid(study: Study, grid: PlannedGrid) -> StepResult:
    """Measure the seed's grid: all generators see the same sets, with the same draws."""
    recipe = grid.cells[LAST_ROUND].recipe
    rounds = {policy: cell.recipe.round for policy, cell in grid.policies.items()}
    generators = {name: study.root / folder for name, folder in grid.generators.items()}
    evaluations = {
        policy: study.cell_dir(cell) / "evaluation" for policy, cell in grid.policies.items()
    }
    identity = {
        "seed": recipe.seed,
        "rounds": rounds,
        "rubrics": identity_of(recipe.rubrics),
        "verifier": identity_of(recipe.verifier),
    }
    return study.run_gpu_step(
        request_for("evaluate_grid", identity, **generators, **evaluations),
        study.root / grid.directory,
        lambda dirs: {
            "recipe": recipe.model_dump(mode="json"),
            "rounds": rounds,
            "evaluation_dirs": {name: str(path) for name, path in evaluations.items()},
            "generator_dirs": {name: str(path) for name, path in generators.items()},
            "out_dir": str(dirs.out),
            "engines": study.engine_places(f"grid-{grid.key}"),
        },
        group=f"grid-{grid.key}",
        on_line=log_line(),
    )
