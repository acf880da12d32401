"""Items of one rubric that say the same, or the opposite, of every response of its set.

Two items that split a set alike are one item with two weights; two that split it the other way
round give each response one of their weights for anything it does. On K responses that may happen
by chance, so the rate that chance would give is told beside each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dynamicrubric.honesty.single import words_of


@dataclass(frozen=True, slots=True)
class Redundant:
    """Pairs of items of one rubric that both split the set, all their verdicts scored.

    Attributes:
        pairs: how many there are.
        equal: pairs with the same verdict on every response.
        opposite: pairs with the other verdict on every response.
        equal_by_chance: how many equal ones to expect if one item's verdicts were dealt anew.
        opposite_by_chance: likewise opposite ones.
        same_words: pairs of any two items whose criteria have the same words.
    """

    pairs: int
    equal: int
    opposite: int
    equal_by_chance: float
    opposite_by_chance: float
    same_words: int


def redundant(
    criteria: Sequence[str], yes: NDArray[np.bool_], scored: NDArray[np.bool_]
) -> Redundant:
    """Count the pairs of a rubric.

    Args:
        criteria: M sentences.
        yes: shape (K, M).
        scored: shape (K, M).

    >>> yes = np.array([[True, False], [False, True]])
    >>> found = redundant(["greets", "gives no greeting"], yes, np.ones((2, 2), bool))
    >>> found.pairs, found.equal, found.opposite, found.opposite_by_chance
    (1, 0, 1, 0.5)
    """
    size, met = len(yes), yes.sum(axis=0)
    split = [
        place for place in range(len(criteria)) if scored[:, place].all() and 0 < met[place] < size
    ]
    pairs = list(combinations(split, 2))
    words = [words_of(text, 1) for text in criteria]  # a "no" among them makes an opposite
    return Redundant(
        pairs=len(pairs),
        equal=sum(bool((yes[:, i] == yes[:, j]).all()) for i, j in pairs),
        opposite=sum(bool((yes[:, i] != yes[:, j]).all()) for i, j in pairs),
        # Of the C(K, n) ways to deal n yes, one is the other item's.
        equal_by_chance=sum(_dealt(size, int(met[i])) for i, j in pairs if met[i] == met[j]),
        opposite_by_chance=sum(
            _dealt(size, int(met[i])) for i, j in pairs if met[i] + met[j] == size
        ),
        same_words=sum(
            bool(words[i]) and words[i] == words[j]
            for i, j in combinations(range(len(criteria)), 2)
        ),
    )


def _dealt(size: int, num_yes: int) -> float:
    return 1.0 / math.comb(size, num_yes)
