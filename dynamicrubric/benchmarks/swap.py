"""The same evaluators under several verifiers: does their order hold in each block (paper, F.1)?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from dynamicrubric.benchmarks.compare import Comparison, compare_all
from dynamicrubric.benchmarks.figures import Row, all_rows
from dynamicrubric.benchmarks.outcomes import kendall
from dynamicrubric.benchmarks.schema import ALL, MACRO
from dynamicrubric.benchmarks.scored import ScoredItem
from dynamicrubric.benchmarks.settings import BenchSettings, SwapSettings
from dynamicrubric.benchmarks.table import NONE, Table, comparison_table, interval, number
from dynamicrubric.stats import holm

UNDER: Final = " @ "
"""Between the name of an evaluator and that of its verifier."""


@dataclass(frozen=True)
class Block:
    """The evaluators under one verifier, on one data set.

    Attributes:
        dataset: the data set's name.
        verifier: the verifier's name.
        rows: an evaluator's row each, in the settings' order.
        same_best: whether the best evaluator is that of the first block; None without figures.
        reversed_pairs: pairs of evaluators that stand the other way round than in the first block.
        tau: Kendall's tau-b of the two orders.
    """

    dataset: str
    verifier: str
    rows: tuple[Row, ...]
    same_best: bool | None
    reversed_pairs: tuple[tuple[str, str], ...]
    tau: float | None

    @property
    def holds(self) -> bool | None:
        """Whether no pair of evaluators is reversed; None without figures."""
        return None if self.tau is None else not self.reversed_pairs


def swapped(settings: SwapSettings) -> BenchSettings:
    """Return the run in which every evaluator stands once under every verifier."""
    specs = tuple(
        one.model_copy(update={"name": one.label + UNDER + named.name, "verifier": named.verifier})
        for named in settings.verifiers
        for one in settings.evaluators
    )
    known = {name: getattr(settings, name) for name in BenchSettings.model_fields}
    return BenchSettings.model_construct(**{**known, "evaluators": specs, "reference": None})


def blocks_of(scored: Sequence[ScoredItem]) -> list[Block]:
    """Return the blocks by data set and verifier, each compared with its data set's first."""
    rows = [row for row in all_rows(scored) if row.subset in (MACRO, ALL)]
    several = {row.dataset for row in rows if row.subset == MACRO}
    rows = [row for row in rows if (row.subset == MACRO) == (row.dataset in several)]
    found: list[Block] = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        own = [row for row in rows if row.dataset == dataset]
        verifiers = list(dict.fromkeys(verifier_of(row.evaluator) for row in own))
        first = [row for row in own if verifier_of(row.evaluator) == verifiers[0]]
        for verifier in verifiers:
            block = [row for row in own if verifier_of(row.evaluator) == verifier]
            found.append(_block(dataset, verifier, block, first))
    return found


def _block(dataset: str, verifier: str, rows: Sequence[Row], first: Sequence[Row]) -> Block:
    now, before = [_value(row) for row in rows], [_value(row) for row in first]
    known = [(a, b) for a, b in zip(now, before, strict=True) if a is not None and b is not None]
    if len(known) < len(rows) or len(rows) < 2:
        return Block(dataset, verifier, tuple(rows), None, (), None)
    a, b = [one for one, _ in known], [one for _, one in known]
    names = [generator_of(row.evaluator) for row in rows]
    turned = tuple(
        (names[m], names[n])
        for m, n in combinations(range(len(rows)), 2)
        if (a[m] - a[n]) * (b[m] - b[n]) < 0
    )
    ranks = [sorted(b, reverse=True).index(value) for value in b]
    return Block(
        dataset, verifier, tuple(rows), a.index(max(a)) == b.index(max(b)), turned,
        kendall(a, ranks),
    )  # fmt: skip


def compare_blocks(scored: Sequence[ScoredItem], settings: SwapSettings) -> list[Comparison]:
    """Compare the reference with the others under each verifier; Holm over all of them."""
    if settings.reference is None:
        return []
    found: list[Comparison] = []
    for named in settings.verifiers:
        own = [one for one in scored if verifier_of(one.evaluator) == named.name]
        found += compare_all(own, settings.reference + UNDER + named.name)
    kept = [one for one in found if one.subset in (MACRO, ALL)]
    corrected = holm([one.p_value for one in kept])
    return [replace(one, p_holm=p) for one, p in zip(kept, corrected, strict=True)]


def swap_tables(blocks: Sequence[Block], comparisons: Sequence[Comparison]) -> tuple[Table, ...]:
    """Return the blocks, whether the order holds in each, and the differences."""
    lines = []
    for block in blocks:
        values = sorted(
            (value for row in block.rows if (value := _value(row)) is not None), reverse=True
        )
        for row in block.rows:
            figure, value = row.figures["accuracy"], _value(row)
            lines.append(
                (
                    block.dataset,
                    block.verifier,
                    generator_of(row.evaluator),
                    number(value),
                    interval(figure),
                    NONE if value is None else str(values.index(value) + 1),
                    *(
                        number(row.figures[name].value)
                        for name in ("longer_wins", "flip_rate", "accuracy_longer_loses")
                    ),
                    f"{row.unscored_rate:.1%}",
                    number(row.worst),
                    number(row.best),
                )
            )
    header = (
        "data set", "verifier", "evaluator", "accuracy", "95 % interval", "rank", "longer wins",
        "flips", "longer loses", "unscored", "worst", "best",
    )  # fmt: skip
    orders = [
        (
            block.dataset,
            block.verifier,
            _yes(block.holds),
            _yes(block.same_best),
            number(block.tau),
            ", ".join(f"{a} / {b}" for a, b in block.reversed_pairs) or NONE,
        )
        for block in blocks
    ]
    found = [
        Table("Evaluators under each verifier", header, tuple(lines)),
        Table(
            "Does the order of the evaluators hold?",
            ("data set", "verifier", "order holds", "same best", "Kendall", "reversed pairs"),
            tuple(orders),
            "Compared with the first verifier of the data set, by accuracy alone: pairs may be "
            "reversed within their intervals.",
        ),
    ]
    return (*found, *([comparison_table(comparisons)] if comparisons else []))


def generator_of(evaluator: str) -> str:
    """Return an evaluator's name without its verifier's."""
    return evaluator.rpartition(UNDER)[0]


def verifier_of(evaluator: str) -> str:
    """Return the name of an evaluator's verifier."""
    return evaluator.rpartition(UNDER)[2]


def _value(row: Row) -> float | None:
    return row.figures["accuracy"].value


def _yes(value: bool | None) -> str:
    return NONE if value is None else "yes" if value else "no"
