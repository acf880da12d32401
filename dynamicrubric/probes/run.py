"""Probing one cell: its evaluator on attacked sets, and against gold on two policies' responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dynamicrubric.evaluation import SampledSet
from dynamicrubric.evaluationfiles import read_sets
from dynamicrubric.evaluators.base import Evaluator
from dynamicrubric.evaluators.limits import ScoreLimits
from dynamicrubric.probes.arms import evaluator_of
from dynamicrubric.probes.attacks import Attack
from dynamicrubric.probes.course import CourseRow, Gold, measure_course
from dynamicrubric.probes.measure import ProbeRow, measure_attacks
from dynamicrubric.probes.names import Reference

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines
    from dynamicrubric.plan import CellRecipe
    from dynamicrubric.worlds.prepared import PreparedData

Say = Callable[[str], None]


@dataclass(frozen=True)
class Probed:
    """A cell on disk, as it is probed.

    Attributes:
        key: the cell.
        recipe: what it computes.
        generator_dir: its generator.
        evaluation_dir: its evaluation, with its policy's held-out responses.
        older: the evaluations that hold the older policies' responses, by reference.
    """

    key: str
    recipe: CellRecipe
    generator_dir: Path
    evaluation_dir: Path
    older: Mapping[Reference, Path]


def draws_of(recipe: CellRecipe) -> tuple[str | int, ...]:
    """Return the words that name the draws of a cell's evaluation."""
    return (recipe.seed, recipe.round, "evaluate")


def first_sets(sets: Sequence[SampledSet], per_prompt: int) -> list[SampledSet]:
    """Return the first so many sets of each prompt."""
    return [one for one in sets if int(one.set_id.rpartition("/")[2]) < per_prompt]


def attack_cell(
    one: Probed,
    attacks: Sequence[Attack],
    per_prompt: int,
    prepared: PreparedData,
    evaluators: Sequence[Evaluator],
    say: Say = lambda line: None,
) -> list[ProbeRow]:
    """Attack evaluators on a cell's held-out sets.

    Args:
        one: the cell.
        attacks: the attacks.
        per_prompt: sets that are attacked for each prompt.
        prepared: the world.
        evaluators: what is attacked.
        say: told what is being measured.
    """
    sets = first_sets(read_sets(one.evaluation_dir)[0], per_prompt)
    recipe = one.recipe
    limits = ScoreLimits(recipe.verifier.max_unscored_rate, recipe.evaluation.max_invalid_rate)
    rows = []
    for evaluator in evaluators:
        rows += measure_attacks(
            evaluator,
            sets,
            attacks,
            prepared.world.true_quality,
            draws_of(recipe),
            limits,
            partial(_tell, say, f"{one.key}, {evaluator.name}"),
        )
    return rows


def _tell(say: Say, where: str, attack: str) -> None:
    say(f"{where}: {attack}")


def course_of(
    one: Probed, evaluator: Evaluator | None, gold: Gold, say: Say = lambda line: None
) -> list[CourseRow]:
    """Compare a cell's policy with older ones under its evaluator; in round 1 they are one."""
    if evaluator is None:
        return []
    sets = read_sets(one.evaluation_dir)[0]
    rows: dict[Path, list[CourseRow]] = {}
    for reference, folder in one.older.items():
        if folder not in rows:
            say(f"{one.key}: its policy against that of {folder.parent.name}")
            older = read_sets(folder)[0]
            rows[folder] = measure_course(
                evaluator, sets, older, reference, gold, draws_of(one.recipe)
            )
    return [
        replace(row, reference=reference)
        for reference, folder in one.older.items()
        for row in rows[folder]
    ]


def own_evaluator(one: Probed, prepared: PreparedData, engines: Engines) -> Evaluator | None:
    """Return the evaluator that measured a cell; None where there is none yet."""
    return evaluator_of(one.recipe, one.generator_dir, prepared, engines)
