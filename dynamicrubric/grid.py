"""The G x P grid: each generator of two rounds on the held-out responses of each policy.

The paper's co-evolution figure asks whether `G_1 -> G_2`, trained on P_1's responses, beats
`G_1 -> G~_2`, trained again on P_0's with equal compute, and whether `P_1 -> P_2` gains more under
G_2. Both halves are read off the paths of named arms; this module says which there are in a plan,
and nothing else: it is read by the plan, the tasks and the report.
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

COEVOLVED: Final = "coevolved"
STALE: Final = "stale"
ONCE: Final = "once"
REVERTED: Final = "reverted"
"""Names of the arms that the figure is made of."""
_KEPT: Final = {"G_0": "start", "G_1": "previous"}
"""Where a second round has a generator from that it does not train."""

GRID_DIR: Final = "data/grid"
LAST_ROUND: Final = 2
G_STALE: Final = "G~_2"
GENERATORS: Final[Mapping[str, str]] = {
    "G_0": "not trained",
    "G_1": "trained on P_0's responses",
    "G_2": "G_1 trained on P_1's responses",
    G_STALE: "G_1 trained again on P_0's responses, with equal compute",
}
"""The grid's rows and what each is."""
POLICIES: Final = ("P_0", "P_1", "P_2")
"""The grid's columns: policies of the arm `coevolved`, by round."""
UNDER: Final[Mapping[str, str]] = {
    "G_2": COEVOLVED, G_STALE: STALE, "G_1": ONCE, "G_0": REVERTED,
}  # fmt: skip
"""Arm whose second round trains P_1 under the generator."""
NEEDS: Final = (
    f"the arms {COEVOLVED} (update fresh) and {STALE} (update stale, as many steps) with dynamic "
    f"rubrics, a common first round and at least {LAST_ROUND} rounds"
)


@dataclass(frozen=True)
class PlannedGrid:
    """The grid of one seed.

    Attributes:
        seed: the seed.
        cells: `coevolved`'s cells of rounds 0, 1 and 2.
        stale: `stale`'s cell of round 2.
    """

    seed: int
    cells: tuple[Cell, ...]
    stale: Cell

    @property
    def key(self) -> str:
        """Name of its DVC stage and its folder."""
        return f"s{self.seed}"

    @property
    def directory(self) -> str:
        """Folder of its artefact, relative to the project."""
        return f"{GRID_DIR}/{self.key}"

    @property
    def generators(self) -> dict[str, str]:
        """Folder of each generator, relative to the project, in the order of `GENERATORS`."""
        homes = [self.cells[1].prev, *(cell.directory for cell in self.cells[1:])]
        folders = [f"{home}/generator" for home in [*homes, self.stale.directory]]
        return dict(zip(GENERATORS, folders, strict=True))

    @property
    def policies(self) -> dict[str, Cell]:
        """The cell whose evaluation holds the responses of each policy."""
        return dict(zip(POLICIES, self.cells, strict=True))

    @property
    def entry(self) -> dict[str, Any]:
        """What cells.yaml says of it: everything that its DVC stage depends on."""
        return {
            "version": STEP_VERSIONS["evaluate_grid"],
            "start": self.cells[1].prev,
            **{f"round_{number}": cell.directory for number, cell in enumerate(self.cells)},
            "stale_2": self.stale.directory,
        }


def trains_under(generator: str, cell: Cell, coevolved: Cell | None) -> bool:
    """Say whether a second round's generator is what the figure calls it: names alone do not.

    Args:
        generator: G_0, G_1, G_2 or G~_2.
        cell: a second round.
        coevolved: the second round of `coevolved`, whose compute is the measure; None if it is not
            there to be compared with.
    """
    training = cell.recipe.generator_training
    if generator in _KEPT:
        return training is None and cell.recipe.generator_from == _KEPT[generator]
    source = "current" if generator == "G_2" else "start"
    if training is None or training.responses != source:
        return False
    fresh = coevolved.recipe.generator_training if coevolved else training
    return fresh is not None and training == fresh.model_copy(update={"responses": source})


def planned_grids(plan: Plan) -> dict[str, PlannedGrid]:
    """Return the grids of a plan by key, seeds rising; none unless the plan has what it `NEEDS`.

    None where nobody knows true quality either: a grid's gaps are gaps of it.
    """
    found: dict[str, PlannedGrid] = {}
    if plan.shared["prepare"]["world"]["name"] != POSTCARDS:
        return found
    for seed in sorted({seed for arm, seed in plan.paths if arm == COEVOLVED}):
        path, other = (plan.paths.get((arm, seed), ()) for arm in (COEVOLVED, STALE))
        if min(len(path), len(other)) <= LAST_ROUND or path[1] != other[1]:
            continue
        cells = tuple(plan.cell(key) for key in path[: LAST_ROUND + 1])
        grid = PlannedGrid(seed, cells, plan.cell(other[LAST_ROUND]))
        fits = trains_under("G_2", cells[-1], cells[-1]) and trains_under(
            G_STALE, grid.stale, cells[-1]
        )
        if fits and all(c.recipe.rubrics.evaluator == "dynamic" for c in (*cells, grid.stale)):
            found[grid.key] = grid
    return found


def grid_structure(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what DVC's graph depends on in the grids of a cells.yaml: which folders each reads."""
    return {
        f"grids/{key}/{name}": str(folder)
        for key, entry in (document.get("grids") or {}).items()
        for name, folder in entry.items()
        if name != "version"
    }
