"""What R_disc pays for unscored verdicts, in the version that is trained and in two naive ones.

The trained one (`rewards.r_disc_of_verdicts`) lets an unscored verdict tell nothing apart. Taken as
a no, it makes an item that every response meets look as if it split them; left out of the count, a
single yes and a single no make an item look like an even split. Either pays for a failing verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dynamicrubric.rewards import normalised_weights

BoolMatrix = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Paid:
    """R_disc of one rubric in three versions.

    Attributes:
        aware: as it is trained: `(yes / K) (no / K)` an item.
        as_no: unscored verdicts taken as no.
        scored_only: shares over the scored verdicts of an item; none scored adds 0.
    """

    aware: float
    as_no: float
    scored_only: float


def paid(weights: Sequence[float], yes: BoolMatrix, scored: BoolMatrix) -> Paid:
    """Return what the three versions pay a rubric; all are R_disc where all verdicts are scored.

    Args:
        weights: shape (M,), positive.
        yes: shape (K, M), True where the verdict is yes.
        scored: shape (K, M), True where it is yes or no.

    An item that all of the responses that could be judged meet:

    >>> yes = np.array([[True], [True], [False], [False]])
    >>> paid([1], yes, yes)
    Paid(aware=0.0, as_no=0.25, scored_only=0.0)
    """
    shares = normalised_weights(weights)
    size = len(yes)
    num_yes, num_scored = (yes & scored).sum(axis=0), scored.sum(axis=0)
    num_no = num_scored - num_yes
    known = np.maximum(num_scored, 1)
    return Paid(
        aware=float(shares @ (num_yes * num_no / size**2)),
        as_no=float(shares @ (num_yes * (size - num_yes) / size**2)),
        scored_only=float(shares @ (num_yes * num_no / known**2)),
    )
