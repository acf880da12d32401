"""Which generators the audit of Eq. 45 measures, and on which policy's held-out responses.

The bound is about round t: generators that are trained while the policy is P_{t-1}. So cells are
put together by the policy that they start from, whatever arm they belong to, and each of their
generators is measured on that policy's held-out sets: the one the cell starts from, those kept
while it was trained (`study.audit.checkpoints`) and the one it ends with. Generators that read the
prompt alone, and cells that train none, have no part in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dynamicrubric.versions import STEP_VERSIONS
from dynamicrubric.worlds.base import POSTCARDS

if TYPE_CHECKING:
    from dynamicrubric.cells import Cell
    from dynamicrubric.lattice import Plan

AUDIT_DIR: Final = "data/audit"
START: Final = "start"
"""Name of the policy that nobody has trained yet, P_0."""
NEEDS: Final = (
    "study.audit in params.yaml, and an arm that is run, trains its generator and writes rubrics "
    "for response sets, in a world with true quality"
)


@dataclass(frozen=True)
class AuditedPolicy:
    """A policy P_{t-1} and the cells of round t that start from it.

    Attributes:
        name: key of the cell that trained it, or `start`.
        round: t.
        sets: folder of the evaluation that holds its held-out responses.
        cells: the cells whose generators are measured on them.
    """

    name: str
    round: int
    sets: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class PlannedAudit:
    """The audit of one seed.

    Attributes:
        seed: the seed.
        checkpoints: kept weights of each training beside its first and last.
        policies: what is measured, rounds rising.
    """

    seed: int
    checkpoints: int
    policies: tuple[AuditedPolicy, ...]

    @property
    def key(self) -> str:
        """Name of its DVC stage and its folder."""
        return f"s{self.seed}"

    @property
    def directory(self) -> str:
        """Folder of its artefact, relative to the project."""
        return f"{AUDIT_DIR}/{self.key}"

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell whose generators are measured."""
        return tuple(cell for policy in self.policies for cell in policy.cells)

    @property
    def entry(self) -> dict[str, Any]:
        """What cells.yaml says of it: everything that its DVC stage depends on but folders."""
        return {
            "version": STEP_VERSIONS["audit_checkpoints"],
            "checkpoints": self.checkpoints,
            "policies": {one.name: [cell.key for cell in one.cells] for one in self.policies},
        }


def planned_audits(plan: Plan) -> dict[str, PlannedAudit]:
    """Return the audits of a plan by key, seeds rising; none without what one `NEEDS`."""
    if plan.audit is None or plan.shared["prepare"]["world"]["name"] != POSTCARDS:
        return {}
    found = {}
    for seed in sorted({seed for _, seed in plan.paths}):
        policies = _policies(plan, seed, plan.audit.arms)
        if policies:
            audit = PlannedAudit(seed, plan.audit.checkpoints, policies)
            found[audit.key] = audit
    return found


def snapshot_every(cell: Cell, checkpoints: int) -> int:
    """Return after how many steps a training keeps its weights; 0: never.

    >>> [step for step in range(1, 60) if step % (60 // (5 + 1)) == 0]
    [10, 20, 30, 40, 50]
    """
    training = cell.recipe.generator_training
    if training is None or not checkpoints:
        return 0
    return max(1, training.steps // (checkpoints + 1))


def _policies(plan: Plan, seed: int, arms: tuple[str, ...] | None) -> tuple[AuditedPolicy, ...]:
    groups: dict[str, dict[str, Cell]] = {}
    for (arm, own), keys in plan.paths.items():
        if own != seed or (arms is not None and arm not in arms):
            continue
        for cell in map(plan.cell, keys[1:]):
            trains = cell.recipe.generator_training is not None
            if trains and cell.recipe.rubrics.evaluator == "dynamic":
                groups.setdefault(cell.prev, {})[cell.key] = cell
    policies = [_policy(prev, tuple(cells.values())) for prev, cells in groups.items()]
    return tuple(sorted(policies, key=lambda one: one.round))


def _policy(prev: str, cells: tuple[Cell, ...]) -> AuditedPolicy:
    first = cells[0]
    assert first.before is not None, "round 0 trains nothing"
    name = prev.rpartition("/")[2] if first.recipe.round > 1 else START
    return AuditedPolicy(name, first.recipe.round, f"{first.before}/evaluation", cells)


def audit_structure(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what DVC's graph depends on in the audits of a cells.yaml: which there are."""
    return {f"audits/{key}": "" for key in document.get("audits") or {}}
