"""Runs the whole study: lock, plan, server, stages, results. `make reproduce` ends up here.

Command: `python -m flows ablation`. It starts one Prefect server on loopback for the study (unless
PREFECT_API_URL names one) and one process that imports torch and TRL for all cells, runs each stage
with DVC in the order of the lattice, and ends with the comparison. Run again after a stop, it goes
on where it was.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from dynamicrubric.audit.planned import planned_audits
from dynamicrubric.boundary import EXIT_INTERRUPTED, EXIT_OK
from dynamicrubric.errors import DynamicRubricError
from dynamicrubric.grid import planned_grids
from dynamicrubric.plan import ROLES
from dynamicrubric.probes.planned import planned_probes
from flows.forked import FLOW_PRELOAD
from flows.lookup import check_engines
from flows.planning import check_dvc_lock, settle_plan, work_left
from flows.progress import Progress, shown
from flows.services import prefect_server
from flows.settings import Choice, lay_choice
from flows.stages import Stage, stages_of
from flows.staleness import fresh_stages
from tasks.disk import check_writable
from tasks.locks import exclusive
from tasks.sharedhost import shared_host
from tasks.shipping import reconcile, ship_study
from tasks.study import PRELOAD, TRACKER_PRELOAD, Study
from tasks.tracking import prepare_store

if TYPE_CHECKING:
    from prefect.client.schemas import State

WHAT: Final = "the study"
"""What the lease in a study's lock calls it."""
WRITTEN: Final = ("data", "results", "work")
"""The folders that a study writes into."""


def run_ablation(choice: Choice | None = None) -> int:
    """Run the study of the current folder; return the exit code.

    Args:
        choice: what to run of it; it is written into params.yaml. None runs what that says.

    Raises:
        DynamicRubricError: stages failed; names them, their reasons and their logs.
    """
    console = Console()
    try:
        _run(console, choice or Choice())
    except KeyboardInterrupt:  # said here: Typer would turn it into a bare exit code
        console.print("Stopped. The same command goes on from here.")
        return EXIT_INTERRUPTED
    return EXIT_OK


def lock_path(study: Study) -> Path:
    """Return the lock file that whoever runs a study in its folder holds."""
    return study.work / "locks" / "study.lock"


def _run(console: Console, choice: Choice) -> None:
    study = Study.here()
    # What happens is on the display and in the log files; Prefect's own lines are in its pages.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    with exclusive(lock_path(study), WHAT):
        check_dvc_lock(study.root)
        check_writable([study.root / name for name in WRITTEN])
        lay_choice(study.root, choice, say=console.print)
        settle_plan(study, say=console.print)
        console.print("Asking DVC what is up to date ...")
        stages = all_stages(study)
        fresh = fresh_stages(study.root, stages)
        if len(fresh) == len(stages):
            console.print("Everything is up to date.")
            prepare_store(study.root)
            reconcile(study.root)
        else:
            check_engines(study, {stage.name for stage in stages} - fresh)
            console.print(
                "Starting the study's Prefect server and MLflow store: seconds, or minutes on a "
                "busy machine; log in work/logs/prefect-server.log"
            )
            with shared_imports(study, fresh), prefect_server(study.root):
                _run_stages(study, stages, fresh, console)
        ship_study(study.plan, study.root, study.config)
    _say_results(study, console)


def _run_stages(study: Study, stages: list[Stage], fresh: frozenset[str], console: Console) -> None:
    # Prefect reads the server's address when it is imported, so not before the server runs.
    from flows.ablation import run_study
    from flows.dag import thread_runner
    from tasks.prefect_runs import runs_of

    tidy(study)
    progress = Progress(study.plan, stages, study.work, fresh=fresh)
    left = sum(f"round@{key}" not in fresh for key in study.plan.cells)
    console.print(work_left(left, len(study.plan.cells), study.config.runtime.slots))
    flow = run_study.with_options(task_runner=thread_runner(len(stages)))
    with shown(progress, console), runs_of(study.root):
        check_ended(flow(study, stages, fresh, progress))


def all_stages(study: Study) -> list[Stage]:
    """Return the stages of the whole study."""
    return stages_of(study.plan, {role: study.warm_steps(role) for role in ROLES})


def tidy(study: Study) -> None:
    """Close what killed studies left open in Prefect and MLflow; make the store if need be."""
    from tasks.prefect_runs import close_dead_runs

    close_dead_runs(study.root)
    prepare_store(study.root)
    reconcile(study.root)


def shared_imports(study: Study, fresh: frozenset[str]) -> AbstractContextManager[object]:
    """Share a fork host among cells, grids, audits and probes, unless all of them are finished."""
    others = {f"grid@{key}" for key in planned_grids(study.plan)}
    others |= {f"audit@{key}" for key in planned_audits(study.plan)}
    others |= {f"probe@{key}" for key in planned_probes(study.plan)}
    if fresh >= {f"round@{key}" for key in study.plan.cells} | others:
        return nullcontext()
    threads = study.config.runtime.threads_per_task
    preload = (*PRELOAD, *TRACKER_PRELOAD, *FLOW_PRELOAD)
    return shared_host(preload, threads, study.work / "locks")


def check_ended(ended: dict[str, State[str]]) -> None:
    """Return if all stages have completed.

    Raises:
        DynamicRubricError: says which failed by themselves; those that waited for them are counted.
    """
    if all(state.is_completed() for state in ended.values()):
        return
    reasons = [str(state.message) for state in ended.values() if state.is_failed()]
    waited = sum(not state.is_completed() and not state.is_failed() for state in ended.values())
    text = "; ".join(reason.partition("StageFailed: ")[2] or reason for reason in reasons)
    raise DynamicRubricError(
        f"{text}. {waited} stages that build on them were not run; the same command goes on "
        "from here."
    )


def _say_results(study: Study, console: Console) -> None:
    # Here, so that wrong settings are refused without waiting for what a report imports.
    from dynamicrubric.report import compare_arms
    from dynamicrubric.report import console as report

    questions = {name: arm.question for name, arm in study.config.study.arms.items()}
    found = compare_arms(study.plan, questions, study.root)
    console.print(
        report(found.outcomes, found.differences, found.questions, found.coevolution, brief=True)
    )
    results = Path("results")
    drawn = planned_grids(study.plan)
    grid = f"; generators by policies: {results / 'grid.png'}" if drawn else ""
    console.print(
        Text(
            f"\nReport:  {results / 'report' / 'index.html'}, for any browser\n"
            f"Tables:  {results / 'table.md'}, all of them, with intervals; also by "
            f"`python -m flows compare`\n"
            f"Figures: {results / 'metrics.csv'}, one a row\n"
            f"Picture: {results / 'study.png'}{grid}\n"
            "Logs:    work/logs, a folder for each cell\n"
            "Pages:   `make ui` serves Prefect at http://127.0.0.1:4200 and MLflow at "
            "http://127.0.0.1:5000"
        )
    )
