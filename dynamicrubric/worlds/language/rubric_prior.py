"""Rubrics for the generator's warm start: the right form, criteria of use, no direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dynamicrubric.types import MAX_WEIGHT, MIN_WEIGHT, Item, Rubric
from dynamicrubric.worlds.language.criteria import BANK, LEAVES_OUT, MENTIONS, check, words_of

_DISCRIMINATING_SHARE: Final = 0.5
_MIN_LETTERS: Final = 5
"""Of a word that a rubric may ask for: shorter ones say little about a text."""
_NUM_WORDS: Final = 6
"""Words of a prompt and its responses that one rubric chooses from."""


def prior_rubric(
    prompt: str, responses: Sequence[str], num_items: tuple[int, int], rng: np.random.Generator
) -> Rubric:
    """Draw a rubric: about half of its items discriminate on the responses, the rest are random.

    A criterion and its opposite are equally likely and weights are uniform on 1..5, so that the
    prior points nowhere.

    Args:
        prompt: what is answered; its words, and the responses', may be asked for.
        responses: the set; nothing for a static evaluator, all of whose items are random.
        num_items: fewest and most items.
        rng: of all draws.
    """
    words = sorted(
        word for text in (prompt, *responses) for word in words_of(text) if _is_telling(word)
    )
    drawn = rng.permutation(len(words))[:_NUM_WORDS]
    chosen = dict.fromkeys(words[int(place)] for place in drawn)
    asked = [f"{verb}{word}" for word in chosen for verb in (MENTIONS, LEAVES_OUT)]
    criteria = [*BANK, *asked]
    useful = [c for c in criteria if _discriminates(c, responses)]
    size = int(rng.integers(num_items[0], num_items[1] + 1))
    found: list[str] = []
    while len(found) < size:
        pool = useful if useful and rng.random() < _DISCRIMINATING_SHARE else criteria
        criterion = str(pool[int(rng.integers(len(pool)))])
        if criterion not in found:
            found.append(criterion)
    found.sort(key=criteria.index)  # one order, so that no repetition has to be unlearnt
    return Rubric(tuple(Item(c, int(rng.integers(MIN_WEIGHT, MAX_WEIGHT + 1))) for c in found))


def _is_telling(word: str) -> bool:
    return len(word) >= _MIN_LETTERS and word.isascii()


def _discriminates(criterion: str, responses: Sequence[str]) -> bool:
    met = [check(criterion, text) for text in responses]
    return True in met and False in met
