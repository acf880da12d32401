"""Command line of the library: `dynamicrubric validate` and `dynamicrubric plan`.

Both read params.yaml alone: no model, no heavy library, an answer in under two seconds. Training
is started by `make reproduce`, `python -m flows ablation` or `dvc repro`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dynamicrubric.boundary import run_with_boundary
from dynamicrubric.config import Config, load_config
from dynamicrubric.plan import Plan, expand, is_written, write_plan
from dynamicrubric.planview import cell_count

app = typer.Typer(
    help="Rubric generators and policies that are trained against each other.",
    no_args_is_help=True,
    add_completion=False,
    # A traceback is for faults of ours, and then the plain one; `main` says the rest in a sentence.
    pretty_exceptions_enable=False,
)

ParamsOption = Annotated[Path, typer.Option("--params", help="The study's settings.")]
CellsOption = Annotated[Path, typer.Option("--cells", help="Where the plan is kept.")]


@app.command()
def validate(params: ParamsOption = Path("params.yaml")) -> None:
    """Check the settings and say what they ask for; write nothing."""
    config = load_config(params)
    study = expand(config)
    typer.echo(f"{params} is valid.")
    for line in _summary(config, study):
        typer.echo(line)


@app.command()
def plan(
    params: ParamsOption = Path("params.yaml"),
    cells: CellsOption = Path("cells.yaml"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if the plan differs.")
    ] = False,
) -> None:
    """Expand the settings into cells and write them down for DVC."""
    config = load_config(params)
    study = expand(config)
    if check:
        _check(study, params, cells)
        return
    verb = "Wrote" if write_plan(study, cells) else "Unchanged:"
    typer.echo(f"{verb} {cells}")
    typer.echo(cell_count(config.study, study))


def _check(study: Plan, params: Path, cells: Path) -> None:
    if is_written(study, cells):
        typer.echo(f"{cells} matches {params}.")
        return
    typer.echo(
        f"{cells} does not match {params}. Run `dynamicrubric plan`, and commit both files.",
        err=True,
    )
    raise typer.Exit(1)


def _summary(config: Config, study: Plan) -> list[str]:
    """Say what a study asks for: its size, and one line for each arm."""
    runs = config.study.runs
    width = max(len(run.arm) for run in runs)
    arms = config.study.arms
    return [cell_count(config.study, study)] + [
        f"  {run.arm:<{width}}  {arms[run.arm].question}" for run in runs
    ]


def main() -> None:
    """Entry point of the `dynamicrubric` command."""
    sys.exit(run_with_boundary(app))


if __name__ == "__main__":
    main()
