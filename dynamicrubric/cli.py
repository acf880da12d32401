"""Command line of the library: studies, benchmarks, scoring, data, the hub.

They read settings and artefacts, `plan` also the records of what was run here: no model, no heavy
library, an answer in a second or two. `preflight` imports torch to count parameters; `bench`,
`probe`, `score`, `rubric` and `serve-reward` open the models of their evaluators.
Training is started by `make reproduce`, `python -m flows ablation` or `dvc repro`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from dynamicrubric.bench_command import app as bench_app
from dynamicrubric.boundary import run_with_boundary
from dynamicrubric.config import Config, load_config
from dynamicrubric.data_command import app as data_app
from dynamicrubric.errors import UserError
from dynamicrubric.evaluate_commands import add_commands
from dynamicrubric.hub_command import app as hub_app
from dynamicrubric.plan import Cell, Plan, differing, expand, json_path, write_plan
from dynamicrubric.planview import cell_count, cost_lines, lattice_table, measured_lines, ranges

app = typer.Typer(
    help="Rubric generators and policies that are trained against each other.",
    no_args_is_help=True,
    add_completion=False,
    # A traceback is for faults of ours, and then the plain one; `main` says the rest in a sentence.
    pretty_exceptions_enable=False,
)
app.add_typer(bench_app, name="bench")
app.add_typer(data_app, name="data")
app.add_typer(hub_app, name="hub")

ParamsOption = Annotated[Path, typer.Option("--params", help="The study's settings.")]
CellsOption = Annotated[
    Path, typer.Option("--cells", help="The plan; the JSON for DVC is beside it.")
]


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
    graph: Annotated[
        Path | None, typer.Option("--graph", help="Draw the lattice too: an SVG, PNG or PDF.")
    ] = None,
) -> None:
    """Expand the settings into cells, write them down for DVC, and show what they cost."""
    config = load_config(params)
    study = expand(config)
    _check_names(params, cells, graph, check)
    if check:
        _check(study, params, cells)
        return
    verb = "Wrote" if write_plan(study, cells) else "Unchanged:"
    typer.echo(f"{verb} {cells} and {json_path(cells)}")
    _show(config, study, params.absolute().parent)
    if graph is not None:
        from dynamicrubric.report.latticepicture import draw_lattice

        draw_lattice(study, graph)
        typer.echo(f"Drew {graph}")


@app.command()
def preflight(
    profile: Annotated[
        Path, typer.Argument(metavar="[PROFILE]", help="A params.yaml, or a name in profiles/.")
    ] = Path("params.yaml"),
    gpu_memory: Annotated[
        float | None,
        typer.Option("--gpu-memory", min=1.0, help="GiB: plan for such a GPU, not this machine."),
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="With --gpu-memory: so many.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say whether a profile can run here: memory, work, disk, endpoints; 2 if it cannot."""
    from dynamicrubric.preflight_command import run_preflight

    if gpus is not None and gpu_memory is None:
        raise typer.BadParameter("needs --gpu-memory", param_hint="--gpus")
    run_preflight(profile, gpus, gpu_memory, as_json)


@app.command()
def audit(
    params: ParamsOption = Path("params.yaml"),
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the page, its picture and tables.")
    ] = Path("results/audit"),
    partial: Annotated[
        bool, typer.Option("--partial", help="Without the seeds that are not measured yet.")
    ] = False,
) -> None:
    """Audit the paper's bound (Eq. 45): is there one beta, does the objective raise the gap?

    Reads what the stages `audit@SEED` measured (study.audit in params.yaml) and trains nothing.
    """
    from dynamicrubric.audit_command import run_audit

    run_audit(params, out, partial=partial)


def _show(config: Config, study: Plan, root: Path) -> None:
    """Print the lattice and what it will cost."""
    from rich.console import Console
    from rich.text import Text

    from dynamicrubric.artefact import RECORD_NAME
    from dynamicrubric.audit.planned import planned_audits
    from dynamicrubric.estimate import estimate_plan
    from dynamicrubric.grid import planned_grids
    from dynamicrubric.probes.planned import planned_probes
    from dynamicrubric.report.gridtable import missing_grids
    from dynamicrubric.report.probetable import missing_probes

    everything = [*study.starts.values(), *study.cells.values()]
    finished = {cell.key for cell in everything if _is_finished(root, cell)}
    trained = sum(key in finished for key in study.cells)
    missing = missing_grids(study, root)
    finished |= {g.directory for key, g in planned_grids(study).items() if key not in missing}
    unprobed = missing_probes(study, root)
    finished |= {p.directory for key, p in planned_probes(study).items() if key not in unprobed}
    audits = planned_audits(study).values()
    finished |= {one.directory for one in audits if (root / one.directory / RECORD_NAME).is_file()}
    typer.echo(cell_count(config.study, study))
    console = Console()
    console.print(lattice_table(study))
    whole, left = estimate_plan(study, root), estimate_plan(study, root, finished)
    lines = [*measured_lines(study), *cost_lines(whole, left, config.runtime.slots)]
    for line in [f"{trained} of {len(study.cells)} cells are trained.", *lines]:
        console.print(Text(line), soft_wrap=True)


