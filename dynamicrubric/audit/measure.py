"""The step of the audit: generators on the held-out sets of the policy they were trained beside.

All generators of a policy see the same sets, and a set's draws have the names that they have in the
policy's round: what a round measured before its update is measured again. Each is judged as its arm
judges. The anchor lists are of held-out prompts, which no training reads: where the prepared data
have none they are drawn as those of the training prompts are.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from dynamicrubric.cells import CellRecipe, parse_recipe
from dynamicrubric.config import WorldConfig
from dynamicrubric.stepparts import dynamic_writer, engines_of, judging_of
from dynamicrubric.worlds.prepared import PreparedData, load_prepared

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines
    from dynamicrubric.evaluation import MeasuredSet, Quality, SampledSet

MEASUREMENTS_FILE: Final = "measurements.parquet"
CHECKPOINTS_FILE: Final = "checkpoints.json"
ANCHOR_COLUMNS: Final = ("anchor_r_anchor", "anchor_rank_accuracy", "anchor_delta_gap")


@dataclass(frozen=True)
class Checkpoint:
    """A generator to measure.

    Attributes:
        name: unique: its cell and step.
        policy: name of the policy whose sets it is measured on.
        cell: the cell whose training it belongs to.
        step: after how many steps of it; 0 is what the cell starts from.
        steps: of how many.
        directory: its weights.
        recipe: its cell's recipe.
        trained: folder of the cell's finished generator, with the log of its training.
    """

    name: str
    policy: str
    cell: str
    step: int
    steps: int
    directory: str
    trained: str
    recipe: CellRecipe = field(repr=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Read one from JSON values."""
        return cls(**{**values, "recipe": parse_recipe(values["recipe"])})

    @property
    def values(self) -> dict[str, Any]:
        """The checkpoint as JSON values."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return own | {"recipe": self.recipe.model_dump(mode="json")}


@dataclass(frozen=True)
class Policy:
    """A policy's held-out sets."""

    name: str
    round: int
    sets: Sequence[SampledSet]
    quality: Quality


def measure_checkpoints(
    policies: Sequence[Mapping[str, Any]],
    checkpoints: Sequence[Checkpoint],
    world: WorldConfig,
    prepared_dir: Path,
    out_dir: Path,
    places: Mapping[str, Any] | None,
) -> None:
    """Measure every checkpoint and write `MEASUREMENTS_FILE` and `CHECKPOINTS_FILE`.

    Raises:
        InstrumentError: a rate of invalid rubrics or unscored verdicts is above its limit.
    """
    from dynamicrubric.evaluationfiles import read_sets

    prepared = load_prepared(prepared_dir)
    known = {
        str(one["name"]): Policy(one["name"], one["round"], *read_sets(Path(one["sets"])))
        for one in policies
    }
    anchors = heldout_anchors(prepared, world)
    rows: list[dict[str, Any]] = []
    with engines_of(prepared, places) as opened:
        for number, one in enumerate(checkpoints, start=1):
            print(f"{number} of {len(checkpoints)}: {one.name} on {one.policy}", flush=True)
            rows += _rows(one, known[one.policy], prepared, anchors, opened)
    _write(rows, checkpoints, policies, out_dir)


def heldout_anchors(prepared: PreparedData, world: WorldConfig) -> dict[str, tuple[str, ...]]:
    """Return a ranked list for each held-out prompt, by the same draws on every call."""
    if prepared.heldout_anchors:
        return prepared.heldout_anchors
    from dynamicrubric.worlds.postcards.prepare import anchor_lists
    from dynamicrubric.worlds.postcards.prompts import prompt_by_id

    prompts = [prompt_by_id(key) for key in prepared.prompts["heldout"]]
    return {one.prompt_id: one.responses for one in anchor_lists(prompts, world)}


def _rows(
    one: Checkpoint,
    policy: Policy,
    prepared: PreparedData,
    anchors: Mapping[str, Sequence[str]],
    engines: Engines,
) -> list[dict[str, Any]]:
    from dynamicrubric.anchorfigures import judge_anchors
    from dynamicrubric.evaluation import measure_sets, rubric_row

    writer = dynamic_writer(one.recipe, Path(one.directory), engines)
    judging = judging_of(one.recipe, one.recipe.evaluation, prepared.world, engines)
    seed_name = (one.recipe.seed, policy.round - 1, "evaluate")
    where = f"the held-out sets of {policy.name} under {one.name}"
    measured: list[MeasuredSet] = measure_sets(
        where, policy.sets, writer, judging, policy.quality, seed_name
    )
    ranked = {row["rubric_id"]: row for row in judge_anchors(measured, anchors, judging, seed_name)}
    return [
        {
            "policy": policy.name,
            "checkpoint": one.name,
            **row,
            **{name: ranked[row["rubric_id"]][name] for name in ANCHOR_COLUMNS},
        }
        for row in map(rubric_row, measured)
    ]


def _write(
    rows: Sequence[Mapping[str, Any]],
    checkpoints: Sequence[Checkpoint],
    policies: Sequence[Mapping[str, Any]],
    out_dir: Path,
) -> None:
    import pandas as pd

    from dynamicrubric.evaluationfiles import ANCHOR_TYPES, RUBRIC_TYPES

    types = {"policy": "string", "checkpoint": "string", **RUBRIC_TYPES}
    types |= {name: ANCHOR_TYPES[name] for name in ANCHOR_COLUMNS}
    frame = pd.DataFrame(list(rows), columns=list(types)).astype(types)
    frame.to_parquet(out_dir / MEASUREMENTS_FILE, index=False)
    spreads = {
        cell: asdict(reward_spreads(Path(folder)))
        for cell, folder in {one.cell: one.trained for one in checkpoints}.items()
    }
    document = {
        "policies": {str(one["name"]): {"round": one["round"]} for one in policies},
        "checkpoints": [_facts(one) for one in checkpoints],
        "spreads": spreads,
    }
    text = json.dumps(document, indent=1) + "\n"
    (out_dir / CHECKPOINTS_FILE).write_text(text, encoding="utf-8")


def _facts(one: Checkpoint) -> dict[str, Any]:
    """Return what the analysis has to know of a checkpoint."""
    training = one.recipe.generator_training
    assert training is not None, "only trainings are measured"
    return {
        "name": one.name, "policy": one.policy, "cell": one.cell, "step": one.step,
        "steps": one.steps, "disc": training.objective.disc, "anchor": training.objective.anchor,
        "responses": training.responses, "set_size": one.recipe.responses_per_set,
    }  # fmt: skip


@dataclass(frozen=True)
class RewardSpreads:
    """How far rewards spread within the groups of a training: medians of standard deviations.

    Rewards are normalised within their group before they are added, so that lambda = 1 is the
    ratio of these on the rewards themselves. None where no group spreads.
    """

    disc: float | None
    anchor: float | None


def reward_spreads(generator_dir: Path) -> RewardSpreads:
    """Return the spreads of a finished training, from its table of rollouts."""
    import pandas as pd

    path = generator_dir / "rollouts.parquet"
    rows = pd.read_parquet(path, columns=["step", "row", "r_disc", "r_anchor"])
    spread = rows.groupby(["step", "row"])[["r_disc", "r_anchor"]].std()

    def median(name: str) -> float | None:
        known = [float(value) for value in spread[name] if value > 0.0]
        return statistics.median(known) if known else None

    return RewardSpreads(median("r_disc"), median("r_anchor"))
