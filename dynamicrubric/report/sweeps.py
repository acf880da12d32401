"""Arms that differ in one setting of the anchors alone, along it: label noise, number, kind.

Found in the plan itself: arms whose rounds are the same recipes but for the setting. Each point has
what the last round came to, and how far true quality is above the arm that is paid for R_disc alone
and reads no anchors: where that difference ends, the anchors have stopped helping.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dynamicrubric.cells import CellRecipe
from dynamicrubric.plan import Plan
from dynamicrubric.report.differences import pair
from dynamicrubric.report.gather import ACCURACY, CellDigest, Gathered
from dynamicrubric.stats import Estimate, Paired, PromptValues, estimate

WRONG_WAY: Final = "wrong_way"
"""Share of ordered pairs that the scores put the wrong way round: ties are none of them."""
SWEPT: Final = ("true_quality", "delta_gap", WRONG_WAY)
SETTINGS: Final[Mapping[str, object]] = {
    "anchor_swap_rate": 0.0,
    "anchor_shuffle_rate": 0.0,
    "num_anchors": None,
    "anchor_source": "prepared",
}
"""Settings of the generator's training that arms are swept along, as they are without a change."""
MIN_POINTS: Final = 3
"""Two arms are a comparison, and the report has that already."""
Setting = float | int | str


@dataclass(frozen=True)
class SweepPoint:
    """One arm of a sweep, in its last round.

    Attributes:
        value: of the setting.
        arm: the arm.
        round: its last round.
        seeds: the seeds that have it.
        figures: mean and interval of each figure of `SWEPT`, over seeds and prompts.
        above_none: true quality less that of the arm without anchors, paired by prompt; None where
            the study has no such arm.
    """

    value: Setting
    arm: str
    round: int
    seeds: tuple[int, ...]
    figures: Mapping[str, Estimate]
    above_none: Estimate | None


@dataclass(frozen=True)
class Sweep:
    """Arms along one setting.

    Attributes:
        setting: its key.
        points: by its value, rising; kinds of anchors in the order of the study.
        none: the same figures of the arm that is paid for R_disc alone, None where there is none.
    """

    setting: str
    points: tuple[SweepPoint, ...]
    none: SweepPoint | None


def sweeps_of(gathered: Gathered) -> tuple[Sweep, ...]:
    """Return the sweeps of a study with at least `MIN_POINTS` values of a setting."""
    found = []
    for setting in SETTINGS:
        for arms in _families(gathered.plan, setting):
            values = {arm: value for arm, value in arms.items() if _last_cells(gathered, arm)}
            if len(set(values.values())) >= MIN_POINTS:
                found.append(_sweep(gathered, setting, values))
    return tuple(found)


def sweep_rows(sweeps: Sequence[Sweep]) -> list[dict[str, Any]]:
    """Return a row a point and figure, for the CSV."""
    return [
        {
            "setting": sweep.setting, "value": point.value, "arm": point.arm, "round": point.round,
            "metric": name, "mean": one.mean, "low": (one.interval or (None, None))[0],
            "high": (one.interval or (None, None))[1], "over": one.over,
            "seeds": " ".join(map(str, point.seeds)),
        }
        for sweep in sweeps
        for point in (*sweep.points, *([sweep.none] if sweep.none else []))
        for name, one in (
            *point.figures.items(),
            *([("true_quality_above_none", point.above_none)] if point.above_none else []),
        )
    ]  # fmt: skip


def _sweep(gathered: Gathered, setting: str, values: Mapping[str, Setting]) -> Sweep:
    none = _without_anchors(gathered, next(iter(values)))
    points = [_point(gathered, arm, value, none) for arm, value in values.items()]
    if not any(isinstance(point.value, str) for point in points):
        points.sort(key=lambda point: float(point.value))
    return Sweep(setting, tuple(points), _point(gathered, none, "none", None) if none else None)


def _families(plan: Plan, setting: str) -> list[dict[str, Setting]]:
    """Return the arms that are one recipe but for a setting, with its value for each."""
    families: dict[str, dict[str, Setting]] = {}
    for arm, recipes in _recipes(plan).items():
        trainings = [one.generator_training for one in recipes if one.generator_training]
        if not trainings or not trainings[0].objective.anchor:
            continue
        value = getattr(trainings[0], setting)
        if value is None:
            value = int(plan.shared["prepare"]["world"]["num_anchors"])
        family = families.setdefault(_text(recipes, setting), {})
        if value not in family.values():  # in a study of one round, stale is coevolved again
            family[arm] = value
    return list(families.values())


def _without_anchors(gathered: Gathered, arm: str) -> str | None:
    """Return the arm that differs from another, as it is without a change, in no anchors alone."""
    recipes = _recipes(gathered.plan)
    wanted = _text(recipes[arm], *SETTINGS, paid_for_anchors=False)
    return next(
        (
            other
            for other, own in recipes.items()
            if _text(own) == wanted and _last_cells(gathered, other)
        ),
        None,
    )


def _recipes(plan: Plan) -> dict[str, list[CellRecipe]]:
    """Return the recipes of each arm's training rounds, of its first seed."""
    found: dict[str, list[CellRecipe]] = {}
    for (arm, _), keys in plan.paths.items():
        found.setdefault(arm, [plan.cell(key).recipe for key in keys[1:]])
    return found


def _text(recipes: Sequence[CellRecipe], *settings: str, paid_for_anchors: bool = True) -> str:
    """Return recipes as a text that says nothing of the seed and of some settings."""
    documents = []
    for recipe in recipes:
        document = recipe.model_dump(mode="json") | {"seed": 0}
        training = document["generator_training"]
        if training:
            for setting in settings:
                training.pop(setting, None)
            if not paid_for_anchors:
                training["objective"]["anchor"] = 0.0
        documents.append(document)
    return json.dumps(documents, sort_keys=True)


def _last_cells(gathered: Gathered, arm: str) -> dict[int, CellDigest]:
    """Return an arm's cells of its last round by seed, those there are."""
    return {
        seed: gathered.cells[keys[-1]]
        for (name, seed), keys in gathered.plan.paths.items()
        if name == arm and keys[-1] in gathered.cells
    }


def _point(gathered: Gathered, arm: str, value: Setting, none: str | None) -> SweepPoint:
    cells = _last_cells(gathered, arm)
    others = _last_cells(gathered, none) if none else {}
    quality = {seed: one.by_prompt["true_quality"] for seed, one in cells.items()}
    above = {
        seed: pair(seed, quality[seed], others[seed].by_prompt["true_quality"]).by_prompt
        for seed in quality.keys() & others.keys()
    }
    return SweepPoint(
        value=value,
        arm=arm,
        round=max(len(keys) - 1 for (name, _), keys in gathered.plan.paths.items() if name == arm),
        seeds=tuple(sorted(cells)),
        figures={
            name: estimate(Paired.of({seed: _values(one, name) for seed, one in cells.items()}))
            for name in SWEPT
        },
        above_none=estimate(Paired.of(dict(sorted(above.items())))) if above else None,
    )


def _values(cell: CellDigest, name: str) -> PromptValues:
    if name != WRONG_WAY:
        return cell.by_prompt[name]
    ties = cell.by_prompt["tie_rate"]
    return {
        prompt: None if right is None or ties[prompt] is None else _wrong_way(right, ties[prompt])
        for prompt, right in cell.by_prompt[ACCURACY].items()
    }


def _wrong_way(accuracy: float, ties: float | None) -> float:
    """Return the share of pairs scored the wrong way: accuracy counts ties half."""
    assert ties is not None, "measured on the same pairs"
    return 1.0 - accuracy - ties / 2.0
