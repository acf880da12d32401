"""Tables of a run as rows of text: for the console, for Markdown, for both alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dynamicrubric.benchmarks.compare import MOST_SUBSETS, Comparison
from dynamicrubric.benchmarks.figures import Figure, Row
from dynamicrubric.benchmarks.schema import ALL, MACRO
from dynamicrubric.report.phrases import p_text
from dynamicrubric.report.text import markdown_inline

NONE: Final = "-"


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        title: what it shows.
        header: names of the columns.
        lines: their cells.
        note: what has to be known to read it.
    """

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """Return it as Markdown; cells are data, never markup."""
        rows = [self.header, tuple("---" for _ in self.header), *self.lines]
        shown = [rows[0], rows[1], *(tuple(map(markdown_inline, line)) for line in rows[2:])]
        lines = "".join(f"| {' | '.join(line)} |\n" for line in shown)
        note = f"{self.note}\n\n" if self.note else ""
        return f"## {self.title}\n\n{note}{lines}"


def shown_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that a table has room for: of many subsets their means alone."""
    subsets: dict[str, set[str]] = {}
    for row in rows:
        subsets.setdefault(row.dataset, set()).add(row.subset)
    wide = {name for name, own in subsets.items() if len(own - {MACRO, ALL}) > MOST_SUBSETS}
    kept = [row for row in rows if row.dataset not in wide or row.subset in (MACRO, ALL)]
    order = {name: place for place, name in enumerate(dict.fromkeys(row.dataset for row in rows))}
    scopes = {name: place for place, name in enumerate(dict.fromkeys(row.subset for row in kept))}
    last = {MACRO: 1, ALL: 2}
    return sorted(
        kept, key=lambda row: (order[row.dataset], last.get(row.subset, 0), scopes[row.subset])
    )


def accuracy_table(rows: Sequence[Row]) -> Table:
    """Return pairwise accuracy with all that has to stand beside it, and what it cost."""
    lines = [
        (
            *_names(row),
            str(row.num_items),
            number(row.figures["accuracy"].value),
            interval(row.figures["accuracy"]),
            *_beside(row),
            number(row.figures["prefers_longer"].value),
            number(row.figures["tie_rate"].value),
            *_unscored(row),
            str(row.cost.calls),
            str(row.cost.prompt_tokens + row.cost.completion_tokens),
        )
        for row in shown_rows(rows)
    ]
    header = (
        "data set", "subset", "evaluator", "items", "accuracy", "95 % interval", "longer wins",
        "flips", "longer loses", "picks longer", "ties", "unscored", "worst", "best", "calls",
        "tokens",
    )  # fmt: skip
    note = (
        "`accuracy`: pairs put in the data set's order, ties 1/2. `longer wins`: what length alone "
        "would reach. `flips`: pairs on which both orders of the responses do not say the same. "
        "`longer loses`: accuracy on the pairs whose longer response is the worse one. `worst`, "
        "`best`: accuracy if every unscored pair were lost, or won. `macro`: mean over subsets; "
        "`all`: mean over items."
    )
    return Table("Pairwise accuracy", header, tuple(lines), note)


def list_table(rows: Sequence[Row]) -> Table:
    """Return the figures of whole lists, with length and place beside each."""
    names = ("listwise_accuracy", "kendall", "ndcg", "best_of_n", "chosen_quality")
    lines = []
    for row in shown_rows(rows):
        cells = [f"{number(row.figures[n].value)} {interval(row.figures[n])}" for n in names]
        lines.append((*_names(row), *cells, *_beside(row)))
    header = (
        "data set", "subset", "evaluator", "whole list", "Kendall", "nDCG", "best of n",
        "quality chosen", "longer wins", "flips", "longer loses",
    )  # fmt: skip
    note = (
        "`whole list`: chance that its order, ties broken at random, is the data set's. "
        "`best of n`: chance that what it puts first is of the best tier. In brackets: 95 % "
        "interval."
    )
    return Table("Lists", header, tuple(lines), note)


def _p_value(value: float | None) -> str:
    return NONE if value is None else p_text(value)


def comparison_table(found: Sequence[Comparison]) -> Table:
    """Return the paired differences."""
    lines = [
        (
            one.dataset,
            one.subset,
            f"{one.reference} - {one.other}",
            number(one.difference, signed=True),
            NONE if one.interval is None else _ends(one.interval, signed=True),
            _p_value(one.p_value),
            _p_value(one.p_holm),
            str(one.n_items),
            one.over or one.lacking,
            ", ".join(number(value, signed=True) for value in one.by_seed.values()),
        )
        for one in found
    ]
    header = (
        "data set", "subset", "difference", "accuracy", "95 % interval", "p", "p (Holm)", "items",
        "over", "by seed",
    )  # fmt: skip
    note = "Items that both scored, paired. Holm (1979) over all rows of this table."
    return Table("Paired differences", header, tuple(lines), note)


def data_table(data: Sequence[Mapping[str, Any]]) -> Table:
    """Return what was read, and what was refused by reason (`Loaded.summary` of each)."""
    lines = [
        (
            str(one["name"]),
            str(one["rows"]),
            str(one["items"]),
            str(one["refused"]),
            ", ".join(f"{reason} {count}" for reason, count in one["reasons"].items()) or NONE,
            str(one["flagged"]),
        )
        for one in data
    ]
    header = ("data set", "rows read", "items scored", "refused", "reasons", "flagged")
    note = "Refused rows are in refused.jsonl, each with its line and field."
    return Table("Data", header, tuple(lines), note)


def number(value: float | None, *, signed: bool = False) -> str:
    """Show a figure with three decimals; what is not there as a dash."""
    if value is None:
        return NONE
    shown = f"{value:+.3f}" if signed else f"{value:.3f}"
    return shown.replace("-0.000", "0.000").replace("+0.000", "0.000")


def interval(figure: Figure) -> str:
    """Show an interval; without one a dash."""
    return NONE if figure.interval is None else _ends(figure.interval)


def _ends(ends: tuple[float, float], *, signed: bool = False) -> str:
    return f"[{number(ends[0], signed=signed)}, {number(ends[1], signed=signed)}]"


def _names(row: Row) -> tuple[str, str, str]:
    return row.dataset, row.subset, row.evaluator


def _beside(row: Row) -> tuple[str, str, str]:
    return (
        number(row.figures["longer_wins"].value),
        number(row.figures["flip_rate"].value),
        number(row.figures["accuracy_longer_loses"].value),
    )


def _unscored(row: Row) -> tuple[str, str, str]:
    return f"{row.unscored_rate:.1%}", number(row.worst), number(row.best)