def _is_finished(root: Path, cell: Cell) -> bool:
    """Say whether a cell is there; one with a record that cannot be read is not."""
    from dynamicrubric.report.cellfiles import find_cell

    try:
        return find_cell(root, cell) is not None
    except (OSError, ValueError, KeyError, TypeError):
        return False


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


@app.command()
def honesty(
    cells: Annotated[
        list[str], typer.Argument(metavar="CELL...", help="Finished rounds: folders of data/runs.")
    ],
    orders: Annotated[
        int | None,
        typer.Option(min=2, max=16, help="Run the generator: show it each set in so many orders."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="With --orders: at most so many sets a cell.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say what R_disc pays rubrics for: items that quote, repeat, decide nothing, are unscored."""
    from dynamicrubric.honesty_command import run_honesty

    if limit is not None and orders is None:
        raise typer.BadParameter("needs --orders", param_hint="--limit")
    run_honesty(Path(), cells, orders=orders, limit=limit, as_json=as_json)


@app.command()
def probe(
    cells: Annotated[
        list[str], typer.Argument(metavar="CELL...", help="Finished rounds: folders of data/runs.")
    ],
    attack: Annotated[
        list[str] | None, typer.Option(help="An attack; several times for more. None: all.")
    ] = None,
    evaluator: Annotated[
        list[str] | None,
        typer.Option(help="A kind, or a YAML file with an evaluator's values. None: each cell's."),
    ] = None,
    sets: Annotated[int, typer.Option(min=1, help="Sets to attack for each prompt.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="A new folder for the tables, a row an attack and set.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Try to hack the evaluators of finished rounds: score gained beside true quality gained."""
    from dynamicrubric.probe_command import run_probe

    run_probe(Path(), cells, attack or (), evaluator or (), sets, out, as_json=as_json)


add_commands(app)


def _check_names(params: Path, cells: Path, graph: Path | None, check: bool) -> None:
    """Refuse names under which a file of the user's would be lost, before anything is written."""
    if (
        cells.is_dir()
        or cells.suffix not in (".yaml", ".yml")
        or cells.resolve() == params.resolve()
    ):
        raise UserError(
            doing=f"writing {cells}",
            got="a folder" if cells.is_dir() else f"the name {cells}",
            expected=f"the name of a YAML file other than {params}: the plan goes into it, and the "
            "same as JSON beside it",
        )
    if graph is None:
        return
    if check:
        raise UserError(
            doing="checking the plan",
            got=f"--graph {graph} too",
            expected="one of them: a check writes nothing",
        )
    from dynamicrubric.report.latticepicture import check_name

    check_name(graph)


def _check(study: Plan, params: Path, cells: Path) -> None:
    wrong = [str(path) for path in differing(study, cells)]
    if not wrong:
        typer.echo(f"{cells} and {json_path(cells)} match {params}.")
        return
    verb = "does" if len(wrong) == 1 else "do"
    typer.echo(
        f"{' and '.join(wrong)} {verb} not match {params}. Run `dynamicrubric plan`, and commit "
        f"{params}, {cells} and {json_path(cells)} together.",
        err=True,
    )
    raise typer.Exit(1)


def _summary(config: Config, study: Plan) -> list[str]:
    """Say what a study asks for: its size, and one line for each arm."""
    runs = config.study.runs
    width = max(len(run.arm) for run in runs)
    arms = config.study.arms
    asked = [
        f"  {run.arm:<{width}}  {arms[run.arm].question} (seeds: {ranges(run.seeds)})"
        for run in runs
    ]
    return [cell_count(config.study, study), *asked, *measured_lines(study)]


def main() -> None:
    """Entry point of the `dynamicrubric` command."""
    if not sys.stderr.isatty():  # a file of what was printed is no place for bars
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    sys.exit(run_with_boundary(app))


if __name__ == "__main__":
    main()
