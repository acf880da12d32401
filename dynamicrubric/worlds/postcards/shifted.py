"""Anchor lists from another distribution than the prepared ones: what does their order still teach?

`strong` and `weak` writers rank as the prompt wants, but over a narrow range of quality that the
start policy's responses lie outside of. Lists from `elsewhere` cover the whole range for the same
reader and occasion, but are ranked by another place: what is good to mention there need not be
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dynamicrubric.seeds import generator_for
from dynamicrubric.worlds.postcards.anchors import make_anchors
from dynamicrubric.worlds.postcards.prompts import PLACES, PostcardPrompt, prompt_by_id

STRENGTHS: Final[Mapping[str, tuple[float, float]]] = {"strong": (0.75, 0.97), "weak": (0.03, 0.25)}
"""Strengths of the weakest and the strongest writer; the start policy's is one half."""
ELSEWHERE: Final = "elsewhere"


def shifted_anchors(
    source: str, anchors: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Return a list for each prompt from another distribution, as long as its prepared list.

    Args:
        source: `strong`, `weak` or `elsewhere`.
        anchors: the prepared lists by prompt id, best first.

    Raises:
        KeyError: there is no such source.
    """
    if source == ELSEWHERE:
        return {prompt_id: anchors[_elsewhere(prompt_id, anchors)] for prompt_id in anchors}
    strengths = STRENGTHS[source]
    return {
        prompt_id: make_anchors(
            prompt_by_id(prompt_id),
            len(texts),
            generator_for("shifted_anchors", source, prompt_id),
            strengths,
        ).responses
        for prompt_id, texts in anchors.items()
    }


def _elsewhere(prompt_id: str, anchors: Mapping[str, object]) -> str:
    """Return the prompt of the next place with the same reader and occasion that has a list."""
    prompt = prompt_by_id(prompt_id)
    start = PLACES.index(prompt.place)
    others = [PLACES[(start + step) % len(PLACES)] for step in range(1, len(PLACES))]
    near = [replace(prompt, place=place) for place in others]
    found = next((one.id for one in near if one.id in anchors), None)
    return found or _anywhere(prompt, anchors)


def _anywhere(prompt: PostcardPrompt, anchors: Mapping[str, object]) -> str:
    """Return the first prompt of any other place, where no other place has the same prompt."""
    return next(key for key in anchors if prompt_by_id(key).place != prompt.place)
