"""Label noise: anchor lists as a training with `anchor_swap_rate` reads them."""

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
