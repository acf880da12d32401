"""What a plan will cost, from the steps that this folder has run before.

A step's shape is what its time depends on: the evaluator, and how many completions it samples. A
shape that was run before costs its median; another one is scaled from the nearest shape of the same
step; a step that was never run is named, not guessed.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from dynamicrubric.audit.planned import AUDIT_DIR, PlannedAudit, planned_audits
from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS
from dynamicrubric.grid import GRID_DIR, planned_grids
from dynamicrubric.plan import RUNS_DIR, WARM_DIR, Cell, Plan
from dynamicrubric.probes.planned import PROBES_DIR, planned_probes

PREPARED_DIR: Final = "data/prepared"
RECORDS: Final = (
    f"{PREPARED_DIR}/record.json",
    f"{WARM_DIR}/*/record.json",
    f"{RUNS_DIR}/*/*/record.json",
    f"{GRID_DIR}/*/record.json",
    f"{PROBES_DIR}/*/record.json",
    "work/retired/*/*/record.json",
    "work/retired/grid-*/record.json",
    "work/retired/probe-*/record.json",
    f"{AUDIT_DIR}/*/record.json",
    "work/retired/audit-*/record.json",
)


class Shape(NamedTuple):
    """What the time of a step depends on.

    Attributes:
        step: its name.
        evaluator: whose rubrics it works with; empty where none are.
        amount: completions that it samples, in all its training steps.
    """

    step: str
    evaluator: str
    amount: int


class Cost(NamedTuple):
    """What one step took: wall seconds, and bytes of its artefact."""

    seconds: float
    size: int


@dataclass(frozen=True)
class Estimate:
    """What a plan will cost.

    Attributes:
        seconds: work of all its steps, one after another.
        longest: work of the longest chain of steps that wait for one another: the data, a warm
            start, the rounds of an arm, the grid that reads them.
        size: bytes of all artefacts.
        num_records: earlier steps that it is based on.
        num_scaled: steps of the plan whose shape was not run before.
        unknown: steps that were never run, by name, with how many the plan has; not counted above.
    """

    seconds: float
    longest: float
    size: float
    num_records: int
    num_scaled: int
    unknown: Mapping[str, int]

    def wall_seconds(self, slots: int) -> float:
        """Return a lower bound of the wall clock with some steps side by side."""
        return max(self.seconds / slots, self.longest)


def estimate_plan(plan: Plan, root: Path, finished: Collection[str] = ()) -> Estimate | None:
    """Estimate what a plan's cells cost; None if this folder has no earlier run.

    Args:
        plan: the lattice of cells.
        root: the project's folder.
        finished: keys of cells to leave out, and with them what all cells start from; a grid's or a
            probe's is its folder.
    """
    known = earlier_costs(root)
    if not known:
        return None
    stages = _stages(plan, finished)
    everything = [shape for stage in stages.values() for shape in stage.shapes]
    costs = {shape: _cost(shape, known) for shape in set(everything)}
    found = {shape: cost for shape, cost in costs.items() if cost is not None}
    seconds = {
        name: sum(found[shape].seconds for shape in stage.shapes if shape in found)
        for name, stage in stages.items()
    }
    ends: dict[str, float] = {}
    for name, stage in stages.items():  # each comes after those it waits for
        ends[name] = seconds[name] + max((ends[before] for before in stage.after), default=0.0)
    return Estimate(
        seconds=sum(seconds.values()),
        longest=max(ends.values()),
        size=sum(found[shape].size for shape in everything if shape in found),
        num_records=sum(len(own) for own in known.values()),
        num_scaled=sum(shape in found and shape not in known for shape in everything),
        unknown=_counts(shape.step for shape in everything if shape not in found),
    )


class _Stage(NamedTuple):
    """What is run in one go: the shapes of its steps, and what has to be there before."""

    shapes: tuple[Shape, ...]
    after: tuple[str, ...]


def _stages(plan: Plan, finished: Collection[str]) -> dict[str, _Stage]:
    """Return what a plan runs, by folder; what is finished is there and has no steps left."""
    warm = {
        f"{WARM_DIR}/{role}": _Stage((_warm_shape(entry["settings"]),), (PREPARED_DIR,))
        for role, entry in plan.shared["warm_start"].items()
    }
    stages = {PREPARED_DIR: _Stage((Shape("prepare", "", 1),), ()), **warm}
    if finished:  # then all that cells start from is finished too
        stages = {name: _Stage((), stage.after) for name, stage in stages.items()}
    for cell in (*plan.starts.values(), *plan.cells.values()):
        shapes = () if cell.key in finished else tuple(shapes_of(cell))
        after = tuple(warm) if cell.before is None else (cell.before,)
        stages[cell.directory] = _Stage(shapes, after)
    for grid in planned_grids(plan).values():
        shapes = () if grid.directory in finished else (Shape("evaluate_grid", "", 1),)
        read = tuple(cell.directory for cell in (*grid.cells, grid.stale))
        stages[grid.directory] = _Stage(shapes, read)
    for probe in planned_probes(plan).values():
        shape = Shape("probe_evaluators", "", len(probe.cells))
        shapes = () if probe.directory in finished else (shape,)
        read = tuple(one.cell.directory for one in probe.cells.values())
        stages[probe.directory] = _Stage(shapes, read)
    cells = tuple(cell.directory for cell in (*plan.starts.values(), *plan.cells.values()))
    for audit in planned_audits(plan).values():
        shapes = () if audit.directory in finished else (_audit_shape(audit),)
        stages[audit.directory] = _Stage(shapes, cells)
    return stages


def _audit_shape(audit: PlannedAudit) -> Shape:
    """Return the shape of an audit: its generators, where each training keeps all it is asked."""
    trainings = sum(len(policy.cells) for policy in audit.policies)
    amount = trainings * (audit.checkpoints + 1) + len(audit.policies)
    return Shape("audit_checkpoints", "", amount)


def shapes_of(cell: Cell) -> Iterator[Shape]:
    """Return the shapes of a cell's steps; a generator that is only kept costs nothing."""
    recipe = cell.recipe
    size, evaluator = recipe.responses_per_set, recipe.rubrics.evaluator
    generator, policy = recipe.generator_training, recipe.policy_training
    if policy is not None:
        yield Shape("sample_responses", "", size)
        yield Shape("train_policy", evaluator, policy.steps * policy.prompts_per_step * size)
    if generator is not None:
        amount = generator.steps * generator.prompts_per_step * generator.group_size
        yield Shape("train_generator", evaluator, amount)
    elif recipe.reward_training is not None:
        reward = recipe.reward_training
        yield Shape("train_generator", evaluator, reward.steps * reward.batch_size)
    elif evaluator in KEEPS_RUBRICS and recipe.round == 1:  # it writes its rubrics
        yield Shape("train_generator", evaluator, 0)
    yield Shape("evaluate_round", evaluator, recipe.evaluation.sets_per_prompt * size)


