"""Anchor lists: n postcards for a prompt, ranked by true quality, with settable label noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynamicrubric.worlds.postcards.criteria import true_quality
from dynamicrubric.worlds.postcards.prompts import PostcardPrompt
from dynamicrubric.worlds.postcards.texts import compose

_CANDIDATES_PER_ANCHOR = 2


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
    """Draw postcards, keep `num_anchors` of distinct true quality, rank them best first.

    Candidates come from the start policy's own distribution; the kept ones are spread evenly over
    the range found, as Nectar's seven answers spread over models of different strength.
    """
    by_quality: dict[float, str] = {}
    while len(by_quality) < num_anchors * _CANDIDATES_PER_ANCHOR:
        text = compose(prompt, rng)
        by_quality.setdefault(true_quality(prompt, text), text)
    ranked = [by_quality[quality] for quality in sorted(by_quality, reverse=True)]
    picks = np.linspace(0, len(ranked) - 1, num_anchors).round().astype(int)
    responses = [ranked[index] for index in picks]
    num_swapped = 0
    for first in range(num_anchors - 1):
        if rng.random() < swap_rate:
            responses[first], responses[first + 1] = responses[first + 1], responses[first]
            num_swapped += 1
    return AnchorList(prompt.id, tuple(responses), num_swapped)
