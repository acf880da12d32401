"""Reads the held-out response sets of finished cells as a data set, and finds their generators.

True quality is what the cells' evaluations measured; it orders the responses and is shown to
nobody. A set's subset is the policy that wrote it: P_0, P_1, ...
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.benchmarks.loaders import Loaded, limited
from dynamicrubric.benchmarks.schema import BenchItem, Refusal
from dynamicrubric.benchmarks.settings import STUDY, StudySource
from dynamicrubric.errors import UserError

if TYPE_CHECKING:
    from dynamicrubric.cells import Cell
    from dynamicrubric.evaluation import Quality, SampledSet
    from dynamicrubric.lattice import Plan

REFERENCE: Final = "study:"
"""Begins the name of a generator of a study: study:ARM@ROUND."""
FAILED: Final = "failed_response"
UNKNOWN: Final = "unknown_quality"


@dataclass(frozen=True)
class Study:
    """The finished cells of a project.

    Attributes:
        root: its folder.
    """

    root: Path

    @cached_property
    def plan(self) -> Plan:
        """The plan of its params.yaml."""
        return _plan_of(self.root.resolve())

    def cell(self, arm: str, seed: int, number: int) -> Cell:
        """Return the cell of a round of an arm's path.

        Raises:
            UserError: the plan has no such arm, seed or round.
        """
        path = self.plan.paths.get((arm, seed), ())
        if number >= len(path):
            there = sorted({f"{name} (seed {own})" for name, own in self.plan.paths})
            raise UserError(
                doing=f"looking for round {number} of the arm {arm} with seed {seed}",
                got=f"a study of {', '.join(there)}" if not path else f"{len(path) - 1} rounds",
                expected="an arm, a seed and a round that params.yaml selects",
                remedy=f"select them in {self.root / 'params.yaml'}, and run the study",
            )
        return self.plan.cell(path[number])

    def generator(self, name: str, seed: int) -> str:
        """Return the folder of a generator named study:ARM@ROUND; round 0 is the untrained one.

        Raises:
            UserError: the name is of another form, or there is no such folder.
        """
        arm, _, number = name.removeprefix(REFERENCE).partition("@")
        if not arm or not number.isdigit():
            raise UserError(
                doing=f"reading the generator {name!r}",
                got=repr(name),
                expected=f"{REFERENCE}ARM@ROUND, such as {REFERENCE}coevolved@2",
            )
        cell = self.cell(arm, seed, int(number))
        folder = self.root / (
            f"{cell.directory}/generator" if cell.recipe.round else cell.generator_dir
        )
        if not folder.is_dir():
            raise UserError(
                doing=f"looking for the generator {name} with seed {seed}",
                got=f"no folder {folder}",
                remedy="run `make reproduce`, or `dvc pull` if the study was finished elsewhere",
            )
        return str(folder)

    def items(self, source: StudySource, seed: int, limit: int | None) -> Loaded:
        """Return the held-out sets of an arm's policies as a data set.

        Raises:
            UserError: a cell is not finished.
        """
        items: list[BenchItem] = []
        refusals: list[Refusal] = []
        rows = 0
        for number in source.rounds:
            own, refused = self._policy(self.cell(source.arm, seed, number), number)
            items += limited(own, limit)
            refusals += refused
            rows += len(own) + len(refused)
        return Loaded(STUDY, tuple(items), tuple(refusals), rows)

    def _policy(self, cell: Cell, number: int) -> tuple[list[BenchItem], list[Refusal]]:
        from dynamicrubric.evaluationfiles import read_sets
        from dynamicrubric.report.cellfiles import load_cell

        files = load_cell(self.root, cell)
        files.file("evaluation", "responses.parquet")  # checked against its record
        sets, quality = read_sets(files.folder / "evaluation")
        return study_items(sets, quality, f"P_{number}")


@lru_cache(maxsize=4)
def _plan_of(root: Path) -> Plan:
    from dynamicrubric.config import load_config
    from dynamicrubric.plan import expand

    return expand(load_config(root / "params.yaml"))


def study_items(
    sets: Iterable[SampledSet], quality: Quality, policy: str
) -> tuple[list[BenchItem], list[Refusal]]:
    """Return response sets as items, best first by true quality; equal quality is a tier.

    A set with a response that an engine never gave, or whose quality nobody knows, is refused.
    """
    items, refusals = [], []
    for one in sets:
        responses = one.responses
        values = [
            None if failed else quality(responses.prompt_id, text)
            for text, failed in zip(responses.responses, responses.reasons, strict=True)
        ]
        known = [value for value in values if value is not None]
        if len(known) < len(values) or len(known) < 2:
            reason = FAILED if responses.failures else UNKNOWN
            place = f"{policy}, set {one.set_id}"
            refusals.append(
                Refusal(STUDY, place, "true_quality", reason, f"{len(known)} of {len(values)}")
            )
            continue
        ranks = sorted(set(known), reverse=True)
        order = sorted(range(len(known)), key=lambda n: -known[n])
        items.append(
            BenchItem(
                dataset=STUDY,
                id=f"{policy}/{one.set_id}",
                subset=policy,
                prompt=responses.prompt,
                responses=tuple(responses.responses[n] for n in order),
                tiers=tuple(ranks.index(known[n]) for n in order),
                prompt_id=responses.prompt_id,
                quality=tuple(known[n] for n in order),
            )
        )
    return items, refusals
