"""Postcards of mixed quality: the warm start's texts and the anchors' candidates.

Each feature is drawn on its own, good and bad ones with equal chance, so that the start policy's
true quality is about zero and every criterion separates its responses.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dynamicrubric.worlds.postcards.criteria import COLOURS, sights_of
from dynamicrubric.worlds.postcards.prompts import PostcardPrompt

FEATURE_RATE: Final = 0.4
_FILLERS: Final = ("all is well", "more soon", "we walk and rest", "time goes by here")
_ENDINGS: Final = (".", "?", "")


def compose(prompt: PostcardPrompt, rng: np.random.Generator, rate: float = FEATURE_RATE) -> str:
    """Write one postcard at random.

    Args:
        prompt: the writing task.
        rng: source of every draw.
        rate: chance of each good and each bad feature alike.

    Returns:
        Comma-separated phrases, 3 to about 40 words.
    """
    good, bad = sights_of(prompt.place)
    phrases = [f"saw the {sight}" for sight in (*good, *bad) if rng.random() < rate]
    phrases += [phrase for phrase in _phrases(prompt, rng) if rng.random() < rate]
    phrases += [str(rng.choice(_FILLERS)) for _ in range(int(rng.integers(0, 5)))]
    if not phrases:
        phrases = [str(rng.choice(_FILLERS))]
    order = rng.permutation(len(phrases))
    body = [phrases[index] for index in order]
    if rng.random() < rate:
        body.insert(0, "the days fly")
    return ", ".join(body) + str(rng.choice(_ENDINGS))


def _phrases(prompt: PostcardPrompt, rng: np.random.Generator) -> list[str]:
    """Return one phrase for each feature that is neither a sight, an opening nor an ending."""
    return [
        f"dear {prompt.recipient}",
        f"happy {prompt.occasion}",
        "thank you",
        f"{int(rng.integers(2, 10))} days left",
        f"{rng.choice(COLOURS)} skies",
        "WOW",
        "something nice",
        "very very warm",
        "no money left",
    ]
