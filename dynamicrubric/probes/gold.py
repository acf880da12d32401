"""What is good: true quality where the world knows it, else a held-out judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynamicrubric.evaluation import Quality
from dynamicrubric.evaluators.judging import Judging, ResponseSet, job_of
from dynamicrubric.probes.course import Gold
from dynamicrubric.seeds import derive_seed
from dynamicrubric.types import Item, Rubric, Score
from dynamicrubric.worlds.base import World

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines
    from dynamicrubric.probesettings import GoldJudge


def gold_of(world: World, judge: GoldJudge | None, engines: Engines) -> Gold:
    """Return what says which responses are good.

    Args:
        world: its true quality is gold wherever it is known.
        judge: the held-out judge of a world in which nobody knows it; None: nobody judges.
        engines: the step's engines, of which the judge may be one.
    """
    if judge is None:
        return truth(world.true_quality)
    rubric = Rubric(tuple(Item(one.criterion, one.weight) for one in judge.rubric))
    judging = Judging(
        verifier=world.verifier(judge.verifier, engines),
        min_items=1,
        max_items=len(rubric.items),
        max_invalid_rate=1.0,
        max_unscored_rate=judge.verifier.max_unscored_rate,
    )
    return held_out(judging, rubric)


def truth(quality: Quality) -> Gold:
    """Return true quality as gold."""

    def gold(sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[tuple[float | None, ...]]:
        return [
            tuple(
                quality(one.prompt_id, text) if why is None else None
                for text, why in zip(one.responses, one.reasons, strict=True)
            )
            for one in sets
        ]

    return gold


def held_out(judging: Judging, rubric: Rubric) -> Gold:
    """Return the scores of a fixed rubric under a verifier of its own as gold."""

    def gold(sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[tuple[Score, ...]]:
        jobs = [
            job_of(rubric, one, derive_seed(seed, "gold"))
            for one, seed in zip(sets, seeds, strict=True)
        ]
        judged = judging.judge(jobs)
        judging.check_rates("the held-out judge", judged)
        return [one.scores for one in judged]

    return gold
