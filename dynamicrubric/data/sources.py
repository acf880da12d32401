"""Reads rows one after another from JSON Lines and Parquet files, folders of them, and the hub.

A source is named as a path, or as `hub:owner/name` with `@revision` behind it if one is meant.
Whatever is wrong with a whole source (no such file, an unknown format) is a `UserError`; whatever
is wrong with a row comes out as that row's `RowFault`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TypeVar

from dynamicrubric.data.formats import Format, Origin, TextRow, format_of, parse_row, parse_texts
from dynamicrubric.data.rows import AnchorRow, RowFault
from dynamicrubric.errors import UserError
from dynamicrubric.hub.names import HUB, parse_hub_name

SUFFIXES: Final = (".jsonl", ".parquet")
_EARLY: Final = 1000
"""Rows after which a source that is mostly unreadable is given up, not read to its end."""
_BATCH_ROWS: Final = 64
"""Of a Parquet file, at a time in memory."""
_HEAD_ROWS: Final = 20
"""Of which one has to show the format."""

Row = TypeVar("Row", AnchorRow, TextRow)


@dataclass
class Reading:
    """What was read from one source so far.

    Attributes:
        name: the source as it was named.
        rows: rows seen, good and bad.
        faults: bad rows by fault.
        first_bad: place and fault of the first bad row, in words.
    """

    name: str
    rows: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    first_bad: str = ""

    @property
    def bad(self) -> int:
        """Rows that could not be used."""
        return self.faults.total()

    def note(self, fault: RowFault, place: str) -> None:
        """Count a bad row."""
        self.faults[str(fault)] += 1
        self.first_bad = self.first_bad or f"{fault.words} at {place}"

    def check(self, max_bad_rate: float) -> None:
        """Stop if too many rows are bad.

        Raises:
            UserError: says how many, of what kinds, and where the first one is.
        """
        if self.bad > max_bad_rate * self.rows:
            kinds = ", ".join(f"{name} {count}" for name, count in self.faults.most_common())
            raise UserError(
                doing=f"reading {self.name}",
                got=f"{self.bad} unusable of {self.rows} rows ({kinds}; {self.first_bad})",
                expected=f"at most {max_bad_rate:.0%}",
                remedy="mend the rows, or raise max_bad_rate",
            )


@dataclass(frozen=True)
class Source:
    """One file, or one data set of the hub.

    Attributes:
        name: the path or the hub's name, as shown to people.
        origin: what stands in for fields that rows do not have.
        open: yields each row's place in words and its value, or its fault.
        num_rows: how many there are, if that is known beforehand.
    """

    name: str
    origin: Origin
    open: Callable[[], Iterator[tuple[str, object]]]
    num_rows: int | None = None

    def anchor_rows(
        self, max_bad_rate: float, reading: Reading, limit: int | None = None
    ) -> Iterator[AnchorRow]:
        """Yield the usable ones of the first `limit` rows; `reading` counts the others.

        Raises:
            UserError: an unknown format, no row at all, or more bad rows than `max_bad_rate`.
        """
        head, values = self._begin()
        shape = self._format(head)
        for place, value in islice(values, limit):
            row = value if isinstance(value, RowFault) else parse_row(value, shape, self.origin)
            yield from _counted(row, place, max_bad_rate, reading)
        reading.check(max_bad_rate)

    def text_rows(self, max_bad_rate: float, reading: Reading) -> Iterator[TextRow]:
        """Yield the texts of the usable rows, of any shape that has a prompt.

        Raises:
            UserError: no row at all, or more bad rows than `max_bad_rate`.
        """
        _, values = self._begin()
        for place, value in values:
            bad = value if isinstance(value, RowFault) else None
            row = bad or parse_texts(value, reading.rows + 1, self.origin)
            yield from _counted(row, place, max_bad_rate, reading)
        reading.check(max_bad_rate)

    def _begin(self) -> tuple[list[object], Iterator[tuple[str, object]]]:
        """Return the first rows that can be read, and an iterator over all of them."""
        values = self.open()
        head = list(islice(values, _HEAD_ROWS))
        readable: list[object] = [row for _, row in head if not isinstance(row, RowFault)]
        if readable:
            return readable, chain(head, values)
        place, fault = head[0] if head else ("", None)
        raise UserError(
            doing=f"reading {self.name}",
            got=f"{fault.words} at {place}" if isinstance(fault, RowFault) else "no row",
            expected="a JSON object on each line",
            remedy="mend the file, or name another one",
        )

    def _format(self, head: list[object]) -> Format:
        objects = [row for row in head if isinstance(row, Mapping)]
        shapes: list[Format] = [shape for row in objects if (shape := format_of(row))]
        if not shapes:
            fields = ", ".join(sorted(map(str, objects[0]))[:12]) if objects else ""
            raise UserError(
                doing=f"reading {self.name}: unknown format",
                got=f"the fields {fields}" if objects else f"a {type(head[0]).__name__}",
                expected="prompt and answers (Nectar), or prompt, responses and ranking or tiers",
            )
        return shapes[0]


def open_sources(names: list[str], license_name: str) -> list[Source]:
    """Return the sources of some names; a folder stands for the files in it.

    Args:
        names: paths, or `hub:owner/name[@revision]`.
        license_name: licence of rows that do not name theirs.

    Raises:
        UserError: there is no such file, a folder without data files, or a file of unknown kind.
    """
    found: list[Source] = []
    for name in names:
        if name.startswith(HUB):
            found.append(_hub_source(name, license_name))
        else:
            found += [_file_source(path, license_name) for path in _files(Path(name))]
    return list({source.name: source for source in found}.values())  # named twice, read once


def _counted(
    row: Row | RowFault, place: str, max_bad_rate: float, reading: Reading
) -> Iterator[Row]:
    reading.rows += 1
    if isinstance(row, RowFault):
        reading.note(row, place)
        if reading.rows >= _EARLY and reading.bad > reading.rows / 2:
            reading.check(max_bad_rate)
    else:
        yield row


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(
            file
            for file in path.rglob("*")
            if file.suffix in SUFFIXES
            and not any(part.startswith(".") for part in file.relative_to(path).parts)
        )
        if not found:
            raise UserError(
                doing=f"reading {path}",
                got="a folder without data files",
                expected=f"files that end in {' or '.join(SUFFIXES)}",
            )
        return found
    if not path.is_file():
        raise UserError(
            doing=f"reading {path}",
            got="no such file",
            expected=f"a file, a folder, or {HUB}owner/name",
            remedy="check the path",
        )
    if path.suffix not in SUFFIXES:
        raise UserError(
            doing=f"reading {path}",
            got=f"a file that ends in {path.suffix or 'nothing'}",
            expected=f"one that ends in {' or '.join(SUFFIXES)}",
            remedy="turn it into JSON Lines: one object a line",
        )
    return [path]


def _file_source(path: Path, license_name: str) -> Source:
    origin = Origin(path.stem, license_name)
    if path.suffix == ".jsonl":
        return Source(str(path), origin, lambda: _lines(path))
    return Source(str(path), origin, lambda: _table_rows(path), _table_length(path))


def _lines(path: Path) -> Iterator[tuple[str, object]]:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield f"line {number}", _value(line)


def _value(line: bytes) -> Any:  # noqa: ANN401 - whatever the line holds
    try:
        return json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return RowFault.NOT_UTF8
    except (ValueError, RecursionError):
        return RowFault.NOT_JSON


def _table_length(path: Path) -> int:
    from pyarrow import ArrowException
    from pyarrow.parquet import read_metadata

    try:
        return int(read_metadata(path).num_rows)
    except (ArrowException, OSError) as error:
        raise UserError(
            doing=f"reading {path}",
            got=str(error).partition("\n")[0],
            expected="a Parquet table",
            remedy="fetch the file again",
        ) from None


def _table_rows(path: Path) -> Iterator[tuple[str, object]]:
    from pyarrow.parquet import ParquetFile

    number = 0
    with ParquetFile(path) as table:
        for batch in table.iter_batches(batch_size=_BATCH_ROWS):
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", row


def _hub_source(name: str, license_name: str) -> Source:
    from dynamicrubric.data.hub import LICENSES, stream_rows

    found = parse_hub_name(name)
    repository = found.repository

    def rows() -> Iterator[tuple[str, object]]:
        for number, row in enumerate(stream_rows(repository, found.revision), start=1):
            yield f"row {number}", row

    return Source(name, Origin(repository, LICENSES.get(repository, license_name)), rows)
