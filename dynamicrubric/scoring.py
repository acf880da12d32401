"""From verdicts to scores: `E(x, y | C)`, the weighted share of criteria that a response meets.

Departure, stated: the paper has no failed verdicts. Here one unscored verdict leaves the whole
response unscored. Scoring it on its other items would compare responses of one set on different
criteria, and counting the failure as a no would punish a response for its verifier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dynamicrubric.types import Rubric, Score, Verdict

VerdictMatrix = Sequence[Sequence[Verdict]]
"""K rows, one a response, of M verdicts, one an item."""

BoolMatrix = NDArray[np.bool_]
"""Shape (K, M)."""


def score_response(rubric: Rubric, verdicts: Sequence[Verdict]) -> Score:
    """Score of one response: `E = sum_m w_m v_m / sum_m w_m` (paper, score equation).

    Args:
        rubric: M items.
        verdicts: M verdicts on one response, in item order.

    Returns:
        A number in [0, 1], or unscored for the reason of the first unscored verdict.

    Raises:
        ValueError: when the numbers of items and verdicts differ, which is a bug of the caller.

    >>> from dynamicrubric.types import Item
    >>> rubric = Rubric((Item("Greets.", 3), Item("Has a number.", 1)))
    >>> score_response(rubric, [Verdict.yes(), Verdict.no()]).value
    0.75
    >>> score_response(rubric, [Verdict.yes(), Verdict.unscored("refusal")]).reason
    'refusal'
    """
    if len(verdicts) != len(rubric.items):
        raise ValueError(f"{len(verdicts)} verdicts for {len(rubric.items)} items")
    for verdict in verdicts:
        if verdict.reason is not None:
            return Score.unscored(verdict.reason)
    gained = sum(w for w, v in zip(rubric.weights, verdicts, strict=True) if v.value == "yes")
    return Score.of(gained / sum(rubric.weights))


def score_set(rubric: Rubric, matrix: VerdictMatrix) -> tuple[Score, ...]:
    """Scores of the K responses of a set under the one rubric that serves it, shape (K,).

    Raises:
        ValueError: for a row that has not one verdict an item.
    """
    return tuple(score_response(rubric, row) for row in matrix)


def yes_matrix(matrix: VerdictMatrix) -> BoolMatrix:
    """True where the verdict is yes, shape (K, M). Read it together with `scored_matrix`.

    Raises:
        ValueError: for rows of different lengths.
    """
    return np.array([[v.value == "yes" for v in row] for row in _same_length(matrix)], dtype=bool)


def scored_matrix(matrix: VerdictMatrix) -> BoolMatrix:
    """True where the verdict is yes or no, shape (K, M).

    Raises:
        ValueError: for rows of different lengths.
    """
    return np.array([[v.is_scored for v in row] for row in _same_length(matrix)], dtype=bool)


def unscored_reasons(matrix: VerdictMatrix) -> dict[str, int]:
    """How many verdicts are unscored for each reason, by name."""
    counts = Counter(v.reason for row in matrix for v in row if v.reason is not None)
    return dict(sorted(counts.items()))


def _same_length(matrix: VerdictMatrix) -> VerdictMatrix:
    lengths = {len(row) for row in matrix}
    if len(lengths) > 1:
        raise ValueError(f"rows of different lengths: {sorted(lengths)}")
    return matrix
