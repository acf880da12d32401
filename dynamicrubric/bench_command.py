"""`dynamicrubric bench`: how well evaluators order responses, and how good their rubrics are.

Only typer is imported here; what reads data or opens models is imported by the command that does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from dynamicrubric.benchmarks.loaders import Loaded
    from dynamicrubric.benchmarks.run import Progress, Task
    from dynamicrubric.benchmarks.scored import ScoredItem
    from dynamicrubric.benchmarks.settings import BenchSettings
    from dynamicrubric.benchmarks.table import Table

_Settings = TypeVar("_Settings", bound="BenchSettings")

app = typer.Typer(help="Measure evaluators on ranked responses.", no_args_is_help=True)

SettingsArgument = Annotated[Path, typer.Argument(metavar="SETTINGS", help="A YAML file.")]
OutOption = Annotated[
    Path, typer.Option("--out", help="The run's folder; one that was begun goes on.")
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, help="At most so many items of each data set.")
]
SeedsOption = Annotated[
    str | None, typer.Option("--seeds", help="Such as 1-5 or 1,3, instead of the file's.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--evaluator", help="This evaluator alone; may be given several times."),
]


@app.command()
def evaluator(
    settings: SettingsArgument,
    out: OutOption,
    limit: LimitOption = None,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
) -> None:
    """Score data sets with evaluators: accuracy and lists, with length, flips, ties and cost."""
    from dynamicrubric.benchmarks.settings import BenchSettings, load_settings

    chosen = _changed(load_settings(settings, BenchSettings), limit, seeds, only)
    _run_and_report(chosen, out)


@app.command()
def seeds(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Finished runs.")],
    out: OutOption,
    reference: Annotated[
        str | None, typer.Option(help="Evaluator that the others are compared with.")
    ] = None,
) -> None:
    """Join runs that differ in their seeds alone into one table with intervals over seeds."""
    from dynamicrubric.benchmarks.join import join_runs
    from dynamicrubric.benchmarks.report import write_report

    report = join_runs(folders, out, reference)
    write_report(report, out)
    _print_tables(report.tables)
    typer.echo(f"Wrote {out}")


@app.command()
def swap(
    settings: SettingsArgument,
    out: OutOption,
    limit: LimitOption = None,
    seeds: SeedsOption = None,
) -> None:
    """Score with the same evaluators under several verifiers: does their order hold?"""
    from dynamicrubric.benchmarks.report import make_report, write_report
    from dynamicrubric.benchmarks.settings import SwapSettings, load_settings
    from dynamicrubric.benchmarks.swap import blocks_of, compare_blocks, swap_tables, swapped

    chosen = _changed(load_settings(settings, SwapSettings), limit, seeds, None)
    task, scored = _run(swapped(chosen), out)
    report = make_report(scored, task.summaries, None)
    comparisons = compare_blocks(scored, chosen)
    tables = (*swap_tables(blocks_of(scored), comparisons), *report.tables)
    write_report(replace(report, comparisons=comparisons, tables=tables), out, "Verifiers")
    _finish(tables, out)


@app.command()
def rubrics(
    settings: SettingsArgument,
    out: OutOption,
    limit: LimitOption = None,
    seeds: SeedsOption = None,
) -> None:
    """Compare the rubrics of two generators in six dimensions, by a judge or exactly."""
    from dynamicrubric.benchmarks.report import make_report, write_report
    from dynamicrubric.benchmarks.rubricrun import compare_rubrics
    from dynamicrubric.benchmarks.settings import RubricsSettings, load_settings

    chosen = _changed(load_settings(settings, RubricsSettings), limit, seeds, None)
    task, scored = _run(chosen, out)
    table = compare_rubrics(chosen, task, scored, out)
    report = make_report(scored, task.summaries, chosen.reference)
    tables = (table, *report.tables)
    write_report(replace(report, tables=tables), out, "Rubrics")
    _finish(tables, out)


def _run_and_report(settings: BenchSettings, out: Path) -> None:
    from dynamicrubric.benchmarks.report import make_report, write_report

    task, scored = _run(settings, out)
    report = make_report(scored, task.summaries, settings.reference)
    write_report(report, out)
    _finish(report.tables, out)


def _run(settings: BenchSettings, out: Path) -> tuple[Task, list[ScoredItem]]:
    from dynamicrubric.benchmarks.opening import task_of
    from dynamicrubric.benchmarks.run import run

    task = task_of(settings)
    _tell_refusals(task.data[task.seeds[0]])
    with progress_of(task) as progress:
        return task, run(task, out, progress)


def _finish(tables: Sequence[Table], out: Path) -> None:
    _print_tables(tables)
    _print_seconds(out)
    typer.echo(f"Wrote {out}")


def _changed(
    settings: _Settings, limit: int | None, seeds: str | None, only: Sequence[str] | None
) -> _Settings:
    """Return settings with what the command line says instead of the file."""
    from dynamicrubric.errors import UserError
    from dynamicrubric.selection import split_seeds

    changed: dict[str, object] = {} if limit is None else {"limit": limit}
    if seeds is not None:
        changed["seeds"] = tuple(dict.fromkeys(split_seeds(seeds)))
    if only:
        labels = [one.label for one in settings.evaluators]
        unknown = [name for name in only if name not in labels]
        if unknown:
            raise UserError(
                doing="choosing evaluators",
                got=repr(unknown[0]),
                expected=f"of {', '.join(labels)}",
            )
        changed["evaluators"] = tuple(one for one in settings.evaluators if one.label in only)
        if settings.reference not in only:
            changed["reference"] = None
    return settings.model_copy(update=changed)


def _tell_refusals(data: Sequence[Loaded]) -> None:
    """Say on stderr which rows are refused, the first of each data set in words."""
    for loaded in data:
        if loaded.refusals:
            first = loaded.refusals[0]
            where = f"{first.place}, {first.field}" if first.field else first.place
            typer.echo(
                f"{loaded.name}: {len(loaded.refusals)} of {loaded.rows} rows refused; "
                f"{where}: {first.reason} ({first.got})",
                err=True,
            )


@contextmanager
def progress_of(task: Task) -> Iterator[Progress]:
    """Show how far the run is and what it is on, on a terminal's stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from dynamicrubric.benchmarks.run import Progress
    from dynamicrubric.benchmarks.runfiles import Chunk

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
    shown = bar.add_task("starting", total=None)
    part = ("", "")

    def on_start(done: int, total: int) -> None:
        bar.update(shown, total=total, completed=done)
        if done:
            typer.echo(f"{done} of {total} were scored before; going on", err=True)

    def on_chunk(chunk: Chunk) -> None:
        nonlocal part
        bar.update(shown, description=f"{chunk.evaluator} on {chunk.dataset}, seed {chunk.seed}")
        bar.advance(shown, len(chunk.items))
        if not console.is_terminal and (chunk.evaluator, chunk.dataset) != part:
            part = chunk.evaluator, chunk.dataset
            typer.echo(f"seed {chunk.seed}: {chunk.evaluator} on {chunk.dataset}", err=True)

    with bar:
        yield Progress(on_start, on_chunk)


def _print_tables(tables: Sequence[Table]) -> None:
    """Print tables; their cells are data, never markup."""
    from rich.console import Console
    from rich.table import Table as Shown
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=220)
    for table in tables:
        shown = Shown(title=table.title, title_justify="left")
        for place, name in enumerate(table.header):
            shown.add_column(name, justify="left" if place < 3 else "right")
        for line in table.lines:
            shown.add_row(*map(Text, line))
        console.print(shown)


def _print_seconds(out: Path) -> None:
    import json

    from dynamicrubric.benchmarks.runfiles import SECONDS_FILE

    found = json.loads((out / SECONDS_FILE).read_text(encoding="utf-8"))
    for part, taken in found.items():
        typer.echo(f"{taken:10.1f} s  {part}")
