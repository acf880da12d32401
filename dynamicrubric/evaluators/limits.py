"""How many responses an evaluator may leave unscored before it is a broken instrument.

As for verdicts (`judging.Judging.check_rates`): what an engine never gave, invalid rubrics and
whatever else leaves a response unscored are told apart, each with a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dynamicrubric.errors import InstrumentError
from dynamicrubric.evaluators.base import ScoredSet
from dynamicrubric.evaluators.judging import failure_of

_INVALID = "invalid_rubric:"


@dataclass(frozen=True)
class ScoreLimits:
    """Largest shares of responses without a score.

    Attributes:
        max_unscored_rate: that the evaluator left unscored, of those that there are; and, of all,
            that an engine did not give.
        max_invalid_rate: whose rubric is invalid.
    """

    max_unscored_rate: float
    max_invalid_rate: float


def check_scores(where: str, scored: Sequence[ScoredSet], limits: ScoreLimits) -> dict[str, float]:
    """Return the share of responses without a score, or stop above a limit.

    Args:
        where: what was scored, as a person reads it ("step 3").
        scored: the sets.
        limits: the limits.

    Raises:
        InstrumentError: a share is above its limit.
    """
    scores = [score for one in scored for score in one.scores]
    if not scores:
        return {}
    reasons = [score.reason for score in scores if score.reason is not None]
    failed = Counter(reason for reason in reasons if failure_of(reason) is not None)
    invalid = Counter(reason for reason in reasons if reason.startswith(_INVALID))
    others = Counter(reasons) - failed - invalid
    there = len(scores) - failed.total()
    for found, of, name, limit in (
        (failed, len(scores), "verifier.max_unscored_rate", limits.max_unscored_rate),
        (invalid, there, "max_invalid_rate", limits.max_invalid_rate),
        (others, there, "verifier.max_unscored_rate", limits.max_unscored_rate),
    ):
        if found.total() > limit * of:
            raise InstrumentError(
                f"{found.total()} of {of} responses of {where} have no score "
                f"({dict(sorted(found.items()))}), above {name} {limit}; mend the evaluator or "
                "raise the limit"
            )
    return {"rate/unscored_response": len(reasons) / len(scores)}
