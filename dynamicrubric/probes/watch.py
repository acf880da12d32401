"""What a round's course says: whether a run has to stop, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynamicrubric.probes.course import EVEN, Course, CourseRow, courses_of
from dynamicrubric.probes.names import REFERENCES
from dynamicrubric.stats import LEVEL, Estimate


@dataclass(frozen=True)
class Watched:
    """What was found.

    Attributes:
        diverges: whether proxy and gold go apart.
        sentence: both shares with their intervals, in words.
    """

    diverges: bool
    sentence: str


def verdict_on(key: str, seed: int, rows: Sequence[CourseRow]) -> Watched:
    """Return what the pairs of two rounds' responses say.

    Args:
        key: the cell whose policy is the newer one.
        seed: its seed.
        rows: of the reference `before` alone.
    """
    (found,) = courses_of({"before": {seed: rows}})
    return Watched(found.diverges, sentence_of(key, found))


def sentence_of(key: str, found: Course) -> str:
    """Say what the evaluator prefers, and what is true."""
    verb = "diverge" if found.diverges else "do not diverge"
    return (
        f"proxy and gold {verb}: of the pairs of a response of {key} and one of "
        f"{REFERENCES[found.reference]}, "
        f"the evaluator prefers the new one in {_share(found.proxy)} and it is better in truth in "
        f"{_share(found.gold)}"
    )


def _share(found: Estimate) -> str:
    if found.mean is None:
        return f"none that is scored ({found.lacking})"
    share = f"{100 * (found.mean + EVEN):.1f} %"
    if found.interval is None:
        return f"{share} (no interval: {found.lacking})"
    low, high = (100 * (end + EVEN) for end in found.interval)
    return f"{share} ({LEVEL:.0%} interval {low:.1f} to {high:.1f} %)"
