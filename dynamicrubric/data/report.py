"""The contamination report: overlaps of training files with benchmarks, and repeats inside each.

Nothing is changed or left out; `prepare` does that. Training files are read once, benchmark files
twice (once for what repeats in them).
"""

from __future__ import annotations

import csv
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynamicrubric.data.contamination import Benchmarks
from dynamicrubric.data.formats import TextRow
from dynamicrubric.data.overlaps import (
    TABLE_HEADER,
    OverlapTable,
    Write,
    markdown_table,
    overlap_writer,
)
from dynamicrubric.data.settings import DataSettings
from dynamicrubric.data.sources import Reading, Source, open_sources
from dynamicrubric.data.store import Repeat, RowStore
from dynamicrubric.durable import naming

REPEATS_HEADER: Final = (
    *("file", "rows", "unreadable"),
    *(repeat.value.replace("_", " ") for repeat in Repeat),
)
_FILES: Final = ("overlaps.csv", "table.csv", "repeats.csv", "report.md")


@dataclass(frozen=True)
class FileRepeats:
    """What repeats inside one file, or inside all training files together.

    Attributes:
        name: of the file.
        rows: rows of it.
        unreadable: rows that could not be used.
        repeats: rows by what they repeat; only rows with ranked responses are compared.
    """

    name: str
    rows: int
    unreadable: int
    repeats: Counter[Repeat]

    @property
    def cells(self) -> tuple[str, ...]:
        """The row under `REPEATS_HEADER`."""
        numbers = (self.rows, self.unreadable, *(self.repeats[kind] for kind in Repeat))
        return (self.name, *map(str, numbers))


@dataclass(frozen=True)
class Report:
    """A contamination report.

    Attributes:
        table: overlaps by training file and benchmark file.
        repeats: what repeats in the training files together, then in each benchmark file.
        settings: what counts as an overlap.
    """

    table: OverlapTable
    repeats: tuple[FileRepeats, ...]
    settings: DataSettings

    @property
    def is_clean(self) -> bool:
        """True if no training row overlaps a benchmark."""
        return not self.table.total

    def sentence(self) -> str:
        """Say the result in one line."""
        rows = self.table.num_rows.total()
        return f"{self.table.total} of {rows} training rows overlap a benchmark."

    def markdown(self) -> str:
        """Return the report as Markdown."""
        one = self.settings.contamination
        return f"""# Contamination report

{self.sentence()}

{markdown_table(TABLE_HEADER, self.table.lines())}
A training row counts once for each benchmark, under its strongest overlap: the prompt is equal
after normalising, or has the same words; the benchmark's prompt is a sentence of it;
{one.prompt_ngram}-word runs cover at least {one.min_share:.0%} of the benchmark's prompt; at least
{one.min_share_of_training:.0%} of the training prompt lies inside the benchmark's; a response is
equal; {one.response_ngram}-word runs cover at least {one.min_share:.0%} of a benchmark's response.
Each pair of rows is in overlaps.csv.

## Repeats inside the files

{markdown_table(REPEATS_HEADER, [one.cells for one in self.repeats])}
Contradictory: two rows with the same prompt order the same two responses differently. A file of
pairs has several rows with one prompt by design: duplicate prompts are a fault of training files
only.
"""


def check_contamination(
    training: list[str],
    against: list[str],
    settings: DataSettings,
    *,
    out: Path | None = None,
    on_row: Callable[[Source], None] = lambda _: None,
) -> Report:
    """Compare training files with benchmark files.

    Args:
        training: files, folders, or `hub:owner/name[@revision]`.
        against: benchmark files and folders.
        settings: what counts as an overlap.
        out: a folder for overlaps.csv, table.csv, repeats.csv and report.md; None writes nothing.
        on_row: told of every training row.

    Raises:
        UserError: a file cannot be read, or too much of it. Nothing is written then.
    """
    sources = open_sources(training, settings.license)
    benchmarks = open_sources(against, settings.license)
    table = OverlapTable([one.name for one in sources], [one.name for one in benchmarks])
    index = Benchmarks.read(benchmarks, settings.contamination, settings.max_bad_rate)

    with _folder(out) as folder:
        with _writer(folder) as write:

            def rows(source: Source, reading: Reading) -> Iterator[TextRow]:
                for row in source.text_rows(settings.max_bad_rate, reading):
                    on_row(source)
                    found = index.overlaps(row)
                    table.add(source.name, found)
                    for overlap in found:
                        write(source.name, row, overlap)
                    yield row

            inside = [_repeats("all training files", sources, rows)]

        def plainly(source: Source, reading: Reading) -> Iterator[TextRow]:
            return source.text_rows(settings.max_bad_rate, reading)

        inside += [_repeats(Path(one.name).name, [one], plainly) for one in benchmarks]
        report = Report(table, tuple(inside), settings)
        if folder is not None:
            _write_tables(report, folder)
    return report


def _repeats(
    name: str,
    sources: Sequence[Source],
    rows: Callable[[Source, Reading], Iterable[TextRow]],
) -> FileRepeats:
    """Read some files and count what repeats in them, taken together."""
    readings = [Reading(source.name) for source in sources]
    repeats: Counter[Repeat] = Counter()
    with tempfile.TemporaryDirectory() as scratch, RowStore(Path(scratch) / "rows") as store:
        for source, reading in zip(sources, readings, strict=True):
            for row in rows(source, reading):
                if row.anchors is not None:
                    store.add(row.anchors)
        for resolved in store.resolved():
            repeats.update(resolved.removed)
    num_rows = sum(reading.rows for reading in readings)
    return FileRepeats(name, num_rows, sum(reading.bad for reading in readings), repeats)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path | None]:
    """Give a scratch folder whose files go to `out` once all of them are written."""
    if out is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield Path(scratch)
        with naming(out):
            out.mkdir(parents=True, exist_ok=True)
            for name in _FILES:
                whole = out / f".{name}.tmp"
                shutil.copyfile(Path(scratch) / name, whole)
                whole.replace(out / name)


@contextmanager
def _writer(folder: Path | None) -> Iterator[Write]:
    with ExitStack() as stack:
        if folder is None:
            yield lambda *_: None
        else:
            yield stack.enter_context(overlap_writer(folder / "overlaps.csv"))


def _write_tables(report: Report, folder: Path) -> None:
    tables = {
        "table.csv": (TABLE_HEADER, report.table.lines()),
        "repeats.csv": (REPEATS_HEADER, [one.cells for one in report.repeats]),
    }
    for name, (header, lines) in tables.items():
        path = folder / name
        with naming(path), path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([header, *lines])
    with naming(folder / "report.md"):
        (folder / "report.md").write_text(report.markdown(), encoding="utf-8")
