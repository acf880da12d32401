"""What a cell's calls to endpoints came to: of its trainings from their logs, of the rest as noted.

Measurement is counted too: it is paid like the rest. Without endpoints there is nothing to show.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dynamicrubric.metrics import COST_METRICS
from dynamicrubric.report.cellfiles import CellFiles

Paid = Mapping[str, float | None]
"""Sum by name of `COST_METRICS`; None where a part of it is not known."""
ENGINES: Final = "engines.json"


def paid_of(files: CellFiles) -> Paid | None:
    """Return what one cell's calls came to, None if it made none."""
    return total_paid([*_of_trainings(files), *_of_steps(files)])


def total_paid(parts: Sequence[Mapping[str, float | None] | None]) -> Paid | None:
    """Add up; a sum with an unknown part is unknown, and without any part there is none."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    columns = {name: [part.get(name) for part in known] for name in COST_METRICS}
    return {
        name: None if None in values else sum(value or 0.0 for value in values)
        for name, values in columns.items()
    }


def divided(paid: Paid | None, count: int) -> Paid | None:
    """Return the mean of a sum over so many seeds."""
    if paid is None:
        return None
    return {name: None if value is None else value / count for name, value in paid.items()}


def _of_trainings(files: CellFiles) -> Iterator[Mapping[str, float]]:
    for step in files.training_steps():
        found = {name: value for name, value in step.metrics.items() if name in COST_METRICS}
        if found:
            yield found


def _of_steps(files: CellFiles) -> Iterator[Mapping[str, float]]:
    for name, record in files.records.items():
        if ENGINES in record["files"]:
            document = json.loads(files.file(name, ENGINES).read_text(encoding="utf-8"))
            if "cost" in document:
                yield document["cost"]
