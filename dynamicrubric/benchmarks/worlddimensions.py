"""How good a rubric is in the embedded world, exactly: no judge, the world's own truth.

Of the paper's six dimensions five have an exact counterpart; *specificity* has none, since nothing
in the world says whether a criterion that fewer prompts share is the better one. *Direction* is
added: whether what discriminates points the right way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dynamicrubric.benchmarks.schema import BenchItem
from dynamicrubric.rewards import normalised_weights
from dynamicrubric.theory import OrderedPairs, decompose, ordered_pairs
from dynamicrubric.worlds.postcards.criteria import check, criteria_for
from dynamicrubric.worlds.postcards.prompts import prompt_by_id

WORLD_DIMENSIONS: Final[dict[str, str]] = {
    "task_alignment": "share of the weight on criteria that are good to meet for this prompt",
    "local_discrimination": "4 R_disc: 1 if every criterion splits the responses in half",
    "response_awareness": "share of the criteria whose feature differs between the responses",
    "specificity": "not defined in the world",
    "weighting": "Delta_gap with the weights less Delta_gap with equal ones",
    "overall": "Delta_gap on the pairs that true quality orders",
    "direction": "of the weight on what discriminates, the share that favours the better responses",
}
"""What each dimension is, in words."""
Rubric = Sequence[tuple[str, int]]


def world_dimensions(rubric: Rubric, item: BenchItem) -> dict[str, float | None]:
    """Return a rubric's exact dimensions on a response set; None where it has none.

    Args:
        rubric: (criterion, weight) pairs.
        item: responses to a prompt of the world, with their true quality.
    """
    worth = {one.criterion: one.worth for one in criteria_for(prompt_by_id(item.prompt_id))}
    weights = [weight for _, weight in rubric]
    shares = normalised_weights(weights)
    # A criterion that no program reads is met by nobody.
    yes = np.array(
        [[bool(check(text, response)) for text, _ in rubric] for response in item.responses]
    )
    p = yes.mean(axis=0)
    varies = (p > 0.0) & (p < 1.0)
    good = np.array([worth.get(text, 0) > 0 for text, _ in rubric])
    pairs = ordered_pairs(item.quality)
    written = decompose(weights, yes, pairs)
    equal = decompose([1] * len(rubric), yes, pairs)
    return {
        "task_alignment": float(shares @ good),
        "local_discrimination": float(4.0 * (shares @ (p * (1.0 - p)))),
        "response_awareness": float(varies.mean()),
        "specificity": None,
        "weighting": written.delta_gap - equal.delta_gap if written and equal else None,
        "overall": written.delta_gap if written else None,
        "direction": _direction(shares, yes, pairs),
    }


def _direction(
    shares: NDArray[np.float64], yes: NDArray[np.bool_], pairs: OrderedPairs
) -> float | None:
    """Return the share of the weight on deciding criteria that favours the better responses."""
    if not pairs:
        return None
    better, worse = np.array(pairs, dtype=np.intp).T
    balance = yes[better].mean(axis=0) - yes[worse].mean(axis=0)
    deciding = float(shares @ (balance != 0.0))
    return float(shares @ (balance > 0.0)) / deciding if deciding else None
