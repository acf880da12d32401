"""Writes what a run found: figures.json, figures.csv, comparisons.csv, table.md and a picture.

Everything here is made from scores.jsonl and what was read, so that equal runs give equal bytes.
Seconds are in seconds.json alone.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dynamicrubric.benchmarks.compare import Comparison, compare_all
from dynamicrubric.benchmarks.figures import BESIDE, Row, all_rows
from dynamicrubric.benchmarks.outcomes import FIGURES
from dynamicrubric.benchmarks.scored import ScoredItem
from dynamicrubric.benchmarks.table import (
    Table,
    accuracy_table,
    comparison_table,
    data_table,
    list_table,
)
from dynamicrubric.yamlio import replace_text

TABLE_FILE: Final = "table.md"
FIGURES_FILE: Final = "figures.json"
CSV_FILE: Final = "figures.csv"
COMPARISONS_FILE: Final = "comparisons.csv"
PICTURE_FILE: Final = "accuracy.png"


@dataclass(frozen=True)
class Report:
    """What a run found.

    Attributes:
        rows: figures by evaluator and scope.
        comparisons: the reference against the others.
        tables: what people read.
        data: what was read (`Loaded.summary` of each data set).
    """

    rows: list[Row]
    comparisons: list[Comparison]
    tables: tuple[Table, ...]
    data: list[dict[str, Any]]


def make_report(
    scored: Sequence[ScoredItem], data: Sequence[Mapping[str, Any]], reference: str | None
) -> Report:
    """Return figures, comparisons and tables.

    Args:
        scored: all lines of the run.
        data: what was read (`Loaded.summary`), with the first seed.
        reference: evaluator that the others are compared with; None: no comparison.
    """
    rows = all_rows(scored)
    comparisons = compare_all(scored, reference) if reference else []
    tables = [accuracy_table(rows), list_table(rows)]
    tables += [comparison_table(comparisons)] if comparisons else []
    return Report(rows, comparisons, (*tables, data_table(data)), list(map(dict, data)))


def write_report(report: Report, out: Path, title: str = "Evaluators") -> None:
    """Write everything into the run's folder."""
    text = f"# {title}\n\n" + "\n".join(table.markdown() for table in report.tables)
    replace_text(out / TABLE_FILE, text)
    document = {
        "figures": [asdict(row) for row in report.rows],
        "comparisons": [asdict(one) for one in report.comparisons],
        "data": report.data,
        "words": dict(FIGURES),
    }
    replace_text(out / FIGURES_FILE, json.dumps(document, indent=1, allow_nan=False) + "\n")
    replace_text(out / CSV_FILE, csv_text(figure_lines(report.rows)))
    if report.comparisons:
        lines = [_comparison_line(one) for one in report.comparisons]
        replace_text(out / COMPARISONS_FILE, csv_text(lines))
    from dynamicrubric.benchmarks.picture import draw
    from dynamicrubric.report.figures import save_figure

    save_figure(draw(report.rows), out / PICTURE_FILE)


def figure_lines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a line for each figure, with length and place beside it."""
    lines = []
    for row in rows:
        beside = {name: row.figures[name].value for name in BESIDE}
        for name, figure in row.figures.items():
            low, high = figure.interval or (None, None)
            lines.append(
                {
                    "evaluator": row.evaluator,
                    "dataset": row.dataset,
                    "subset": row.subset,
                    "figure": name,
                    "value": figure.value,
                    "low": low,
                    "high": high,
                    "over": figure.over,
                    "lacking": figure.lacking,
                    "n_scored": figure.n_scored,
                    "n_total": figure.n_total,
                    "worst": row.worst if name == "accuracy" else None,
                    "best": row.best if name == "accuracy" else None,
                    "unscored_rate": row.unscored_rate,
                    "num_prompts": row.num_prompts,
                    **{f"beside_{key}": value for key, value in beside.items()},
                    **asdict(row.cost),
                }
            )
    return lines


def csv_text(lines: Sequence[dict[str, Any]]) -> str:
    """Return lines as CSV; None is an empty cell."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return stream.getvalue()


def _comparison_line(one: Comparison) -> dict[str, Any]:
    found = dict(vars(one))
    low, high = found.pop("interval") or (None, None)
    by_seed = found.pop("by_seed")
    return {**found, "low": low, "high": high, "by_seed": json.dumps(by_seed)}
