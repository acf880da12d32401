"""What discriminability is made of: the exact parts of Delta_gap, by item and by arm.

    Delta_gap = c_K R_disc - 2 R_dir - R_cov

holds for every set by itself (`theory.decompose`). Here it is done again from the stored tables, by
another way than the round's own figures went: verdicts, weights and true quality are read back, and
each item's share is kept by its criterion. No evaluation is run again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dynamicrubric.report.cellfiles import GAP_PARTS
from dynamicrubric.report.celltables import CellTables
from dynamicrubric.theory import (
    CHOICES,
    DEFAULT_CHOICE,
    Decomposition,
    ItemParts,
    Reference,
    decompose,
    item_parts,
    pairs,
    wrong_way_share,
)

PARTS: Final = ("delta_gap", "disc", "wrong", "cov")
"""Fields of `ItemParts`: Delta_gap, c_K R_disc, 2 R_dir and R_cov."""


@dataclass(frozen=True)
class ItemSums:
    """What the items with one criterion add to the parts, summed over sets.

    Attributes:
        items: how many items have it.
        delta_gap: added to Delta_gap; the others likewise.
        disc: to c_K R_disc.
        wrong: to 2 R_dir.
        cov: to R_cov.
    """

    items: int = 0
    delta_gap: float = 0.0
    disc: float = 0.0
    wrong: float = 0.0
    cov: float = 0.0

    @property
    def wrong_way_share(self) -> float | None:
        """Share of what these items tell apart that points the wrong way."""
        return wrong_way_share(self.disc, self.wrong, self.cov)


@dataclass(frozen=True)
class GapParts:
    """The parts of one cell, or of several put together.

    Attributes:
        sets: response sets with a gap.
        criteria: sums by criterion; their totals by `sets` are the cell's figures.
        gaps: sum over sets of Delta_gap under each choice of P.
        identity_error: largest `|Delta_gap - (c_K R_disc - 2 R_dir - R_cov)|` of a set.
        deviation: largest difference from what the round stored of a set; infinite where one of the
            two has parts of a set and the other has not.
    """

    sets: int = 0
    criteria: Mapping[str, ItemSums] = field(default_factory=dict)
    gaps: Mapping[str, float] = field(default_factory=dict)
    identity_error: float = 0.0
    deviation: float = 0.0

    def total(self, part: str) -> float | None:
        """Return a part of `PARTS` as a mean over the sets, None without any."""
        if not self.sets:
            return None
        return math.fsum(getattr(one, part) for one in self.criteria.values()) / self.sets

    def gap_under(self, choice: str) -> float | None:
        """Return Delta_gap under a choice of P, a mean over the sets."""
        return self.gaps[choice] / self.sets if self.sets else None


def gap_parts(tables: CellTables) -> GapParts:
    """Take every set of a cell apart that has a rubric, all its verdicts and an order."""
    known = _by_set(tables)
    stored = _stored(tables)
    criteria: dict[str, list[ItemParts]] = defaultdict(list)
    gaps: dict[str, float] = dict.fromkeys(CHOICES, 0.0)
    error, deviation, sets = 0.0, 0.0, 0
    for rubric_id, (quality, weights, yes, texts) in known.items():
        reference = Reference.of_quality(quality)
        ordered = pairs(reference)
        parts, items = decompose(weights, yes, ordered), item_parts(weights, yes, ordered)
        deviation = max(deviation, _apart(parts, stored.get(rubric_id)))
        if parts is None or items is None:
            continue
        sets += 1
        error = max(error, abs(parts.delta_gap - (parts.c_k * parts.r_disc - parts.eta_res)))
        for choice in CHOICES:
            under = parts
            if choice != DEFAULT_CHOICE:
                found = decompose(weights, yes, pairs(reference, choice))
                assert found is not None, "what one P orders, each does"
                under = found
            gaps[choice] += under.delta_gap
        for text, item in zip(texts, items, strict=True):
            criteria[text].append(item)
    if stored.keys() - known.keys():
        deviation = math.inf
    sums = {text: _sums(own) for text, own in sorted(criteria.items())}
    return GapParts(sets, sums, gaps, error, deviation)


def parts_together(found: Sequence[GapParts]) -> GapParts:
    """Put the parts of several seeds together."""
    criteria: dict[str, ItemSums] = {}
    for one in found:
        for text, own in one.criteria.items():
            criteria[text] = _added(criteria.get(text, ItemSums()), own)
    return GapParts(
        sets=sum(one.sets for one in found),
        criteria=criteria,
        gaps={choice: math.fsum(one.gaps[choice] for one in found) for choice in CHOICES},
        identity_error=max((one.identity_error for one in found), default=0.0),
        deviation=max((one.deviation for one in found), default=0.0),
    )


def _sums(own: Sequence[ItemParts]) -> ItemSums:
    return ItemSums(len(own), *(math.fsum(getattr(one, part) for one in own) for part in PARTS))


def _added(one: ItemSums, other: ItemSums) -> ItemSums:
    return ItemSums(
        one.items + other.items,
        *(getattr(one, part) + getattr(other, part) for part in PARTS),
    )


_Set = tuple[list[float], list[float], list[list[bool]], list[str]]


def _by_set(tables: CellTables) -> dict[str, _Set]:
    """Return quality, weights, verdicts (K, M) and criteria of each set that is scored whole."""
    quality = dict(
        zip(
            tables.responses["response_id"].tolist(),
            tables.responses["true_quality"].tolist(),
            strict=True,
        )
    )
    columns = ("rubric_id", "response_id", "item_index", "criterion", "weight", "verdict")
    rubrics: dict[str, dict[str, dict[int, tuple[str, float, str]]]] = defaultdict(dict)
    for rubric_id, response_id, index, criterion, weight, verdict in zip(
        *(tables.verdicts[name].tolist() for name in columns), strict=True
    ):
        row = rubrics[str(rubric_id)].setdefault(str(response_id), {})
        row[int(index)] = (str(criterion), float(weight), str(verdict))
    found = {}
    for rubric_id, responses in rubrics.items():
        truth = [_number(quality.get(one)) for one in responses]
        rows = [[row[index] for index in sorted(row)] for row in responses.values()]
        verdicts = [[verdict for _, _, verdict in row] for row in rows]
        if any(value is None for value in truth) or any("unscored" in row for row in verdicts):
            continue
        found[rubric_id] = (
            [value for value in truth if value is not None],
            [weight for _, weight, _ in rows[0]],
            [[verdict == "yes" for verdict in row] for row in verdicts],
            [criterion for criterion, _, _ in rows[0]],
        )
    return found


def _stored(tables: CellTables) -> dict[str, tuple[float, ...]]:
    rows = zip(
        tables.rubrics["rubric_id"].tolist(),
        *(tables.rubrics[name].tolist() for name in GAP_PARTS),
        strict=True,
    )
    numbers = (
        (str(rubric_id), [_number(value) for value in values]) for rubric_id, *values in rows
    )
    return {
        rubric_id: tuple(value for value in values if value is not None)
        for rubric_id, values in numbers
        if None not in values
    }


def _apart(parts: Decomposition | None, stored: tuple[float, ...] | None) -> float:
    if parts is None or stored is None:
        return 0.0 if parts is None and stored is None else math.inf
    own = (parts.delta_gap, parts.r_disc, parts.r_dir, parts.r_cov)  # the order of GAP_PARTS
    return max(abs(value - other) for value, other in zip(own, stored, strict=True))


def _number(value: Any) -> float | None:  # noqa: ANN401 - whatever a column holds
    if not isinstance(value, int | float) or math.isnan(value):  # None, pandas' NA, NaN
        return None
    return float(value)
