"""How the scores of a file are written: a JSON document for each row, or a CSV row a response."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

Format = Literal["jsonl", "csv"]
COLUMNS: Final = (
    "place",
    "id",
    "response",
    "score",
    "reason",
    "verdicts",
    "rubric",
    "invalid_rubric",
    "refused",
    "field",
    "notes",
    "evaluator",
)


def write_jsonl(rows: Iterator[dict[str, Any]], path: Path) -> None:
    """Write one document a line."""
    with path.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, allow_nan=False) + "\n")


def write_csv(rows: Iterator[dict[str, Any]], path: Path) -> None:
    """Write one row a response; a refused row of the input has one too, without a response."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        for row in rows:
            for place in range(max(1, len(row["scores"]))):
                writer.writerow({key: _inert(value) for key, value in _cells(row, place).items()})


WRITERS: Final[dict[Format, Callable[[Iterator[dict[str, Any]], Path], None]]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
}


def _cells(row: Mapping[str, Any], place: int) -> dict[str, Any]:
    there = place < len(row["scores"])
    items = row["rubric"] or []
    verdicts = row["verdicts"][place] if row["verdicts"] and there else []
    invalid = row["invalid_rubric"]
    return {
        "place": row["place"],
        "id": row["id"],
        "response": place if there else None,
        "score": row["scores"][place] if there else None,
        "reason": row["reasons"][place] if there else None,
        "verdicts": " ".join(verdict["value"] for verdict in verdicts),
        "rubric": "; ".join(f"{item['criterion']} ({item['weight']})" for item in items),
        "invalid_rubric": invalid["reason"] if invalid else None,
        "refused": row["refused"],
        "field": row["field"],
        "notes": "; ".join(row["notes"]),
        "evaluator": row["evaluator"],
    }


def _inert(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula: what models write is only text."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
