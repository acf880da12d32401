"""All that a report is made of, read from the cells once, each cell once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import EVALUATION, load_cell
from dynamicrubric.report.celltables import read_tables
from dynamicrubric.report.costs import Cost, cost_of
from dynamicrubric.report.curves import CURVES
from dynamicrubric.report.extremes import Extremes, extremes_of
from dynamicrubric.report.faults import Fault
from dynamicrubric.report.rubricchange import RubricUse, rubric_use
from dynamicrubric.stats import PromptValues


@dataclass(frozen=True)
class CellDigest:
    """What the report keeps of a cell.

    Attributes:
        by_prompt: values by prompt of each metric that has a curve.
        use: its rubrics.
        cost: what its training took.
        prompts: held-out prompts.
        provenance: of its evaluation: commit, packages, when.
        extremes: most and least rewarded responses; None unless asked for.
    """

    by_prompt: Mapping[str, PromptValues]
    use: RubricUse
    cost: Cost
    prompts: int
    provenance: Mapping[str, object]
    extremes: Extremes | None


@dataclass(frozen=True)
class Gathered:
    """The cells of a study, by key, and those that cannot be reported on.

    Attributes:
        plan: the lattice.
        cells: what was read, by cell key.
        faults: what is missing or damaged; empty unless the report is partial.
        shown: the cell whose responses are shown for each arm that has one.
    """

    plan: Plan
    cells: Mapping[str, CellDigest]
    faults: tuple[Fault, ...]
    shown: Mapping[str, str]

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


def gather(plan: Plan, root: Path, faults: Sequence[Fault] = ()) -> Gathered:
    """Read every cell of a plan, those with faults left out.

    Raises:
        UserError: a cell is missing or contradicts itself or the plan.
    """
    without = {fault.key for fault in faults}
    shown = _shown_cells(plan, without)
    keys = dict.fromkeys(key for path in plan.paths.values() for key in path)
    wanted = set(shown.values())
    cells = {key: _digest(plan, root, key, key in wanted) for key in keys if key not in without}
    counts = {digest.prompts for digest in cells.values()}
    assert len(counts) <= 1, f"cells with other numbers of held-out prompts: {sorted(counts)}"
    return Gathered(plan, cells, tuple(faults), shown)


def _shown_cells(plan: Plan, without: set[str]) -> dict[str, str]:
    """Return each arm's cell of its last round, of the first seed that has it."""
    found: dict[str, str] = {}
    for (arm, _), keys in plan.paths.items():
        there = [key for key in keys if key not in without]
        if there and there[-1] == keys[-1]:
            found.setdefault(arm, keys[-1])
    return found


def _digest(plan: Plan, root: Path, key: str, show: bool) -> CellDigest:
    files = load_cell(root, plan.cell(key))
    tables = read_tables(plan, files)
    return CellDigest(
        by_prompt={metric: tables.by_prompt(metric) for metric in CURVES},
        use=rubric_use(tables),
        cost=cost_of(plan, files),
        prompts=int(tables.responses["prompt_id"].nunique()),
        provenance=dict(files.records[EVALUATION]["provenance"]),
        extremes=extremes_of(tables) if show else None,
    )
