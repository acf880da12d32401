"""The co-evolution figure with intervals: generators on the same responses, policies under each.

The first half compares G_2 with each other generator on each policy's responses by Delta_gap. The
second compares P_2 trained under each generator: with P_1, from which all are trained, and P_2
under G_2 with the others. Everything is paired by prompt (`dynamicrubric.stats`), p-values are
corrected within each half.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from dynamicrubric.grid import (
    COEVOLVED,
    G_STALE,
    GENERATORS,
    LAST_ROUND,
    NEEDS,
    POLICIES,
    UNDER,
    planned_grids,
    trains_under,
)
from dynamicrubric.metrics import GAP_PAIRS, ROUND_METRICS
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import SET_METRICS, load_cell
from dynamicrubric.report.differences import (
    ArmValues,
    Difference,
    arm_values,
    compare_values,
    corrected,
)
from dynamicrubric.report.evidence import (
    COUNT_HEADS,
    INTERVAL_HEADS,
    Grid,
    cells_of,
    family_text,
    left_out,
    no_interval,
)
from dynamicrubric.report.gridtable import GAP, GridTable, grid_values, grids_of, read_grids
from dynamicrubric.report.phrases import capital, label, mean_over, span

QUALITY: Final = "true_quality"
BEST: Final = "G_2"
GAP_FAMILY: Final = "the generators on the same responses"
GAIN_FAMILY: Final = "P_1 -> P_2 under each generator"
SHOWN: Final = ("delta_gap", "r_disc", "r_dir", "rank_accuracy", "tie_rate", "valid_rubric_rate")
"""Figures of the grid's table."""


@dataclass(frozen=True)
class CoEvolution:
    """Both halves of the figure.

    Attributes:
        table: the G x P grid; without rows if none is planned.
        gaps: Delta_gap of G_2 minus each other generator's, on each policy's responses.
        gains: true quality of P_2 under each generator minus P_1's.
        against: true quality of P_2 under G_2 minus that under each other generator; p-values are
            corrected together with those of `gains`.
        not_planned: generator and why nothing trains P_1 under it.
        missing: keys of planned grids that are not in the table; none unless it is partial.
        deviation: see `diagonal_deviation`.
    """

    table: GridTable
    gaps: tuple[Difference, ...] = ()
    gains: tuple[Difference, ...] = ()
    against: tuple[Difference, ...] = ()
    not_planned: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    deviation: float = 0.0


def read_coevolution(
    plan: Plan, root: Path, *, partial: bool = False, without: Collection[str] = ()
) -> CoEvolution:
    """Read both halves of the figure, as far as the plan has them.

    Args:
        plan: the lattice of cells.
        root: the project's folder.
        partial: leave out grids that are missing or damaged.
        without: keys of cells to leave out, with what comes after them.

    Raises:
        UserError: a grid or a cell is missing or altered, or its figures are impossible.
    """
    whole, plan = plan, _without(plan, without)
    table = read_grids(plan, root, partial=partial)
    gaps = _gaps(plan, root, table) if table.rows else ()
    paths = {generator: _paths_under(plan, generator) for generator in UNDER}
    planned = {generator: own for generator, own in paths.items() if own}
    starts, ends = ({g: _values(plan, root, own, t) for g, own in planned.items()} for t in (1, 2))
    gains = [
        compare_values(QUALITY, (f"under {g}", ends[g]), ("P_1", starts[g]), LAST_ROUND)
        for g in planned
    ]
    against = [
        compare_values(QUALITY, (f"under {BEST}", ends[BEST]), (f"under {g}", ends[g]), LAST_ROUND)
        for g in planned
        if g != BEST and BEST in planned and ends[g].keys() & ends[BEST].keys()
    ]
    together = corrected([*gains, *against], lambda _: GAIN_FAMILY)
    return CoEvolution(
        table=table,
        gaps=corrected(gaps, lambda _: GAP_FAMILY),
        gains=together[: len(gains)],
        against=together[len(gains) :],
        not_planned={g: _why_not(whole, g) for g in UNDER if g not in planned},
        missing=tuple(
            key for key, one in planned_grids(whole).items() if one.seed not in table.seeds
        ),
        deviation=diagonal_deviation(plan, root, table),
    )