def earlier_costs(root: Path) -> dict[Shape, list[Cost]]:
    """Return what earlier steps of this folder took, by shape; a broken record counts for none."""
    found: dict[Shape, list[Cost]] = {}
    for pattern in RECORDS:
        for path in sorted(root.glob(pattern)):
            try:
                record = json.loads(path.read_text(encoding="utf-8"))
                shape = _shape_of_record(record)
                seconds = float(record["provenance"]["seconds"])
                size = sum(int(facts["bytes"]) for facts in record["files"].values())
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
            if shape is not None:
                found.setdefault(shape, []).append(Cost(seconds, size))
    return found


def _shape_of_record(record: Mapping[str, Any]) -> Shape | None:
    step, identity = str(record["step"]), record["identity"]
    if step in ("prepare", "evaluate_grid"):
        return Shape(step, "", 1)
    if step == "probe_evaluators":
        return Shape(step, "", len(identity["cells"]))
    if step == "audit_checkpoints":
        return Shape(step, "", len(identity["checkpoints"]))
    if step == "warm_start":
        return _warm_shape(identity["settings"])
    if step == "sample_responses":
        return Shape(step, "", identity["responses_per_set"])
    evaluator = identity.get("rubrics", {}).get("evaluator")
    if step == "evaluate_round":
        sets = identity["evaluation"]["sets_per_prompt"]
        return Shape(step, evaluator, sets * identity["responses_per_set"])
    if step in ("train_generator", "train_policy"):
        training = identity["training"]
        if training is None:
            return Shape(step, evaluator, 0)
        if "batch_size" in training:  # a reward model's, in pairs
            return Shape(step, evaluator, training["steps"] * training["batch_size"])
        group = training.get("group_size") or identity["responses_per_set"]
        return Shape(step, evaluator, training["steps"] * training["prompts_per_step"] * group)
    return None


def _warm_shape(settings: Mapping[str, Any]) -> Shape:
    return Shape("warm_start", "", settings["steps"] * settings["batch_size"])


def _cost(shape: Shape, known: Mapping[Shape, list[Cost]]) -> Cost | None:
    """Return the median of this shape, or of the nearest one of the step, scaled; else None."""
    if shape in known:
        return _median(known[shape])
    others = [one for one in known if one.step == shape.step and one.amount > 0]
    if not others:
        return None
    nearest = min(
        others,
        key=lambda one: (one.evaluator != shape.evaluator, abs(one.amount - shape.amount), one),
    )
    found = _median(known[nearest])
    return Cost(found.seconds * shape.amount / nearest.amount, found.size)


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.seconds for cost in costs),
        round(statistics.median(cost.size for cost in costs)),
    )


def _counts(names: Iterator[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found
