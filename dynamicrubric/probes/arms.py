"""The evaluator of an arm, as its rounds were measured with it, behind the one contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dynamicrubric.evaluators.base import ScoredSet
from dynamicrubric.evaluators.judging import Judging, ResponseSet
from dynamicrubric.evaluators.writers import RubricWriter
from dynamicrubric.plan import CellRecipe
from dynamicrubric.worlds.prepared import PreparedData

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines


@dataclass(frozen=True)
class ArmEvaluator:
    """Scores by rubrics (an `evaluators.base.Evaluator`).

    Attributes:
        name: the kind of evaluator that the arm has.
        sees_set: whether its rubrics are written from the responses.
        writer: writes them.
        judging: how they are read and applied.
    """

    name: str
    sees_set: bool
    writer: RubricWriter
    judging: Judging

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        """Score each set; a seed is the one that its rubric is written with."""
        texts = self.writer.write(sets, seeds)
        judged = self.judging.judge_sets(texts, sets, seeds)
        return [
            ScoredSet(one.scores, one, text.text) for one, text in zip(judged, texts, strict=True)
        ]


def evaluator_of(
    cell: CellRecipe, generator_dir: Path, prepared: PreparedData, engines: Engines
) -> ArmEvaluator:
    """Return the evaluator that measured a cell.

    Args:
        cell: the cell's recipe; its evaluator is no oracle, which cannot be hacked.
        generator_dir: the folder of its generator.
        prepared: the world and its prompts.
        engines: the step's engines.
    """
    from dynamicrubric.stepparts import judging_of, writer_of

    assert cell.rubrics.evaluator != "oracle", "the config refuses it"
    heldout = prepared.prompts["heldout"]
    return ArmEvaluator(
        cell.rubrics.evaluator,
        cell.rubrics.evaluator == "dynamic",
        writer_of(cell, generator_dir, prepared.world, engines, heldout),
        judging_of(cell, cell.evaluation, prepared.world, engines),
    )
