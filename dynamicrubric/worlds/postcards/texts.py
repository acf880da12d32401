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

_FILLER_RATE: Final = 0.3
_FILLERS: Final = ("all is well", "more soon", "we walk and rest", "time goes by here")


def compose(prompt: PostcardPrompt, rng: np.random.Generator, strength: float = 0.5) -> str:
    """Write one postcard at random.

    Args:
        prompt: the writing task.
        rng: source of every draw.
        strength: the writer's: chance of each feature to be the good way. The mean true quality is
            2 strength - 1; the start policy's texts have strength one half.

    Returns:
        Comma-separated phrases, 3 to about 40 words.
    """
    chosen = [
        phrase
        for phrase, is_good in _features(prompt, rng)
        if rng.random() < (strength if is_good else 1.0 - strength)
    ]
    chosen += [phrase for phrase in _FILLERS if rng.random() < _FILLER_RATE]
    ending = "." if rng.random() < strength else "?"
    return ", ".join(chosen or [_FILLERS[0]]) + ending


def _features(prompt: PostcardPrompt, rng: np.random.Generator) -> list[tuple[str, bool]]:
    """Return each feature that is not an ending, in the order of a postcard: phrase, is it good."""
    good_sights, bad_sights = sights_of(prompt.place)
    return [
        ("the days fly", False),
        (f"dear {prompt.recipient}", True),
        (f"happy {prompt.occasion}", True),
        *((f"saw the {s}", s in good_sights) for s in sorted((*good_sights, *bad_sights))),
        (f"{rng.choice(COLOURS)} skies", True),
        ("very very warm", False),
        ("something nice", False),
        ("no money left", False),
        ("bad headache", False),
        ("WOW", False),
        (f"{int(rng.integers(2, 10))} days left", True),
        ("gonna rest", False),
        (f"home on {rng.choice(WEEKDAYS)}", True),
        ("work waits", False),
        ("big hug", True),
        ("thank you", True),
    ]
