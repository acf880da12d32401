"""The report's tables as CSV: what the page shows; an empty cell is no value."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dynamicrubric.metrics import COST_METRICS
from dynamicrubric.report.costs import COSTS, Cost
from dynamicrubric.report.curves import CurvePoint
from dynamicrubric.report.extremes import Extremes
from dynamicrubric.report.findings import Finding
from dynamicrubric.report.gapfigures import GapFigures, item_rows, part_rows
from dynamicrubric.report.gridtable import GridRow
from dynamicrubric.report.honesty import ByRound, honesty_rows
from dynamicrubric.report.rubricchange import RubricUse
from dynamicrubric.report.startpolicy import OnStartPolicy, start_policy_rows
from dynamicrubric.report.sweeps import Sweep, sweep_rows
from dynamicrubric.report.updates import Update, update_rows
from dynamicrubric.report.words import Answer

Uses = Mapping[tuple[str, int], RubricUse]
"""Rubrics by (arm, round)."""


@dataclass(frozen=True)
class Tables:
    """What is written as CSV.

    Attributes:
        points: curves by round.
        answers: comparisons.
        findings: findings of the paper.
        uses: rubrics by arm and round, seeds put together.
        costs: mean over seeds by arm.
        extremes: most and least rewarded responses by arm.
        grid: the G x P grid, a row a figure.
        coevolution: comparisons of generators on the same responses, and of P_2 under each.
        updates: generators before and after the policy updates under them.
        start_policy: generators of round 1 on the start policy's responses.
        gap: the parts of Delta_gap by arm and round, and by item.
        honesty: what R_disc pays for, by arm and round.
        sweeps: arms that differ in one setting of the anchors alone, along that setting.
        probes: what attacks gain, a row an arm, round, attack and mode.
        course: proxy and gold, a row an arm, round and older policy.
    """

    points: Sequence[CurvePoint]
    answers: Sequence[Answer]
    findings: Sequence[Finding]
    uses: Uses
    costs: Mapping[str, Cost]
    extremes: Mapping[str, Extremes]
    grid: Sequence[GridRow]
    coevolution: Sequence[Answer]
    updates: Sequence[Update]
    start_policy: Sequence[OnStartPolicy]
    gap: GapFigures
    honesty: ByRound
    sweeps: Sequence[Sweep]
    probes: Sequence[Mapping[str, object]] = ()
    course: Sequence[Mapping[str, object]] = ()


def write_tables(tables: Tables, folder: Path) -> tuple[Path, ...]:
    """Write every table into a folder; the same figures give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Iterable[Mapping[str, Any]]] = {
        "curves": (_curve(point) for point in tables.points),
        "differences": (_answer(answer) for answer in tables.answers),
        "findings": (_finding(one) for one in tables.findings),
        "rubrics": (_use(arm, number, use) for (arm, number), use in tables.uses.items()),
        "criteria": (
            {"arm": arm, "round": number, "criterion": text, "rubrics": count, "of": use.rubrics}
            for (arm, number), use in tables.uses.items()
            for text, count in use.frequent(len(use.criteria))
        ),
        "costs": (
            {"arm": arm} | {name: getattr(cost, name) for name in COSTS} | _paid(tables, cost)
            for arm, cost in tables.costs.items()
        ),
        "responses": (row for arm, found in tables.extremes.items() for row in _items(arm, found)),
        "grid": (asdict(row) for row in tables.grid),
        "coevolution": (_answer(answer) for answer in tables.coevolution),
        "updates": update_rows(tables.updates),
        "start_policy": start_policy_rows(tables.start_policy),
        "gap_parts": part_rows(tables.gap),
        "gap_items": item_rows(tables.gap),
        "honesty": honesty_rows(tables.honesty),
        "sweeps": sweep_rows(tables.sweeps),
        "probes": tables.probes,
        "course": tables.course,
    }
    return tuple(_write(folder / f"{name}.csv", found) for name, found in rows.items())


def _paid(tables: Tables, cost: Cost) -> dict[str, float | None]:
    """Return what an arm's calls to endpoints came to; no columns in a study without any."""
    if all(one.paid is None for one in tables.costs.values()):
        return {}
    return {name: (cost.paid or {}).get(name) for name in COST_METRICS}


def _curve(point: CurvePoint) -> dict[str, Any]:
    return asdict(point) | {"seeds": " ".join(map(str, point.seeds))}


def _answer(answer: Answer) -> dict[str, Any]:
    found = answer.difference
    low, high = found.estimate.interval or (None, None)
    return {
        "arm": found.arm, "other": found.other, "metric": found.metric, "round": found.round,
        "mean": found.mean, "low": low, "high": high, "over": found.estimate.over,
        "p": found.estimate.p_value, "p_corrected": found.p_corrected,
        "family": found.family and found.family.name,
        "family_size": found.family and found.family.size,
        "higher_on": found.estimate.superiority, "shows": answer.label,
        "seeds": len(found.by_seed),
        "prompts": " ".join(str(one.n_prompts) for one in found.by_seed),
        "rows": found.rows[0], "rows_total": found.rows[1],
        "other_rows": found.other_rows[0], "other_rows_total": found.other_rows[1],
    }  # fmt: skip


def _finding(found: Finding) -> dict[str, Any]:
    claim = found.claim
    return {
        "arm": found.other, "paper": claim.paper, "expected": claim.here, "status": found.label
    }  # fmt: skip


def _use(arm: str, number: int, use: RubricUse) -> dict[str, Any]:
    return {
        "arm": arm, "round": number, "valid_rubrics": use.rubrics, "sets": use.sets,
        "criteria": len(use.criteria), "entropy_bits": use.entropy,
        "all_meet": use.all_meet_share, "none_meet": use.none_meet_share,
        "items_judged": use.judged, "items": use.items,
    }  # fmt: skip


def _items(arm: str, found: Extremes) -> Iterable[dict[str, Any]]:
    for end, responses in (("most", found.most), ("least", found.least)):
        for response in responses:
            for item in response.items:
                yield {
                    "arm": arm, "seed": found.seed, "round": found.round, "end": end,
                    "response_id": response.response_id, "score": response.score,
                    "true_quality": response.true_quality, "text": response.text,
                    "criterion": item.criterion, "weight": item.weight, "verdict": item.verdict,
                }  # fmt: skip


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    found = list(rows)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(found[0]) if found else ["nothing"],
                                lineterminator="\n")  # fmt: skip
        writer.writeheader()
        writer.writerows(found)
    return path
