"""Command line of the flows: `python -m flows COMMAND`; DVC's stages and `make` call it.

Prefect reads its settings when it is imported, so each command sets them up first and imports its
flow after; what its arguments name is looked up before either. Without a server named by
PREFECT_API_URL a command starts one of its own on loopback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynamicrubric.boundary import run_with_boundary
from dynamicrubric.errors import UserError

if TYPE_CHECKING:
    from tasks.study import Study

app = typer.Typer(
    help="Flows of a study. `ablation` runs all of it; the others are DVC's stages.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Key = Annotated[str, typer.Argument(help="A cell of the plan, such as coevolved-s1-r2.")]


@app.command()
def ablation(
    group: Annotated[str, typer.Option(help="A group of params.yaml to run.")] = "",
    arms: Annotated[str, typer.Option(help="Arms to run, as in coevolved,static.")] = "",
    seeds: Annotated[str, typer.Option(help="Seeds of every arm, as in 1,2 or 1-5.")] = "",
    rounds: Annotated[int | None, typer.Option(help="Rounds of every arm.", min=1)] = None,
    profile: Annotated[
        str, typer.Option(help="A file of profiles/, laid over params.yaml first.")
    ] = "",
) -> None:
    """Run the study, cells side by side, and compare its arms.

    What is chosen here is written into params.yaml first; without a choice, what it says is run.
    """
    _settle_environment()
    from dynamicrubric.selection import split_names, split_seeds
    from flows.driver import run_ablation
    from flows.settings import Choice

    if group and arms:
        raise UserError(
            doing="choosing what to run", got="--group and --arms", expected="one of the two"
        )
    choice = Choice(
        group=group or None,
        arms=tuple(split_names(arms)) if arms else (),
        seeds=tuple(split_seeds(seeds)) if seeds else (),
        rounds=rounds,
        profile=profile or None,
    )
    raise typer.Exit(run_ablation(choice))


@app.command()
def plan() -> None:
    """Bring cells.yaml and cells.json in line with params.yaml."""
    from flows.planning import plan_stage
    from tasks.study import Study

    plan_stage(Study.here())


@app.command()
def prepare() -> None:
    """Write the prepared data."""
    _run_flow("prepare", "run_prepare", lambda study: study.plan)


@app.command(name="warm_start")
def warm_start(role: Annotated[str, typer.Argument(help="policy or generator")]) -> None:
    """Train P_0 or G_0."""
    from flows.lookup import check_role

    _run_flow("prepare", "run_warm_start", lambda study: check_role(study, role), role=role)


@app.command()
def start(key: Key) -> None:
    """Measure the untrained policy: round 0."""
    from flows.lookup import start_of_arms

    _run_flow("round", "run_start", lambda study: start_of_arms(study, key), key=key)


@app.command(name="round")
def round_(key: Key) -> None:
    """Run one round of one arm and seed."""
    from flows.lookup import training_round

    _run_flow("round", "run_round", lambda study: training_round(study, key), key=key)


@app.command()
def grid(key: Annotated[str, typer.Argument(help="A grid of the plan, such as s1.")]) -> None:
    """Measure each generator of a seed on each policy's held-out responses."""
    from flows.lookup import grid_of

    _run_flow("grid", "run_grid", lambda study: grid_of(study, key), key=key)


@app.command()
def audit(key: Annotated[str, typer.Argument(help="An audit of the plan, such as s1.")]) -> None:
    """Measure a seed's generators on the responses of the policy each was trained beside."""
    from flows.lookup import audit_of

    _run_flow("audit", "run_audit", lambda study: audit_of(study, key), key=key)


@app.command()
def probe(key: Annotated[str, typer.Argument(help="A seed of the plan, such as s1.")]) -> None:
    """Attack the evaluators of a seed's probed arms."""
    from flows.lookup import probe_of

    _run_flow("probe", "run_probe", lambda study: probe_of(study, key), key=key)


@app.command()
def compare(
    partial: Annotated[
        bool,
        typer.Option(
            "--partial", help="Draw what an unfinished or damaged study has: results/partial."
        ),
    ] = False,
) -> None:
    """Compare the arms of a finished study."""
    _run_flow("compare", "compare", lambda study: study.plan, partial=partial)


@app.command()
def clean(
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Also the work of steps that were stopped.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Do it; else only list it.")] = False,
) -> None:
    """List, or remove, what work/ keeps that nothing in data/ needs."""
    from tasks.clean import say_clean
    from tasks.study import Study

    say_clean(Study.here(), unfinished=unfinished, remove=remove, say=print)


