"""The parts of Delta_gap by arm and round, seeds put together, and as rows of CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dynamicrubric.report.gapparts import PARTS, GapParts, parts_together
from dynamicrubric.report.gather import Gathered
from dynamicrubric.report.outcomes import OutcomeTable
from dynamicrubric.theory import CHOICES

FIGURES: Final = ("delta_gap", "gap_disc", "gap_wrong", "r_cov", "wrong_way_share")
"""Round metrics of the tables and the picture."""
Parts = Mapping[tuple[str, int], GapParts]
"""Parts by (arm, round), seeds put together."""


@dataclass(frozen=True)
class GapFigures:
    """All that is told of the parts.

    Attributes:
        table: every figure.
        parts: by item.
    """

    table: OutcomeTable
    parts: Parts


def gap_figures(table: OutcomeTable, gathered: Gathered) -> GapFigures:
    """Put the parts of the seeds of each arm and round together; rounds without cells left out."""
    parts = {
        (arm, number): parts_together([digest.parts for digest in cells])
        for arm in table.arms
        for number in range(table.last_round + 1)
        if (cells := gathered.of(arm, number))
    }
    return GapFigures(table, parts)


def part_rows(found: GapFigures) -> Iterator[dict[str, Any]]:
    """Return a row an arm and round: means over seeds, and Delta_gap under other choices of P."""
    for (arm, round_number), parts in found.parts.items():
        seeds = found.table.outcomes(arm, round_number, "delta_gap")
        yield {
            "arm": arm, "round": round_number,
            **{name: found.table.mean(arm, round_number, name) for name in FIGURES},
            **{f"delta_gap_{choice}": parts.gap_under(choice) for choice in CHOICES},
            "seeds": " ".join(str(row.seed) for row in seeds), "sets": parts.sets,
            "identity_error": parts.identity_error, "deviation": parts.deviation,
        }  # fmt: skip


def item_rows(found: GapFigures) -> Iterator[dict[str, Any]]:
    """Return a row an arm, round and criterion: what its items add to each part, a set."""
    for (arm, round_number), parts in found.parts.items():
        for text, own in parts.criteria.items():
            yield {
                "arm": arm, "round": round_number, "criterion": text, "items": own.items,
                "sets": parts.sets,
                **{name: getattr(own, name) / parts.sets for name in PARTS},
                "wrong_way_share": own.wrong_way_share,
            }  # fmt: skip
