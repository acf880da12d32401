"""The tables of the page, as text: where arms ended, how rubrics changed, what it all cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dynamicrubric.metrics import COST_METRICS
from dynamicrubric.report.costs import COSTS, Cost, mean_cost, summed
from dynamicrubric.report.csvtables import Uses
from dynamicrubric.report.differences import Difference
from dynamicrubric.report.evidence import (
    COUNT_HEADS,
    INTERVAL_HEADS,
    Grid,
    by_family,
    cells_of,
    family_title,
)
from dynamicrubric.report.gather import Gathered
from dynamicrubric.report.outcomes import OutcomeTable
from dynamicrubric.report.phrases import NOTHING, label, mean_text, number, of_all
from dynamicrubric.report.rubricchange import RubricUse, together

ENDS: Final = (
    "true_quality", "delta_gap", "r_disc", "r_dir", "rank_accuracy", "tie_rate",
    "valid_rubric_rate", "response_length", "kl",
)  # fmt: skip
YARDSTICK: Final = "rule_based"
"""The arm whose cost is the unit, if the study has it."""
COST_HEADS: Final[Mapping[str, str]] = {
    "steps": "optimiser steps", "tokens": "tokens written", "verdicts": "verdicts",
    "seconds": "seconds", "measuring": "seconds measuring",
}  # fmt: skip


def ends_grid(table: OutcomeTable) -> Grid:
    """Return every arm's figures in its last round."""
    heads = ("arm", "seeds", "round", "true quality at start", *map(label, ENDS))
    rows = []
    for arm in table.arms:
        last = table.last_round_of(arm)
        present = len(table.outcomes(arm, last, "true_quality"))
        rows.append((
            arm, of_all(present, len(table.seeds_of(arm))), str(last),
            mean_text(table, arm, 0, "true_quality"),
            *(mean_text(table, arm, last, metric) for metric in ENDS),
        ))  # fmt: skip
    return Grid("Where each arm ended", heads, tuple(rows))


def counts_grid(table: OutcomeTable, gathered: Gathered) -> Grid:
    """Return the seeds, prompts and rows behind each arm's figures of its last round."""
    heads = ("arm", "seeds", "prompts", "responses", "sets with a gap", "valid rubrics")
    rows = []
    for arm in table.arms:
        last = table.last_round_of(arm)
        prompts = {digest.prompts for digest in gathered.of(arm, last)}
        rows.append((
            arm,
            " ".join(str(row.seed) for row in table.outcomes(arm, last, "kl")) or NOTHING,
            " or ".join(map(str, sorted(prompts))) or NOTHING,
            *(_rows(table, arm, last, name)
              for name in ("true_quality", "delta_gap", "items_per_rubric")),
        ))  # fmt: skip
    return Grid("What the last round rests on: scored of all, seeds summed", heads, tuple(rows))


def evidence_tables(differences: Sequence[Difference]) -> list[Grid]:
    """Return the comparisons with all that they rest on, a table a family."""
    heads = ("difference", *INTERVAL_HEADS, *COUNT_HEADS)
    return [
        Grid(
            family_title(own),
            ("other arm", *heads),
            tuple((one.other, *cells_of(one, heads)) for one in own),
        )
        for own in by_family(differences)
    ]


def uses_of(table: OutcomeTable, gathered: Gathered) -> dict[tuple[str, int], RubricUse]:
    """Return the rubrics by arm and round, seeds put together; rounds without cells left out."""
    return {
        (arm, number): together([digest.use for digest in cells])
        for arm in table.arms
        for number in range(table.last_round + 1)
        if (cells := gathered.of(arm, number))
    }


def costs_of(gathered: Gathered) -> dict[str, Cost]:
    """Return each arm's cost: the sum over its path, a mean over the seeds that are whole.

    A cell that arms share counts under each of them: what the arm takes when run alone.
    """
    paths: dict[str, list[Cost]] = {}
    for (arm, _), keys in gathered.plan.paths.items():
        own = paths.setdefault(arm, [])
        if all(key in gathered.cells for key in keys):
            own.append(summed([gathered.cells[key].cost for key in keys]))
    return {arm: mean_cost(own) for arm, own in paths.items() if own}


def cost_grids(costs: Mapping[str, Cost]) -> list[Grid]:
    """Return the cost by arm, as it is and as multiples of the yardstick's if that was run."""
    heads = ("arm", *COST_HEADS.values())
    rows = tuple(
        (arm, *(_whole(getattr(cost, name)) for name in COSTS)) for arm, cost in costs.items()
    )
    grids = [Grid("Cost of one seed's training, each arm as if run alone", heads, rows)]
    if (unit := costs.get(YARDSTICK)) is not None:
        multiples = tuple(
            (arm, *(_times(getattr(cost, name), getattr(unit, name)) for name in COSTS))
            for arm, cost in costs.items()
        )
        grids.append(Grid(f"The same as multiples of {YARDSTICK}", heads, multiples))
    if any(cost.paid is not None for cost in costs.values()):
        grids.append(_paid_grid(costs))
    return grids


def _paid_grid(costs: Mapping[str, Cost]) -> Grid:
    """Return what calls to endpoints came to by arm."""
    rows = tuple(
        (
            arm,
            *(metric.show((cost.paid or {}).get(name)) for name, metric in COST_METRICS.items()),
        )
        for arm, cost in costs.items()
    )
    heads = ("arm", *(metric.label for metric in COST_METRICS.values()))
    return Grid("Calls to endpoints, one seed, measurement included", heads, rows)


def by_round_grid(title: str, uses: Uses, name: str, digits: int) -> Grid:
    """Return one property of the rubrics by arm and round."""
    rounds = sorted({round_number for _, round_number in uses})
    arms = dict.fromkeys(arm for arm, _ in uses)
    rows = []
    for arm in arms:
        found = [uses.get((arm, one)) for one in rounds]
        values = [None if use is None else getattr(use, name) for use in found]
        rows.append((arm, *(number(value, digits) for value in values)))
    return Grid(title, ("arm", *(f"round {one}" for one in rounds)), tuple(rows))


def _rows(table: OutcomeTable, arm: str, round_number: int, metric: str) -> str:
    found = table.outcomes(arm, round_number, metric)
    return of_all(sum(row.n_scored for row in found), sum(row.n_total for row in found))


def _whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _times(value: float | None, unit: float | None) -> str:
    return NOTHING if value is None or not unit else f"{value / unit:.2f}x"
