"""The falsifier: of two generators, the one with the higher objective has the lower gap.

What is trained is `J_disc + lambda J_anchor` with lambda = 1; what is wanted is Delta_gap. A pair
of generators of one policy *contradicts* the objective if it rises from one to the other and
Delta_gap falls. Changes are means over the prompts for which both have figures, so that no rubric
that one of them failed to write makes it look better; a change is *sure* if its interval leaves
out 0.

The objective is looked at twice: as the paper writes it, a sum of the rewards, which R_anchor's
scale decides nearly alone; and as it is trained, each reward in units of how far it spreads within
a group of rollouts, since rewards are normalised there before they are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from dynamicrubric.audit.ranks import Pooled, pooled
from dynamicrubric.audit.read import Group, weighted_means
from dynamicrubric.stats import prompt_intervals

FloatArray = NDArray[np.float64]
Objective = Literal["as trained", "as written"]
OBJECTIVES: Final[Mapping[Objective, str]] = {
    "as trained": "R_disc + R_anchor, each in units of its spread within a group of rollouts",
    "as written": "R_disc + R_anchor, the rewards themselves",
}


@dataclass(frozen=True)
class Counted:
    """Pairs of generators of the same policy.

    Attributes:
        pairs: pairs in which the objective and the gap both differ.
        against: pairs in which the objective rises and the gap falls.
        share: their share by policy, averaged over the policies, with an interval.
        sure: pairs in which both changes are sure.
        sure_against: of those, how many contradict.
    """

    pairs: int
    against: int
    share: Pooled
    sure: int
    sure_against: int


def count_pairs(groups: Sequence[Group], objective: Objective) -> Counted:
    """Count the pairs of groups: those of a round, say."""
    own = [group for group in groups if weights_of(group, objective) is not None]
    pairs = against = sure = sure_against = 0
    for group in own:
        rises, falls = _changes(group, objective)
        contrary = rises.sign * falls.sign < 0
        differs = contrary | (rises.sign * falls.sign > 0)
        both = rises.sure & falls.sure
        pairs, against = pairs + int(differs.sum()), against + int(contrary.sum())
        sure, sure_against = sure + int(both.sum()), sure_against + int((both & contrary).sum())
    share = pooled(own, partial(share_against, objective=objective), 0.0, 1.0)
    return Counted(pairs, against, share, sure, sure_against)


def weights_of(group: Group, objective: Objective) -> tuple[float, float] | None:
    """Return what R_disc and R_anchor are multiplied with; None where a spread is not known."""
    if objective == "as written":
        return 1.0, 1.0
    disc, anchor = group.spreads
    return None if not disc or not anchor else (1.0 / disc, 1.0 / anchor)


def share_against(group: Group, shares: FloatArray | None, *, objective: Objective) -> FloatArray:
    """Return the share of pairs that contradict the objective (`ranks.Statistic`)."""
    if shares is None:
        shares = np.full((1, len(group.prompts)), 1.0 / len(group.prompts))
    trained, gap = (weighted_means(own, shares) for own in _differences(group, objective))
    products = trained * gap
    with np.errstate(invalid="ignore", divide="ignore"):
        against, along = (products < 0).sum(axis=1), (products > 0).sum(axis=1)
        found: FloatArray = against / (against + along)
    return found


def _differences(group: Group, objective: Objective) -> tuple[FloatArray, FloatArray]:
    """Return by prompt how the objective and the gap differ in each pair, shape (pairs, P)."""
    weights = weights_of(group, objective)
    assert weights is not None, "counted without spreads"
    trained = weights[0] * group.values["r_disc"] + weights[1] * group.values["j_anchor"]
    gap = group.values["delta_gap"]
    one, other = np.triu_indices(len(group.checkpoints), k=1)
    return trained[one] - trained[other], gap[one] - gap[other]


@dataclass(frozen=True, eq=False)
class _Changes:
    """From one generator of each pair to the other: which way, and whether that is sure."""

    sign: FloatArray
    sure: NDArray[np.bool_]


def _changes(group: Group, objective: Objective) -> tuple[_Changes, _Changes]:
    trained, gap = _differences(group, objective)
    return _change(trained), _change(gap)


def _change(differences: FloatArray) -> _Changes:
    means, halves = prompt_intervals(differences)
    with np.errstate(invalid="ignore"):
        return _Changes(np.sign(means), np.abs(means) > halves)