@app.command()
def ui(
    prefect_port: Annotated[int, typer.Option(help="Port of the Prefect page.")] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of the MLflow page.")] = 5000,
) -> None:
    """Serve the Prefect and MLflow pages on loopback."""
    _settle_environment()
    from flows.ui import ui as run

    raise typer.Exit(run(prefect_port, mlflow_port))


@app.command()
def deploy(
    cron: Annotated[
        str, typer.Option(help="When the study runs, e.g. '0 2 * * *'; schedules stay without.")
    ] = "",
    timezone: Annotated[str, typer.Option(help="The schedule's time zone; else UTC.")] = "",
    paused: Annotated[bool, typer.Option("--paused", help="Register it switched off.")] = False,
) -> None:
    """Register the study with Prefect: forms and schedules of its UI."""
    _settle_environment()
    from dynamicrubric.config import load_config
    from flows.schedule import wanted_schedule
    from flows.services import prefect_server

    schedule = wanted_schedule(cron, timezone, paused=paused)
    load_config(Path("params.yaml"))
    with prefect_server(Path.cwd()) as place:
        from prefect.settings import PREFECT_API_URL, temporary_settings

        from flows.deploy import deploy as run_deploy

        # A schedule is read by Prefect, which took its settings before there was this server.
        with temporary_settings({PREFECT_API_URL: place.address}):
            run_deploy(schedule)
    print("Start them from the pages (`make ui`) or with `prefect deployment run NAME`.")


@app.command()
def worker() -> None:
    """Run what Prefect's UI and schedules start; `make ui` has one already."""
    _settle_environment()
    from flows.worker import worker as run_worker

    raise typer.Exit(run_worker())


@app.command(hidden=True)
def run() -> None:
    """Be the process of one run that a worker starts."""
    _settle_environment()
    from flows.worker import run_as_child

    run_as_child()


def _settle_environment() -> None:
    """Set Prefect's home and switches before Prefect is imported."""
    from flows.services import log_sentences, prefect_environment

    os.environ.update(prefect_environment(Path.cwd()))
    log_sentences()


def _run_flow(
    module: str, name: str, look_up: Callable[[Study], object], **arguments: str | bool
) -> None:
    """Run a stage's flow with a server around it.

    Args:
        module: the module of this package that has the flow.
        name: the flow.
        look_up: refuses what the study has not got, before a server is started.
        **arguments: the flow's own.
    """
    from tasks.study import Study

    look_up(Study.here())

    def run() -> None:
        from flows.nesting import run_nested

        run_nested(getattr(import_module(f"flows.{module}"), name), **arguments)

    _with_server(run)


def _with_server(run: Callable[[], None]) -> None:
    from flows.services import prefect_server

    _settle_environment()
    with prefect_server(Path.cwd()):
        from tasks.prefect_runs import runs_of

        with runs_of(Path.cwd()):
            run()


def _end_with_dvc() -> None:
    """Have this process end with the DVC that runs it as a stage, and with a shell between them.

    Raises:
        UserError: that DVC was killed before; nobody would ever end this process.
    """
    from tasks.guarded import GUARDED_PID
    from tasks.process import ancestors, die_with, die_with_parent

    parent, dvc = os.getppid(), os.environ.get(GUARDED_PID)
    # A shell may stand between. A DVC that a person started has told us nothing: then being init's
    # child gives a killed one away, unless DVC is itself what a container runs.
    known = int(dvc) in ancestors(os.getpid()) if dvc else parent != 1 or _is_dvc(parent)
    if not known:
        raise _dvc_has_ended()
    die_with_parent(parent)
    found = int(dvc) if dvc else next(filter(_is_dvc, ancestors(os.getpid())), parent)
    if found != parent:  # a shell stands between, which outlives a killed DVC
        try:
            die_with(found)
        except ProcessLookupError:
            raise _dvc_has_ended() from None


def _dvc_has_ended() -> UserError:
    return UserError(
        doing="running a stage",
        got="a DVC that has ended",
        expected="the DVC that started this command",
        remedy="run DVC again",
    )


def _is_dvc(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended meanwhile, or is hidden from us
        return False
    return any(os.path.basename(word) == b"dvc" for word in words)


def main() -> int:
    """Run a command; errors for people become a sentence."""

    def run() -> int | None:
        code: int | None
        if os.environ.get("DVC_ROOT"):  # DVC's child: it must not outlive a killed DVC
            _end_with_dvc()
            from flows.forked import forked

            code = forked(sys.argv[1:], Path.cwd())
            if code is not None:
                return code
        code = app()
        return code

    return run_with_boundary(run)


if __name__ == "__main__":
    sys.exit(main())
