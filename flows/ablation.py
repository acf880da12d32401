"""The whole study: every stage of the plan, as many side by side as there are slots.

Command: `make reproduce`, or `python -m flows ablation`. It starts one Prefect server on loopback
for the study (unless PREFECT_API_URL names one), runs each stage with DVC in the order of the
lattice, and ends with the comparison. Run again after a stop, it goes on where it was.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow, task
from prefect.client.schemas import State
from prefect.futures import PrefectFuture
from rich.console import Console
from rich.text import Text

from dynamicrubric.errors import DynamicRubricError
from dynamicrubric.report import compare_arms
from dynamicrubric.report import console as report
from flows.dag import submit, thread_runner
from flows.planning import settle_plan
from flows.progress import Progress, shown
from flows.services import prefect_server
from flows.stages import Stage, StageFailed, StageRunner, stages_of
from tasks.locks import exclusive
from tasks.prefect_runs import close_dead_runs
from tasks.shipping import reconcile, ship_study
from tasks.study import Study
from tasks.tracking import prepare_store


@task(task_run_name="{stage.name}", persist_result=False)
def run_stage(stage: Stage, runner: StageRunner, progress: Progress) -> str:
    """Run one DVC stage; return `done`, or `kept` if there was nothing to do."""
    progress.begin(stage.name)
    try:
        state = "done" if runner.run(stage) else "kept"
    except StageFailed:
        progress.end(stage.name, "failed")
        raise
    progress.end(stage.name, state)
    return state


@flow(name="ablation", persist_result=False, validate_parameters=False)
def run_study(study: Study, stages: list[Stage], progress: Progress) -> dict[str, State]:
    """Submit every stage after the ones it waits for; return how each ended."""
    runner = StageRunner(study.root, study.config.runtime.slots)
    futures: dict[str, PrefectFuture[str]] = {}
    try:
        for stage in stages:
            before = [futures[name] for name in stage.after]
            futures[stage.name] = submit(run_stage, stage, runner, progress, wait_for=before)
        for future in futures.values():
            future.wait()
    except BaseException:
        runner.stop()
        raise
    return {name: future.state for name, future in futures.items()}


def ablation() -> int:
    """Run the study of the current folder; return the exit code."""
    console = Console()
    study = Study.here()
    with exclusive(study.work / "locks" / "study.lock", "the study"):
        settle_plan(study, say=console.print)
        with prefect_server(study.root):
            close_dead_runs()
            prepare_store(study.root)
            reconcile(study.root)
            stages = stages_of(
                study.plan, {r: study.warm_steps(r) for r in ("policy", "generator")}
            )
            threads = thread_runner(len(stages))
            progress = Progress(study.plan, stages, study.work)
            with shown(progress, console):
                ended = run_study.with_options(task_runner=threads)(study, stages, progress)
    failed = [name for name, state in ended.items() if not state.is_completed()]
    if failed:
        raise _failure(ended)
    ship_study(study.plan, study.root, study.config)
    _say_results(study, console)
    return 0


def _failure(ended: dict[str, State]) -> DynamicRubricError:
    """Say which stages failed by themselves; the ones that waited for them are counted."""
    reasons = [str(state.message) for state in ended.values() if state.is_failed()]
    waited = sum(not state.is_completed() and not state.is_failed() for state in ended.values())
    text = "; ".join(reason.partition(": ")[2] or reason for reason in reasons)
    return DynamicRubricError(
        f"{text}. {waited} stages that build on them were not run; the same command goes on "
        "from here."
    )


def _say_results(study: Study, console: Console) -> None:
    questions = {name: arm.question for name, arm in study.config.study.arms.items()}
    found = compare_arms(study.plan, questions, study.root)
    console.print(report(found.outcomes, found.differences, found.questions))
    results = Path("results")
    console.print(
        Text(
            f"\nTable:   {results / 'table.md'}, every figure in {results / 'metrics.csv'}\n"
            f"Picture: {results / 'study.png'}\n"
            "Logs:    work/logs, a folder for each cell\n"
            "Pages:   `make ui` opens Prefect at http://127.0.0.1:4200 and MLflow at "
            "http://127.0.0.1:5000"
        )
    )
