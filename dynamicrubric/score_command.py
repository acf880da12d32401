"""`dynamicrubric score`: scores a file of response sets, row by row, and loses none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dynamicrubric.boundary import EXIT_INTERRUPTED
from dynamicrubric.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamicrubric.data.sources import Source
    from dynamicrubric.doors.filescores import Tally
    from dynamicrubric.doors.formats import Format
    from dynamicrubric.doors.opening import EvaluatorOptions


def run_score(
    source_name: str,
    out: Path | None,
    form: str | None,
    batch_rows: int,
    options: EvaluatorOptions,
) -> None:
    """Score a file.

    Args:
        source_name: a .jsonl or .parquet file.
        out: where to; None: beside it.
        form: jsonl or csv; None: as `out` ends.
        batch_rows: rows that are scored together.
        options: the evaluator.

    Raises:
        UserError: the file or an option will not do.
        typer.Exit: with 1 if not one response has a score, with 130 on Ctrl-C.
    """
    from dynamicrubric.doors.filescores import only_one, publish, score_rows
    from dynamicrubric.doors.formats import WRITERS

    source = _source(source_name)
    out, kind = _output(source_name, out, form)
    part = out.with_name(f"{out.name}.part")
    from dynamicrubric.doors.filerows import read_rows
    from dynamicrubric.doors.opening import open_evaluator
    from dynamicrubric.hashing import sha256_of

    identity: dict[str, Any] = {"input": sha256_of(Path(source_name))}
    try:
        with only_one(part):
            with open_evaluator(options) as opened, _progress(_count(source)) as told:
                identity |= {**opened.identity, "seed": options.seed}
                rows = read_rows(source.open(), opened.prompt_ids)
                tally = score_rows(
                    rows,
                    opened.evaluator,
                    part,
                    identity,
                    seed=options.seed,
                    batch_rows=batch_rows,
                    on_row=told,
                )
            publish(part, out, WRITERS[kind])
    except KeyboardInterrupt:  # said here: Typer would turn it into a bare exit code
        typer.echo("Stopped. The same command goes on from here.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    for line in summary(tally, out):
        typer.echo(line, err=True)
    if tally.responses == tally.unscored.total():
        raise typer.Exit(1)


def summary(tally: Tally, out: Path) -> list[str]:
    """Say what became of a file."""
    lines = [
        f"{tally.rows - tally.refused.total()} of {tally.rows} rows scored, "
        f"{tally.responses - tally.unscored.total()} of {tally.responses} responses."
    ]
    for name, count in tally.refused.most_common():
        lines.append(f"  {count} refused: {name}, first at {tally.first_refused[name]}")
    for name, count in tally.unscored.most_common():
        lines.append(f"  {count} responses unscored: {name}")
    for name, count in tally.noted.most_common():
        lines.append(f"  {count} rows noted: {name}")
    cost = tally.cost
    lines.append(
        f"Took {cost.calls} calls, {cost.prompt_tokens} prompt and {cost.completion_tokens} "
        f"completion tokens, {cost.verdicts} verdicts."
    )
    return [*lines, f"Wrote {out}"]


def _source(name: str) -> Source:
    from dynamicrubric.data.sources import open_sources
    from dynamicrubric.hub.names import HUB

    if name.startswith(HUB):
        raise UserError(
            doing=f"scoring {name}",
            got="a data set of the hub",
            expected="a file: a stopped run has to find the same rows again",
            remedy="download it, and name the file",
        )
    found = open_sources([name], "")
    if len(found) != 1:
        raise UserError(
            doing=f"scoring {name}",
            got=f"a folder with {len(found)} data files",
            expected="one file",
            remedy="score them one after another",
        )
    return found[0]


def _output(source: str, out: Path | None, form: str | None) -> tuple[Path, Format]:
    """Return the output's name and format.

    Raises:
        UserError: there is something at the name, or no folder for it.
    """
    kinds: dict[str, Format] = {"jsonl": "jsonl", "csv": "csv"}
    if form is not None and form not in kinds:
        raise UserError(doing="reading --format", got=repr(form), expected="jsonl or csv")
    kind = kinds.get(form or (out.suffix[1:] if out else "jsonl"), "jsonl")
    path = out or Path(source).with_suffix(f".scores.{kind}")
    if path.exists() or not path.parent.is_dir():
        raise UserError(
            doing=f"writing {path}",
            got="something that is there" if path.exists() else "no such folder",
            expected="a new file in a folder that exists",
            remedy="name another one with --out, or remove it",
        )
    return path, kind


def _count(source: Source) -> int | None:
    """Return how many rows there are: known of a table, counted in a file of lines."""
    if source.num_rows is not None:
        return source.num_rows
    with Path(source.name).open("rb") as stream:
        return sum(bool(line.strip()) for line in stream)


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[Tally], None]]:
    """Show how far it is, on standard error: a bar in a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield _lines(total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Left())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("scoring", total=total)

        def told(tally: Tally) -> None:
            unscored = tally.unscored.total() + tally.refused.total()
            words = f"scoring ({unscored} without a score)" if unscored else "scoring"
            bar.update(task, completed=tally.rows, description=words)

        yield told


def _lines(total: int | None) -> Callable[[Tally], None]:
    every = max(10, (total or 1000) // 10)

    def told(tally: Tally) -> None:
        if tally.rows % every == 0 and tally.rows != total:
            typer.echo(f"{tally.rows} of {total} rows", err=True)

    return told
