"""Anchor lists: n postcards for a prompt, ranked by true quality, with settable label noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynamicrubric.worlds.postcards.criteria import true_quality
from dynamicrubric.worlds.postcards.prompts import PostcardPrompt
from dynamicrubric.worlds.postcards.texts import compose

_WEAKEST, _STRONGEST = 0.2, 0.8
"""Strengths of the writers of an anchor list's last and first text."""


@dataclass(frozen=True)
class AnchorList:
    """A ranked list for one prompt.

    Attributes:
        prompt_id: the prompt.
        responses: n texts, best first according to the (possibly noisy) label.
        num_swapped: adjacent pairs that label noise swapped.
    """

    prompt_id: str
    responses: tuple[str, ...]
    num_swapped: int


def make_anchors(
    prompt: PostcardPrompt, num_anchors: int, swap_rate: float, rng: np.random.Generator
) -> AnchorList:
    """Draw postcards of distinct true quality, rank them best first.

    As Nectar's seven answers come from models of very different strength, so do these: the writers'
    strengths are spread evenly, from clearly worse than the start policy to clearly better.
    """
    strengths = np.linspace(_WEAKEST, _STRONGEST, num_anchors)
    by_quality: dict[float, str] = {}
    while len(by_quality) < num_anchors:
        texts = [compose(prompt, rng, float(strength)) for strength in strengths]
        by_quality = {true_quality(prompt, text): text for text in texts}
    responses = [by_quality[quality] for quality in sorted(by_quality, reverse=True)]
    num_swapped = 0
    for first in range(num_anchors - 1):
        if rng.random() < swap_rate:
            responses[first], responses[first + 1] = responses[first + 1], responses[first]
            num_swapped += 1
    return AnchorList(prompt.id, tuple(responses), num_swapped)