def coevolution_grids(found: CoEvolution) -> list[Grid]:
    """Return the figure as text tables; none of a half that is not planned."""
    grids = []
    if found.table.rows:
        grids.append(_figures_grid(found.table))
        title = f"{capital(label(GAP))}, {BEST} minus another generator on the same responses"
        rows = {f"{one.other}": one for one in found.gaps}
        grids += _difference_grids(title, "minus", rows)
    if found.gains:
        rows = {one.arm.removeprefix("under "): one for one in found.gains}
        rows |= {
            " - ".join(name.removeprefix("under ") for name in (one.arm, one.other)): one
            for one in found.against
        }
        title = f"P_1 -> P_2 under: gain in {label(QUALITY)}"
        grids += _difference_grids(title, "generator", rows)
    return grids


def coevolution_notes(found: CoEvolution) -> list[tuple[str, str]]:
    """Return (name, text) lines: what each generator is, what is missing and why."""
    notes = []
    if found.table.rows:
        notes += list(GENERATORS.items())
        notes.append(("P_0, P_1, P_2", f"policies of {COEVOLVED}, by round"))
        rows = [row for row in found.table.rows if row.metric == GAP]
        scored = span({row.n_scored for row in rows})
        total = " or ".join(map(str, sorted({row.n_total for row in rows})))
        notes.append((f"P of {label(GAP)}", GAP_PAIRS))
        notes.append(("sets with a gap", f"{scored} of {total} a generator, policy and seed"))
        notes.append(("G_0 on P_0, G_1 on P_1, G_2 on P_2", _diagonal_note(found.deviation)))
    elif not found.missing:
        notes.append(("no G x P grid", f"it takes {NEEDS}"))
    if found.missing:
        stages = ", ".join(f"grid@{key}" for key in found.missing)
        notes.append(("G x P grids left out", f"missing or damaged: {stages}"))
    if found.gains:
        notes.append(("a - b", "gain under a minus gain under b: P_1 is the same"))
        notes += [
            (f"P_1 -> P_2 under {g}", f"not there: {why}") for g, why in found.not_planned.items()
        ]
    for one in (*found.gaps, *found.gains, *found.against):
        if one.estimate.interval is None:
            notes.append((f"{one.arm} - {one.other}", f"no interval. {no_interval(one)}"))
        notes += [(f"{one.arm} - {one.other}", text) for text in left_out(one)]
    return notes


def diagonal_deviation(plan: Plan, root: Path, table: GridTable) -> float:
    """Return the largest difference between the grid's diagonal and the rounds' own figures.

    Zero where one kind of machine measured both, as their draws are the same. Elsewhere a rounding
    may sample another token. Infinite if one of the two has a figure that the other has not.
    """
    deviation = 0.0
    for grid in grids_of(plan, table):
        for generator, (policy, cell) in zip(GENERATORS, grid.policies.items(), strict=False):
            for metric, own in load_cell(root, cell).round_metrics().items():
                if metric in SET_METRICS:
                    value = table.at(grid.seed, generator, policy, metric).value
                    deviation = max(deviation, _apart(value, own.value))
    return deviation


def _apart(one: float | None, other: float | None) -> float:
    if one is None or other is None:
        return 0.0 if one is other else math.inf
    return abs(one - other)


def _diagonal_note(deviation: float) -> str:
    if math.isinf(deviation):
        return f"not what {COEVOLVED}'s rounds measured: a figure is scored in one of the two alone"
    if deviation == 0.0:
        return f"equal to the last digit to what {COEVOLVED}'s rounds measured"
    return (
        f"at most {deviation:.2g} from what {COEVOLVED}'s rounds measured, on another machine: a "
        "rounding may sample another token"
    )


