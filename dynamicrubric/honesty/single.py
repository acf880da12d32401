"""Items that single out one response: met by it alone, and written in its own words.

Such an item names a response instead of a quality. It discriminates (one yes among K is worth
`(K - 1) / K^2`), whatever it says about the response, so R_disc alone pays a generator for quoting.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dynamicrubric.evaluators.judging import JudgedSet, ResponseSet
from dynamicrubric.rewards import normalised_weights
from dynamicrubric.scoring import scored_matrix, yes_matrix
from dynamicrubric.types import InvalidRubric

_WORD: Final = re.compile(r"\w+")
MIN_LETTERS: Final = 3
"""Shorter words (a, of, is) are nobody's own."""
MIN_RESPONSES: Final = 3
"""Of two responses every item that tells them apart singles one out."""


def words_of(text: str, min_letters: int = MIN_LETTERS) -> frozenset[str]:
    """Return the words of a text, case aside, without the shortest."""
    return frozenset(word for word in _WORD.findall(text.casefold()) if len(word) >= min_letters)


def singled_out(
    criteria: Sequence[str],
    responses: Sequence[str],
    prompt: str,
    yes: NDArray[np.bool_],
    scored: NDArray[np.bool_],
) -> tuple[int | None, ...]:
    """Return for each item the response that it singles out, None for most.

    An item singles out a response if all its verdicts are there, that response alone meets it, and
    the criterion has a word of that response that neither another response nor the prompt has.
    A criterion met by one response alone is no fault in itself: a rare virtue is one.

    Args:
        criteria: M sentences.
        responses: K texts.
        prompt: what they answer.
        yes: shape (K, M).
        scored: shape (K, M).

    >>> responses = ["saw the tram.", "dear Ann", "dear Ben"]
    >>> yes = np.array([[True, False], [False, True], [False, True]])
    >>> singled_out(["mentions the tram", "greets"], responses, "", yes, np.ones((3, 2), bool))
    (0, None)
    """
    if len(responses) < MIN_RESPONSES:
        return (None,) * len(criteria)
    common = words_of(prompt)
    words = [words_of(text) for text in responses]
    found: list[int | None] = []
    for place, criterion in enumerate(criteria):
        met = np.flatnonzero(yes[:, place])
        if len(met) != 1 or not scored[:, place].all():
            found.append(None)
            continue
        one = int(met[0])
        others = common.union(*(own for row, own in enumerate(words) if row != one))
        found.append(one if (words_of(criterion) & words[one]) - others else None)
    return tuple(found)


def single_share(judged: JudgedSet, rows: ResponseSet) -> float:
    """Return the share of a valid rubric's weight on items that single out one response."""
    assert not isinstance(judged.rubric, InvalidRubric), "an invalid rubric has no items"
    out = singled_out(
        judged.rubric.criteria,
        rows.responses,
        rows.prompt,
        yes_matrix(judged.verdicts),
        scored_matrix(judged.verdicts),
    )
    shares = normalised_weights(judged.rubric.weights)
    return float(sum(share for share, one in zip(shares, out, strict=True) if one is not None))
