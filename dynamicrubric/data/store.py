"""Rows in a file on the disk, until it is known which of them are duplicates or contradictions.

A row that comes last can contradict the first, so none can be decided on at once. SQLite keeps
them (about the size of their text, plus 50 bytes) and hands them back sorted by prompt hash: what
comes out, and in which order, does not depend on the order in which rows came in. In memory is one
group of rows with the same prompt.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Final, Self

from dynamicrubric.data.rows import AnchorRow

_SETUP: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA temp_store = FILE;
CREATE TABLE kept (prompt BLOB NOT NULL, content BLOB NOT NULL, body TEXT NOT NULL);
"""


class Repeat(StrEnum):
    """Why a row with a prompt that other rows have as well is left out."""

    DUPLICATE_ROW = "duplicate_row"
    """Prompt, responses and order are those of another row, which is kept."""
    CONTRADICTORY = "contradictory"
    """Another row of the prompt orders two of the responses the other way; neither is kept."""
    DUPLICATE_PROMPT = "duplicate_prompt"
    """The prompt, normalised, is that of another row with other responses, which is kept."""


@dataclass(frozen=True)
class Resolved:
    """Rows with the same prompt.

    Attributes:
        kept: the one that stays; None if all contradict another.
        removed: the others by reason.
    """

    kept: AnchorRow | None
    removed: Counter[Repeat]


class RowStore:
    """A file of rows; it is scratch, and gone when the store is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = sqlite3.connect(path)
        self._database.executescript(_SETUP)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        self._path.unlink(missing_ok=True)

    def add(self, row: AnchorRow) -> None:
        """Keep a row."""
        body = json.dumps(asdict(row), ensure_ascii=False)
        values = (row.prompt_hash, row.content_hash, body)
        self._database.execute("INSERT INTO kept VALUES (?, ?, ?)", values)

    def resolved(self) -> Iterator[Resolved]:
        """Yield each prompt's rows with one of them chosen, by prompt hash."""
        self._database.commit()
        self._database.execute("CREATE INDEX IF NOT EXISTS by_prompt ON kept (prompt, content)")
        # By text too: of equal rows with different ids the same one comes first, always.
        query = "SELECT prompt, content, body FROM kept ORDER BY prompt, content, body"
        with closing(self._database.execute(query)) as cursor:
            for _, group in groupby(cursor, key=lambda found: found[0]):
                yield _resolve(group)


def contradictions(rows: Sequence[AnchorRow]) -> set[int]:
    """Return the places of the rows that order two responses as another row does not."""
    seen: dict[tuple[bytes, bytes], dict[int, list[int]]] = {}
    for place, row in enumerate(rows):
        for pair, sign in row.orders().items():
            seen.setdefault(pair, {}).setdefault(sign, []).append(place)
    return {
        place
        for signs in seen.values()
        if len(signs) > 1
        for places in signs.values()
        for place in places
    }


def _resolve(group: Iterable[tuple[bytes, bytes, str]]) -> Resolved:
    removed: Counter[Repeat] = Counter()
    distinct: dict[bytes, AnchorRow] = {}
    for _, content, body in group:
        if content in distinct:
            removed[Repeat.DUPLICATE_ROW] += 1
        else:
            distinct[content] = _row(body)
    rows = list(distinct.values())
    against = contradictions(rows) if len(rows) > 1 else set()
    removed[Repeat.CONTRADICTORY] += len(against)
    left = [row for place, row in enumerate(rows) if place not in against]
    removed[Repeat.DUPLICATE_PROMPT] += max(0, len(left) - 1)
    return Resolved(left[0] if left else None, +removed)


def _row(body: str) -> AnchorRow:
    fields = json.loads(body)
    for name in ("turns", "responses", "tiers"):
        fields[name] = tuple(fields[name])
    return AnchorRow(**fields)
