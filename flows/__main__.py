"""Command line of the flows: `python -m flows COMMAND`; DVC's stages and `make` call it.

Prefect reads its settings when it is imported, so each command sets them up first and imports its
flow after. Without a server named by PREFECT_API_URL a command starts one of its own on loopback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from dynamicrubric.boundary import run_with_boundary

app = typer.Typer(
    help="Flows of a study. `ablation` runs all of it; the others are DVC's stages.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Key = Annotated[str, typer.Argument(help="A cell of cells.yaml.")]


@app.command()
def ablation() -> None:
    """Run the whole study, cells side by side, and compare its arms."""
    _settle_environment()
    from flows.driver import run_ablation

    raise typer.Exit(run_ablation())


@app.command()
def plan() -> None:
    """Bring cells.yaml in line with params.yaml."""
    from flows.planning import plan_stage
    from tasks.study import Study

    plan_stage(Study.here())


@app.command()
def prepare() -> None:
    """Write the prepared data."""

    def run() -> None:
        from flows.prepare import run_prepare

        run_prepare()

    _with_server(run)


@app.command(name="warm_start")
def warm_start(role: Annotated[str, typer.Argument(help="policy or generator")]) -> None:
    """Train P_0 or G_0."""

    def run() -> None:
        from flows.prepare import run_warm_start

        run_warm_start(role)

    _with_server(run)


@app.command()
def start(key: Key) -> None:
    """Measure the untrained policy: round 0."""

    def run() -> None:
        from flows.round import run_start

        run_start(key)

    _with_server(run)


@app.command(name="round")
def round_(key: Key) -> None:
    """Run one round of one arm and seed."""

    def run() -> None:
        from flows.round import run_round

        run_round(key)

    _with_server(run)


@app.command()
def compare() -> None:
    """Compare the arms of a finished study."""

    def run() -> None:
        from flows.compare import compare as run_compare

        run_compare()

    _with_server(run)


@app.command()
def ui(
    prefect_port: Annotated[int, typer.Option(help="Port of the Prefect page.")] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of the MLflow page.")] = 5000,
) -> None:
    """Serve the Prefect and MLflow pages on loopback."""
    _settle_environment()
    from flows.ui import ui as run

    raise typer.Exit(run(prefect_port, mlflow_port))


def _settle_environment() -> None:
    """Set Prefect's home and switches before Prefect is imported."""
    from flows.services import log_sentences, prefect_environment

    os.environ.update(prefect_environment(Path.cwd()))
    log_sentences()


def _with_server(run: Callable[[], None]) -> None:
    from flows.services import prefect_server

    _settle_environment()
    with prefect_server(Path.cwd()):
        from tasks.prefect_runs import runs_of

        with runs_of(Path.cwd()):
            run()


def main() -> int:
    """Run a command; errors for people become a sentence."""
    from tasks.process import die_with_parent

    if os.environ.get("DVC_ROOT"):  # DVC's child: it must not outlive a killed DVC
        die_with_parent(os.getppid())
    return run_with_boundary(app)


if __name__ == "__main__":
    sys.exit(main())
