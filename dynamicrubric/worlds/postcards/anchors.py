"""Anchor lists: n postcards for a prompt, ranked by true quality.

They carry no label noise: a recipe that asks for it has it when a training reads them
(`worlds.noise`).
"""

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
        responses: n texts, best first.
    """

    prompt_id: str
    responses: tuple[str, ...]


def make_anchors(
    prompt: PostcardPrompt,
    num_anchors: int,
    rng: np.random.Generator,
    strengths: tuple[float, float] = (_WEAKEST, _STRONGEST),
) -> AnchorList:
    """Draw postcards of distinct true quality, rank them best first.

    As Nectar's seven answers come from models of very different strength, so do these: the writers'
    strengths are spread evenly, from clearly worse than the start policy to clearly better.

    Args:
        prompt: the writing task.
        num_anchors: n.
        rng: source of every draw.
        strengths: of the weakest and the strongest writer.
    """
    spread = np.linspace(*strengths, num_anchors)
    by_quality: dict[float, str] = {}
    while len(by_quality) < num_anchors:
        texts = [compose(prompt, rng, float(strength)) for strength in spread]
        by_quality = {true_quality(prompt, text): text for text in texts}
    ranked = sorted(by_quality, reverse=True)
    return AnchorList(prompt.id, tuple(by_quality[quality] for quality in ranked))
