"""All that a report is made of, read from the cells once, each cell once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynamicrubric.honesty.cells import Honesty, honesty_of
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import EVALUATION, CellFiles
from dynamicrubric.report.celltables import read_tables
from dynamicrubric.report.costs import Cost, cost_of
from dynamicrubric.report.curves import CURVES
from dynamicrubric.report.extremes import Extremes, extremes_of
from dynamicrubric.report.faults import Fault, attempt
from dynamicrubric.report.gapparts import GapParts, gap_parts
from dynamicrubric.report.gridtable import grid_faults
from dynamicrubric.report.probetable import probe_faults
from dynamicrubric.report.rubricchange import RubricUse, rubric_use
from dynamicrubric.stats import PromptValues

ACCURACY: Final = "rank_accuracy"
"""Has no curve, but values by prompt: with ties, the share of pairs scored the wrong way."""
UPDATES: Final = ("delta_gap", "r_disc", "r_dir", "tie_rate")
"""Figures of a generator that are told before and after a policy's update; all have curves."""


@dataclass(frozen=True)
class CellDigest:
    """What the report keeps of a cell.

    Attributes:
        by_prompt: values by prompt of each metric that has a curve, and of `ACCURACY`.
        use: its rubrics.
        parts: what Delta_gap is made of, by item.
        cost: what its training took.
        prompts: held-out prompts.
        provenance: of its evaluation: commit, packages, when.
        extremes: most and least rewarded responses; None but in a path's last round.
        before: values by prompt of each figure of `UPDATES` before the policy's update; none in
            round 0 and in an arm without rubrics.
        honesty: what R_disc pays its rubrics for.
    """

    by_prompt: Mapping[str, PromptValues]
    use: RubricUse
    parts: GapParts
    cost: Cost
    prompts: int
    provenance: Mapping[str, object]
    extremes: Extremes | None
    before: Mapping[str, PromptValues]
    honesty: Honesty


@dataclass(frozen=True)
class Gathered:
    """The cells of a study, by key, and those that cannot be reported on.

    Attributes:
        plan: the lattice.
        cells: what was read, by cell key.
        faults: cells, grids and probes that are missing or damaged.
        shown: the cell whose responses are shown for each arm that has one.
    """

    plan: Plan
    cells: Mapping[str, CellDigest]
    faults: tuple[Fault, ...]
    shown: Mapping[str, str]

    @property
    def num_cells(self) -> int:
        """Cells of the plan, whether they are there or not."""
        return len(self.cells) + sum(fault.kind == "cell" for fault in self.faults)

    def of(self, arm: str, round_number: int) -> list[CellDigest]:
        """Return an arm's cells of one round, a seed each, those there are."""
        return [
            self.cells[keys[round_number]]
            for (name, _), keys in self.plan.paths.items()
            if name == arm and round_number < len(keys) and keys[round_number] in self.cells
        ]

    def by_prompt(self) -> dict[tuple[str, int, int, str], PromptValues]:
        """Return the values by prompt of each (arm, seed, round, metric)."""
        return {
            (arm, seed, number, metric): self.cells[key].by_prompt[metric]
            for (arm, seed), keys in self.plan.paths.items()
            for number, key in enumerate(keys)
            if key in self.cells
            for metric in CURVES
        }


def gather(plan: Plan, root: Path) -> Gathered:
    """Read every cell of a plan; what cannot be reported on is a fault, also a grid or a probe."""
    ends = {keys[-1] for keys in plan.paths.values()}
    found = {
        key: attempt(plan, root, key, lambda files: _digest(plan, files, files.cell.key in ends))
        for key in dict.fromkeys(key for path in plan.paths.values() for key in path)
    }
    cells = {key: one for key, one in found.items() if isinstance(one, CellDigest)}
    shown: dict[str, str] = {}
    for (arm, _), keys in plan.paths.items():
        if keys[-1] in cells:  # of the first seed that has its last round
            shown.setdefault(arm, keys[-1])
    faults = tuple(one for one in found.values() if isinstance(one, Fault))
    grids = grid_faults(plan, root, {fault.key for fault in faults})
    probes = probe_faults(plan, root, {fault.key for fault in faults})
    return Gathered(plan, cells, (*faults, *grids, *probes), shown)


def _digest(plan: Plan, files: CellFiles, is_end: bool) -> CellDigest:
    tables = read_tables(plan, files)
    return CellDigest(
        by_prompt={metric: tables.by_prompt(metric) for metric in (*CURVES, ACCURACY)},
        use=rubric_use(tables),
        parts=gap_parts(tables),
        honesty=honesty_of(tables.responses, tables.rubrics, tables.verdicts),
        cost=cost_of(plan, files),
        prompts=int(tables.responses["prompt_id"].nunique()),
        provenance=dict(files.records[EVALUATION]["provenance"]),
        extremes=extremes_of(tables) if is_end else None,
        before={
            metric: tables.before_update(metric) for metric in UPDATES if tables.before is not None
        },
    )
