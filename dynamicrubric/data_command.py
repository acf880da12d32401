"""`dynamicrubric data`: prepares data sets and reports their overlap with benchmarks.

Only typer is imported here; what reads data is imported by the command that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dynamicrubric.data.sources import Source

app = typer.Typer(
    help="Prepare your own data, and check it against benchmarks.", no_args_is_help=True
)

SourcesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="Files (.jsonl, .parquet), folders, or hub:owner/name[@revision], in Nectar's format "
        "or with prompt, responses and ranking or tiers.",
    ),
]
AgainstOption = Annotated[
    list[str] | None,
    typer.Option("--against", help="A benchmark file or folder; may be given several times."),
]
SettingsOption = Annotated[
    Path | None, typer.Option("--settings", help="YAML: filters, contamination, splits.")
]


@app.command()
def prepare(
    sources: SourcesArgument,
    out: Annotated[Path, typer.Option("--out", help="The folder to make.")],
    against: AgainstOption = None,
    settings: SettingsOption = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Read at most so many rows of each source.")
    ] = None,
) -> None:
    """Filter anchor lists, keep benchmarks out, split by prompt, and write a data card beside."""
    from dynamicrubric.data.prepare import prepare as run
    from dynamicrubric.data.settings import load_settings

    with _progress() as on_row:
        found = run(
            sources, against or [], out, load_settings(settings), limit=limit, on_row=on_row
        )
    lines = [(stage, why, str(n), str(left)) for stage, why, n, left in found.tally.steps()]
    start = ("", "read", "", str(found.tally.num_read))
    _print_table("Rows", ("stage", "reason", "rows", "left"), [start, *lines])
    kept = found.tally.kept
    typer.echo(
        f"Wrote {kept['train'].rows} training and {kept['heldout'].rows} held-out prompts to {out}"
    )
    if not against:
        typer.echo("Not compared with any benchmark: name those you will report with --against.")


@app.command()
def contamination(
    training: SourcesArgument,
    against: AgainstOption = None,
    settings: SettingsOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder for the report as Markdown and CSV.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if a training row overlaps a benchmark.")
    ] = False,
) -> None:
    """Report training rows that are rows of a benchmark, and what repeats or contradicts itself."""
    from dynamicrubric.data.overlaps import TABLE_HEADER
    from dynamicrubric.data.report import REPEATS_HEADER, check_contamination
    from dynamicrubric.data.settings import load_settings

    if not against:
        raise typer.BadParameter("name at least one benchmark file", param_hint="--against")
    with _progress() as on_row:
        report = check_contamination(
            training, against, load_settings(settings), out=out, on_row=on_row
        )
    _print_table("Overlaps", *_without_empty_columns(TABLE_HEADER, report.table.lines()))
    _print_table("Repeats", REPEATS_HEADER, [one.cells for one in report.repeats])
    typer.echo(report.sentence())
    if out is not None:
        typer.echo(f"Wrote {out / 'report.md'} and {out / 'overlaps.csv'}")
    if check and not report.is_clean:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Callable[[Source], None]]:
    """Show how many rows of each source were read, on a terminal's stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    tasks = {}

    def on_row(source: Source) -> None:
        if source.name not in tasks:
            tasks[source.name] = shown.add_task(Path(source.name).name, total=source.num_rows)
        shown.advance(tasks[source.name])

    with shown:
        yield on_row


def _without_empty_columns(
    header: Sequence[str], lines: Sequence[Sequence[str]]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Leave out kinds of overlap that did not occur: the table has to fit a terminal."""
    last = len(header) - 2  # the sums stay
    kept = [
        place
        for place in range(len(header))
        if place < 2 or place >= last or any(line[place] != "0" for line in lines)
    ]
    return [header[place] for place in kept], [[line[place] for place in kept] for line in lines]


def _print_table(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Print a table; its cells are data, never markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    words = 2 if header[0] in ("stage", "training file") else 1
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number < words else "right")
    for line in lines:
        table.add_row(*map(Text, line))
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(table)
