"""Anchor lists as a training reads them: with label noise, or shorter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dynamicrubric.seeds import generator_for


def swap_adjacent(texts: Sequence[str], rate: float, rng: np.random.Generator) -> tuple[str, ...]:
    """Walk down a ranked list and swap each adjacent pair with a probability.

    Args:
        texts: n texts, best first.
        rate: probability of each of the n - 1 swaps.
        rng: a draw for each pair, whatever the rate.

    Returns:
        The same texts; one that several swaps in a row carry on ends up far from its place.
    """
    found = list(texts)
    for first in range(len(found) - 1):
        if rng.random() < rate:
            found[first], found[first + 1] = found[first + 1], found[first]
    return tuple(found)


def noisy_anchors(
    anchors: Mapping[str, Sequence[str]], rate: float, seed: int
) -> dict[str, tuple[str, ...]]:
    """Return anchor lists by prompt id with label noise, the same in every round of a run.

    A labeller who errs, errs once: the noise is of the prompt and the run's seed, not of the round.
    """
    return {
        prompt_id: swap_adjacent(texts, rate, generator_for(seed, "anchor_noise", prompt_id))
        for prompt_id, texts in anchors.items()
    }


def shuffled_anchors(
    anchors: Mapping[str, Sequence[str]], rate: float, seed: int
) -> dict[str, tuple[str, ...]]:
    """Return anchor lists by prompt id, each in a random order with a probability.

    As with swaps the noise is of the prompt and the run's seed; a list that is shuffled at one rate
    is shuffled, in the same way, at every higher one.
    """
    found = {}
    for prompt_id, texts in anchors.items():
        rng = generator_for(seed, "anchor_shuffle", prompt_id)
        is_shuffled = rng.random() < rate
        places = rng.permutation(len(texts)) if is_shuffled else range(len(texts))
        found[prompt_id] = tuple(texts[int(place)] for place in places)
    return found


def spread_over(texts: Sequence[str], number: int) -> tuple[str, ...]:
    """Return so many texts of a ranked list: the best, the worst, and evenly between them.

    >>> spread_over("abcdefg", 4)
    ('a', 'c', 'e', 'g')

    Raises:
        ValueError: there are fewer, or not even two are asked for.
    """
    if not 2 <= number <= len(texts):
        raise ValueError(f"{number} of {len(texts)} anchors")
    last = len(texts) - 1
    return tuple(texts[round(place * last / (number - 1))] for place in range(number))
