"""Postcards of mixed quality: the warm start's texts and the anchors' candidates.

Each feature is there or not with equal chance, so that the start policy's true quality is about
zero, every criterion separates its responses, and the two sentences of a pair are met equally
often. Phrases keep one order, as people's postcards do: what is learnt is which to write, not how
to shuffle them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dynamicrubric.worlds.postcards.criteria import COLOURS, WEEKDAYS, sights_of
from dynamicrubric.worlds.postcards.prompts import PostcardPrompt

FEATURE_RATE: Final = 0.5
_FILLER_RATE: Final = 0.3
_FILLERS: Final = ("all is well", "more soon", "we walk and rest", "time goes by here")
_ENDINGS: Final = (".", "?")


def compose(prompt: PostcardPrompt, rng: np.random.Generator, rate: float = FEATURE_RATE) -> str:
    """Write one postcard at random.

    Args:
        prompt: the writing task.
        rng: source of every draw.
        rate: chance of each good and each bad feature alike.

    Returns:
        Comma-separated phrases, 3 to about 40 words.
    """
    chosen = [phrase for phrase in _features(prompt, rng) if rng.random() < rate]
    chosen += [phrase for phrase in _FILLERS if rng.random() < _FILLER_RATE]
    return ", ".join(chosen or [_FILLERS[0]]) + str(rng.choice(_ENDINGS))


def _features(prompt: PostcardPrompt, rng: np.random.Generator) -> list[str]:
    """Return one phrase for each feature that is not an ending, in the order of a postcard."""
    sights = sorted(sight for way in sights_of(prompt.place) for sight in way)
    return [
        "the days fly",
        f"dear {prompt.recipient}",
        f"happy {prompt.occasion}",
        *(f"saw the {sight}" for sight in sights),
        f"{rng.choice(COLOURS)} skies",
        "very very warm",
        "something nice",
        "no money left",
        "bad headache",
        "WOW",
        f"{int(rng.integers(2, 10))} days left",
        "gonna rest",
        f"home on {rng.choice(WEEKDAYS)}",
        "work waits",
        "big hug",
        "thank you",
    ]
