"""The falsifier: of two generators, the one with the higher objective has the lower gap.

What is trained is `J_disc + lambda J_anchor` with lambda = 1; what is wanted is Delta_gap. A pair
of generators of one policy *contradicts* the objective if it rises from one to the other and
Delta_gap falls. A change is *sure* if the interval of its mean over prompts, paired by prompt,
leaves out 0.

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

from dynamicrubric.audit.ranks import Pooled, figures_of, pooled
from dynamicrubric.audit.read import Group
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
        differs, contrary = rises.sign * falls.sign != 0, rises.sign * falls.sign < 0
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
    weights = weights_of(group, objective)
    assert weights is not None, "counted without spreads"
    trained = weights[0] * figures_of(group, "r_disc", shares)
    trained = trained + weights[1] * figures_of(group, "j_anchor", shares)
    gap = figures_of(group, "delta_gap", shares)
    one, other = np.triu_indices(trained.shape[1], k=1)
    products = (trained[:, one] - trained[:, other]) * (gap[:, one] - gap[:, other])
    with np.errstate(invalid="ignore", divide="ignore"):
        found: FloatArray = (products < 0).sum(axis=1) / (products != 0).sum(axis=1)
    return found


@dataclass(frozen=True, eq=False)
class _Changes:
    """From one generator of each pair to the other: which way, and whether that is sure."""

    sign: FloatArray
    sure: NDArray[np.bool_]


def _changes(group: Group, objective: Objective) -> tuple[_Changes, _Changes]:
    weights = weights_of(group, objective)
    assert weights is not None
    trained = weights[0] * group.values["r_disc"] + weights[1] * group.values["j_anchor"]
    return _change(group, trained), _change(group, group.values["delta_gap"])


def _change(group: Group, values: FloatArray) -> _Changes:
    """Return the changes between the means; sure by the differences of prompts that both have."""
    one, other = np.triu_indices(len(group.checkpoints), k=1)
    means = np.nanmean(values, axis=1)
    paired, halves = prompt_intervals(values[one] - values[other])
    with np.errstate(invalid="ignore"):
        sure = np.abs(paired) > halves
    return _Changes(np.sign(means[one] - means[other]), sure)
