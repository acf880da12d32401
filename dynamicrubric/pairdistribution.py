"""P, the distribution of ordered pairs (y+, y-) that every gap is a mean over.

The paper writes `(y+, y-) ~ P` and never says what P is. Here it is a reference over the response
set, which says which response of a pair is better, and a choice of how its ordered pairs count. The
default, used by every gap figure of the project, is uniform over the pairs that the reference
orders. Ties have no y+ and are left out under every choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

OrderedPairs = tuple[tuple[int, int], ...]
"""(index of the better response, index of the worse one), each unordered pair at most once."""
Choice = Literal["uniform", "adjacent", "margin"]
Kind = Literal["true quality", "anchor ranks", "gold judge"]
DEFAULT_CHOICE: Final[Choice] = "uniform"
CHOICES: Final[tuple[Choice, ...]] = get_args(Choice)
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reference:
    """What orders the responses of a set, independently of the evaluator that is measured.

    Attributes:
        kind: what it is.
        margins: shape (K, K), antisymmetric; above 0 where the row's response is the better one, 0
            where it has no order.
    """

    kind: Kind
    margins: FloatArray

    @classmethod
    def of_quality(cls, quality: Sequence[float], kind: Kind = "true quality") -> Self:
        """Order by a number of each response, higher is better; a margin is their difference.

        Args:
            quality: shape (K,); equal numbers tie.
            kind: whose numbers they are.

        Raises:
            ValueError: for a NaN, which no order holds.
        """
        q = np.asarray(quality, dtype=np.float64)
        if np.isnan(q).any():
            raise ValueError(f"quality must not hold NaN, got {quality!r}")
        with np.errstate(invalid="ignore"):  # two infinities of one sign
            margins = np.nan_to_num(q[:, None] - q[None, :])
        return cls(kind, margins)

    @classmethod
    def of_ranks(cls, ranks: Sequence[float]) -> Self:
        """Order by ranks, 1 the best; equal ranks tie, a margin is the ranks between.

        Raises:
            ValueError: for a NaN.
        """
        return cls.of_quality([-rank for rank in ranks], "anchor ranks")

    @classmethod
    def of_judge(cls, preferred: ArrayLike) -> Self:
        """Order by a judge that compared pairs; it may contradict itself in longer chains.

        Args:
            preferred: shape (K, K), the share of the comparisons of a pair, both orders of showing
                it counted alike, in which the row's response was preferred, a tie counting half; so
                that one entry of a pair is 1 less the other. NaN in both where the pair was not
                judged or the verdicts were unusable: no order. The diagonal is not read.

        Raises:
            ValueError: for another shape, a share outside [0, 1], or two shares of a pair that do
                not add up to 1.

        A judge that answers "the first one" whatever is first prefers nothing:

        >>> pairs(Reference.of_judge([[0.0, 0.5], [0.5, 0.0]])).pairs
        ()
        """
        shares = np.array(preferred, dtype=np.float64)
        if shares.ndim != 2 or shares.shape[0] != shares.shape[1]:
            raise ValueError(f"preferences of a pair of responses each, got shape {shares.shape}")
        np.fill_diagonal(shares, 0.5)
        known = ~np.isnan(shares)
        if not (known == known.T).all() or not ((shares[known] >= 0) & (shares[known] <= 1)).all():
            raise ValueError("preferences must be shares in [0, 1], or NaN both ways round")
        if not np.allclose((shares + shares.T)[known], 1.0):
            raise ValueError("the two preferences of a pair must add up to 1")
        return cls("gold judge", np.nan_to_num(shares - shares.T))


@dataclass(frozen=True, eq=False)
class PairDistribution:
    """P over one response set.

    Attributes:
        pairs: the ordered pairs that have a probability above 0.
        probabilities: of each, adding up to 1; empty without pairs.
        choice: how they were weighed.
        kind: what ordered them.
    """

    pairs: OrderedPairs
    probabilities: FloatArray
    choice: Choice = DEFAULT_CHOICE
    kind: Kind = "true quality"

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.pairs)

    def mean(self, values: NDArray[np.bool_] | FloatArray) -> FloatArray:
        """Return the mean under P of values by pair, shape (number of pairs, ...).

        Where all pairs count the same it is the plain mean, to the last bit.
        """
        if self.choice != "margin":
            return np.asarray(values.mean(axis=0), dtype=np.float64)
        return np.asarray(self.probabilities @ values.astype(np.float64), dtype=np.float64)

    @property
    def text(self) -> str:
        """P in words, as it is printed with every gap."""
        return pairs_text(self.choice, self.kind)


def pairs_text(choice: Choice = DEFAULT_CHOICE, kind: Kind = "true quality") -> str:
    """Return P in words.

    >>> pairs_text()
    'uniform over the pairs of a set that true quality orders, ties left out'
    """
    orders = "order" if kind.endswith("s") else "orders"
    said = {
        "uniform": f"uniform over the pairs of a set that {kind} {orders}",
        "adjacent": f"uniform over the pairs of a set between which {kind} {orders} no third",
        "margin": f"the pairs of a set that {kind} {orders}, each weighed by its margin",
    }
    return f"{said[choice]}, ties left out"


def pairs(reference: Reference, choice: Choice = DEFAULT_CHOICE) -> PairDistribution:
    """Return P: the ordered pairs of a set and the probability of each, ties left out.

    Args:
        reference: which response of a pair is better.
        choice: `uniform`: each ordered pair counts the same. `adjacent`: only pairs with no third
            response between them, the hard ones, each the same. `margin`: each in proportion to its
            margin, so that hardly ordered pairs hardly count.

    Raises:
        ValueError: there is no such choice.

    >>> reference = Reference.of_quality([0.2, 0.9, 0.5, 0.2])
    >>> pairs(reference).pairs
    ((1, 0), (1, 2), (1, 3), (2, 0), (2, 3))
    >>> pairs(reference, "adjacent").pairs
    ((1, 2), (2, 0), (2, 3))
    >>> [round(float(p), 3) for p in pairs(reference, "margin").probabilities]
    [0.292, 0.167, 0.292, 0.125, 0.125]
    """
    if choice not in CHOICES:
        raise ValueError(f"no such distribution of pairs: {choice!r}; there are {CHOICES}")
    better = reference.margins > 0
    if choice == "adjacent":
        between = better.astype(np.int64) @ better.astype(np.int64)
        better = better & (between == 0)
    found = np.argwhere(better)
    weights = np.ones(len(found))
    if choice == "margin":
        weights = reference.margins[found[:, 0], found[:, 1]]
    return PairDistribution(
        tuple((int(i), int(j)) for i, j in found),
        weights / weights.sum() if len(found) else weights,
        choice,
        reference.kind,
    )


def as_distribution(given: PairDistribution | OrderedPairs) -> PairDistribution:
    """Return P, which bare pairs stand for uniformly."""
    if isinstance(given, PairDistribution):
        return given
    return PairDistribution(tuple(given), np.full(len(given), 1.0 / max(len(given), 1)))
