"""What the study measured of a checkpoint: its own round, its arm over seeds, other arms.

Read from the cells as the report reads them, so that every figure is checked in the same way.
Nothing is filled in: what is not there is not there, and `lacking` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dynamicrubric.artefact import load_artefact
from dynamicrubric.hub.trained import Place, Trained
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import EVALUATION, Measured, find_cell
from dynamicrubric.report.curves import CurvePoint, curve_point
from dynamicrubric.report.differences import TABLES, Difference, paired_differences
from dynamicrubric.report.findings import FIRST_ARM
from dynamicrubric.report.outcomes import collect_outcomes
from dynamicrubric.stats import MIN_SEEDS

NOT_SHOWN: Final = frozenset({"seconds"})
"""What a round took says nothing about what came of it."""


@dataclass(frozen=True)
class Figures:
    """What was measured.

    Attributes:
        lacking: why there is nothing, "" if there is.
        arms: the arms that the cell is on; `arm` is the first of them.
        own: figures of the checkpoint's round and seed, by metric.
        over_seeds: the arm's figures in that round, over all seeds that have it.
        differences: paired differences between this arm and others in that round.
    """

    lacking: str
    arms: tuple[str, ...] = ()
    own: Mapping[str, Measured] = field(default_factory=dict)
    over_seeds: tuple[CurvePoint, ...] = ()
    differences: tuple[Difference, ...] = ()

    @property
    def has_intervals(self) -> bool:
        """Whether there are seeds enough for an interval over them."""
        return any(point.over == "seeds" for point in self.over_seeds)


def figures_of(root: Path, trained: Trained) -> Figures:
    """Return the figures of a checkpoint.

    Raises:
        UserError: an evaluation that they rest on is damaged.
    """
    place = trained.place
    if place is None:
        return Figures(trained.lacking)
    load_artefact(place.files.folder / EVALUATION)
    arms = place.plan.arms_of(place.cell.key)
    own = {
        name: found
        for name, found in place.files.round_metrics().items()
        if name not in NOT_SHOWN and found.value is not None
    }
    return Figures(
        "", arms, own, _over_seeds(root, place, arms[0], own), _differences(root, place, arms[0])
    )


def _over_seeds(
    root: Path, place: Place, arm: str, own: Mapping[str, Measured]
) -> tuple[CurvePoint, ...]:
    plan = _only(place.plan, (arm,))
    table = collect_outcomes(plan, root, _unfinished(plan, root))
    number = place.cell.recipe.round
    return tuple(curve_point(table, {}, arm, number, name) for name in own)


def _differences(root: Path, place: Place, arm: str) -> tuple[Difference, ...]:
    """Return the report's comparisons that this arm is part of, of this round alone."""
    arms = tuple(dict.fromkeys(name for name, _ in place.plan.paths))
    first = FIRST_ARM if FIRST_ARM in arms else arms[0]
    plan = place.plan if arm == first else _only(place.plan, (first, arm))
    without = _unfinished(plan, root)
    found = [
        one
        for metric in TABLES
        for one in paired_differences(plan, root, arm=first, metric=metric, without=without)
    ]
    number = place.cell.recipe.round
    return tuple(
        one
        for one in found
        if one.round == number and one.mean is not None and not one.same_cell
        and len(one.by_seed) >= MIN_SEEDS
    )  # fmt: skip


def _only(plan: Plan, arms: tuple[str, ...]) -> Plan:
    paths = {(arm, seed): keys for (arm, seed), keys in plan.paths.items() if arm in arms}
    return replace(plan, paths=paths)


def _unfinished(plan: Plan, root: Path) -> frozenset[str]:
    keys = {key for path in plan.paths.values() for key in path}
    return frozenset(key for key in keys if find_cell(root, plan.cell(key)) is None)
