"""Command line of the library: `dynamicrubric validate`, `plan` and `explain`.

They read settings and artefacts: no model, no heavy library, an answer in a second or two.
Training is started by `make reproduce`, `python -m flows ablation` or `dvc repro`.
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


@app.command()
def explain(
    cell: Annotated[str, typer.Argument(help="A round that was trained: a folder of data/runs.")],
    row_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[RESPONSE_ID]", help="STEP/PROMPT/NUMBER or a text's hash; none: list them."
        ),
    ] = None,
    generator: Annotated[
        bool, typer.Option("--generator", help="A rubric of the generator's training instead.")
    ] = False,
    step: Annotated[int | None, typer.Option(help="List this training step alone.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="List at most so many; 0: all.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say why a training response earned what it earned, and which checkpoint that trained."""
    from dynamicrubric.explain_command import explain_row, list_rows

    role = "generator" if generator else "policy"
    if row_id is None:
        list_rows(Path(), cell, role, step=step, limit=limit, as_json=as_json)
    else:
        explain_row(Path(), cell, role, row_id, as_json=as_json)


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