def _gaps(plan: Plan, root: Path, table: GridTable) -> list[Difference]:
    values = grid_values(plan, root, table, GAP)
    return [
        compare_values(
            GAP,
            (f"{BEST} on {policy}", values[BEST, policy]),
            (f"{other} on {policy}", values[other, policy]),
            number,
        )
        for other in (G_STALE, "G_1", "G_0")
        for number, policy in enumerate(POLICIES)
    ]


def _without(plan: Plan, keys: Collection[str]) -> Plan:
    """Return the plan with each path ending before the first cell that is left out."""
    paths = {
        place: tuple(takewhile(lambda key: key not in keys, path))
        for place, path in plan.paths.items()
    }
    return replace(plan, paths={place: path for place, path in paths.items() if path})


def _paths_under(plan: Plan, generator: str) -> dict[int, tuple[str, ...]]:
    """Return the path by seed of the arm that trains `coevolved`'s P_1 under the generator."""
    found = {}
    for seed, keys in _from_p_1(plan, UNDER[generator]).items():
        own = plan.paths[COEVOLVED, seed]
        coevolved = plan.cell(own[LAST_ROUND]) if len(own) > LAST_ROUND else None
        if trains_under(generator, plan.cell(keys[LAST_ROUND]), coevolved):
            found[seed] = keys
    return found


def _from_p_1(plan: Plan, arm: str) -> dict[int, tuple[str, ...]]:
    """Return the arm's path by seed, of seeds in which it starts from `coevolved`'s P_1."""
    paths = {seed: keys for (name, seed), keys in plan.paths.items() if name == arm}
    return {
        seed: keys
        for seed, keys in paths.items()
        if len(keys) > LAST_ROUND and plan.paths.get((COEVOLVED, seed), ())[1:2] == keys[1:2]
    }


def _why_not(plan: Plan, generator: str) -> str:
    arm = UNDER[generator]
    paths = [keys for (name, _), keys in plan.paths.items() if name == arm]
    if not paths:
        return f"it takes the arm {arm}"
    if max(map(len, paths)) <= LAST_ROUND:
        return f"it takes {LAST_ROUND} rounds of {arm}"
    if _paths_under(plan, generator):
        return f"cells of {arm} are missing or damaged"
    if _from_p_1(plan, arm):
        return f"the second round of {arm} is under another generator, or with other compute"
    return f"{arm} does not start from the P_1 of {COEVOLVED}"


def _values(
    plan: Plan, root: Path, paths: Mapping[int, tuple[str, ...]], round_number: int
) -> dict[int, ArmValues]:
    return {
        seed: arm_values(plan, root, keys[round_number], QUALITY) for seed, keys in paths.items()
    }


def _figures_grid(table: GridTable) -> Grid:
    seeds = mean_over([len(table.seeds)])
    rows = tuple(
        (
            f"{generator} on {policy}",
            *(ROUND_METRICS[m].show(table.mean(generator, policy, m)) for m in SHOWN),
        )
        for policy in POLICIES
        for generator in GENERATORS
    )
    heads = ("generator", *(ROUND_METRICS[name].label for name in SHOWN))
    return Grid(f"Each generator on each policy's held-out responses, {seeds}", heads, rows)


def _difference_grids(title: str, head: str, rows: Mapping[str, Difference]) -> list[Grid]:
    """Return a table of intervals and one of what they rest on."""
    heads = ("difference", *(name for name in INTERVAL_HEADS if name != "is over"))
    rests = ("is over", *COUNT_HEADS)
    return [
        Grid(text, (head, *own), tuple((name, *cells_of(one, own)) for name, one in rows.items()))
        for text, own in (
            (f"{title}; {family_text(list(rows.values()))}", heads),
            ("What it rests on", rests),
        )
    ]
