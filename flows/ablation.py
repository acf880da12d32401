"""The whole study as one flow: a task for each DVC stage, a few side by side.

`flows.driver` runs it (`make reproduce`), with a server and a display around it.
"""

from __future__ import annotations

from prefect import flow, task
from prefect.client.schemas import State
from prefect.futures import PrefectFuture
from prefect.runtime import task_run

from flows.dag import submit
from flows.progress import Progress
from flows.stages import Stage, StageRunner
from tasks.study import Study


@task(task_run_name="{stage.name}", persist_result=False)
def run_stage(stage: Stage, runner: StageRunner, progress: Progress) -> str:
    """Run one DVC stage; return `done`, or `kept` if there was nothing to do."""
    try:
        ran = runner.run(stage, lambda: progress.begin(stage.name), str(task_run.id or ""))
    except BaseException:  # a full disk as well: it would be shown as running for ever
        progress.end(stage.name, "stopped" if runner.is_stopped else "failed")
        raise
    state = "done" if ran else "kept"
    progress.end(stage.name, state)
    return state


def submit_stages(
    study: Study, stages: list[Stage], fresh: frozenset[str], progress: Progress
) -> dict[str, State[str]]:
    """Submit every stage after the ones it waits for; return how each ended. A flow calls it.

    Args:
        study: the study.
        stages: all of its stages.
        fresh: names of those that have nothing to do.
        progress: told of each beginning and end.
    """
    runner = StageRunner(study.root, study.config.runtime.slots, fresh)
    futures: dict[str, PrefectFuture[str]] = {}
    try:
        for stage in stages:
            before = [futures[name] for name in stage.after if name in futures]
            futures[stage.name] = submit(run_stage, stage, runner, progress, wait_for=before)
        for future in futures.values():
            future.wait()
    except BaseException:
        runner.stop()
        raise
    return {name: future.state for name, future in futures.items()}


@flow(name="ablation", persist_result=False, validate_parameters=False)
def run_study(
    study: Study, stages: list[Stage], fresh: frozenset[str], progress: Progress
) -> dict[str, State[str]]:
    """Run a study's stages as a flow of their own; the arguments are those of `submit_stages`."""
    return submit_stages(study, stages, fresh, progress)
