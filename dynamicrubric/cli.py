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
    typer.echo(_cell_count(config, study))


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
    width = max(len(name) for name in config.study.arms)
    lines = [_cell_count(config, study), f"Seeds: {', '.join(map(str, config.study.seeds))}"]
    lines += [f"  {name:<{width}}  {arm.question}" for name, arm in config.study.arms.items()]
    return lines


def _cell_count(config: Config, study: Plan) -> str:
    """Set the number of cells against the full product of arms, seeds and rounds."""
    shared = study.num_arm_rounds - len(study.cells)
    return (
        f"{_count(len(study.cells), 'cell')} to train for "
        f"{_count(len(config.study.arms), 'arm')} x {_count(len(config.study.seeds), 'seed')} x "
        f"{_count(config.study.rounds, 'round')} = {study.num_arm_rounds}; {shared} shared. "
        f"{_count(len(study.starts), 'start')} to measure (round 0)."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def main() -> None:
    """Entry point of the `dynamicrubric` command."""
    sys.exit(run_with_boundary(app))


if __name__ == "__main__":
    main()
