"""Where R_gap's ordered pairs come from: the anchor list, or a judge of the training responses.

An arm whose pairs the `reference` judge orders sees, through that judge's noise, the true quality
of training responses, which no other arm's training sees. Held-out prompts are never among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

from dynamicrubric.evaluators.judging import JudgedSet, ResponseSet, text_hash
from dynamicrubric.seeds import generator_for
from dynamicrubric.theory import OrderedPairs, ordered_pairs, r_gap_of_verdicts
from dynamicrubric.types import InvalidReason, InvalidRubric

WORST_R_GAP = -1.0
"""What an invalid rubric earns: every pair at the widest gap the wrong way."""


@dataclass(frozen=True)
class GapReward:
    """Computes R_gap of a rubric.

    Attributes:
        pairs: ordered pairs of each response set, by row key; None takes those of the anchor list.
    """

    pairs: Mapping[str, OrderedPairs] | None = None

    def __call__(self, key: str, judged: JudgedSet, ranked: JudgedSet) -> float | None:
        """Return R_gap of the rubric of one row; None where nothing can be said.

        Args:
            key: the row.
            judged: its response set under the rubric.
            ranked: its prompt's anchor list under the rubric, best first.
        """
        one, rubric = (ranked if self.pairs is None else judged), judged.rubric
        pairs = ranked_pairs(len(ranked.scores)) if self.pairs is None else self.pairs[key]
        if isinstance(rubric, InvalidRubric):
            gone = rubric.reason is InvalidReason.FAILED or not pairs
            return None if gone else WORST_R_GAP
        return r_gap_of_verdicts(rubric.weights, one.verdicts, pairs)


def ranked_pairs(num_anchors: int) -> OrderedPairs:
    """Return all pairs of a ranked list, the better first.

    >>> ranked_pairs(3)
    ((0, 1), (0, 2), (1, 2))
    """
    return tuple(combinations(range(num_anchors), 2))


def reference_pairs(
    sets: Mapping[str, ResponseSet],
    quality: Callable[[str, str], float],
    noise: float,
    seed: int,
) -> dict[str, OrderedPairs]:
    """Return the pairs of each response set as a judge orders them, responses that are there alone.

    A judge who errs, errs once: the error is of the response and the run's seed, not of the round
    or the set, and equal responses stay tied.

    Args:
        sets: response sets of training prompts, by row key.
        quality: true quality of (prompt id, text).
        noise: standard deviation of the judge's error; 0 errs never.
        seed: the run's.
    """

    def judged(prompt_id: str, text: str) -> float:
        if not noise:
            return quality(prompt_id, text)
        rng = generator_for(seed, "reference_judge", prompt_id, text_hash(text))
        return quality(prompt_id, text) + noise * float(rng.standard_normal())

    found = {}
    for key, rows in sets.items():
        there = [place for place, failed in enumerate(rows.reasons) if failed is None]
        values = [judged(rows.prompt_id, rows.responses[place]) for place in there]
        found[key] = tuple((there[i], there[j]) for i, j in ordered_pairs(values))
    return found
