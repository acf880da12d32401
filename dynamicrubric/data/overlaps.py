"""Counts overlaps by training file and benchmark, lists them in a CSV, shows them as a table."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dynamicrubric.data.contamination import Overlap, OverlapKind, excerpt
from dynamicrubric.data.formats import TextRow
from dynamicrubric.durable import naming

COLUMNS: Final = (
    *("training_file", "training_row", "benchmark_file", "benchmark_row", "kind"),
    *("share_of_benchmark", "share_of_training", "training_prompt", "benchmark_prompt"),
)
TABLE_HEADER: Final = (
    "training file",
    "benchmark",
    *(kind.value.replace("_", " ") for kind in OverlapKind),
    "training rows",
    "benchmark rows",
)
Write = Callable[[str, TextRow, Overlap], None]


class OverlapTable:
    """How many rows overlap, for each training file and benchmark file.

    A training row counts once for each benchmark file, under its strongest kind. In memory are
    counts, and which benchmark rows were touched: no training row.
    """

    def __init__(self, training: Sequence[str], benchmarks: Sequence[str]) -> None:
        self.training = tuple(training)
        self.benchmarks = tuple(benchmarks)
        self.num_rows: Counter[str] = Counter()
        self.num_overlapping: Counter[str] = Counter()
        self._kinds: dict[tuple[str, str], Counter[OverlapKind]] = {}
        self._touched: dict[tuple[str, str], set[int]] = {}

    def add(self, training: str, found: Sequence[Overlap]) -> None:
        """Count one training row with all of its overlaps, none perhaps."""
        self.num_rows[training] += 1
        self.num_overlapping[training] += bool(found)
        by_file: dict[str, list[Overlap]] = {}
        for overlap in found:
            by_file.setdefault(overlap.row.file, []).append(overlap)
        for file, overlaps in by_file.items():
            strongest = min(overlaps, key=lambda one: one.rank)
            self._kinds.setdefault((training, file), Counter())[strongest.kind] += 1
            touched = self._touched.setdefault((training, file), set())
            touched.update(one.row.number for one in overlaps)

    def kinds(self, training: str, benchmark: str) -> Counter[OverlapKind]:
        """Return the training rows by their strongest overlap with a benchmark file."""
        return self._kinds.get((training, benchmark), Counter())

    def num_touched(self, training: str, benchmark: str) -> int:
        """Return how many rows of a benchmark file some training row overlaps."""
        return len(self._touched.get((training, benchmark), ()))

    @property
    def total(self) -> int:
        """Training rows that overlap any benchmark."""
        return self.num_overlapping.total()

    def lines(self) -> list[tuple[str, ...]]:
        """Return the table under `TABLE_HEADER`, files by the last part of their name."""
        found = []
        for training in self.training:
            for benchmark in self.benchmarks:
                kinds = self.kinds(training, benchmark)
                numbers = [kinds[kind] for kind in OverlapKind]
                numbers += [kinds.total(), self.num_touched(training, benchmark)]
                names = (Path(training).name, Path(benchmark).name)
                found.append((*names, *map(str, numbers)))
        return found


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; bars and line breaks inside cells are made harmless."""
    rows = [header, ["---"] * len(header), *lines]
    return "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in rows)


@contextmanager
def overlap_writer(path: Path) -> Iterator[Write]:
    """Open a CSV of overlaps; yields a function that adds one (training file, row, overlap)."""
    with naming(path), path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)

        def write(training: str, texts: TextRow, overlap: Overlap) -> None:
            writer.writerow(
                (
                    *(Path(training).name, texts.id, Path(overlap.row.file).name, overlap.row.id),
                    overlap.kind.value,
                    *(f"{overlap.of_benchmark:.3f}", f"{overlap.of_training:.3f}"),
                    *(excerpt(texts.prompts[0]), overlap.row.excerpt),
                )
            )

        yield write


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
