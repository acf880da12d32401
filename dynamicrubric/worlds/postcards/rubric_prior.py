"""Rubrics for the generator's warm start: valid form, relevant criteria, no sense of direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dynamicrubric.types import Item, Rubric
from dynamicrubric.worlds.postcards.criteria import check, criteria_for, vocabulary
from dynamicrubric.worlds.postcards.prompts import PostcardPrompt

_DISCRIMINATING_SHARE = 0.5
_MAX_WEIGHT = 5
_ORDER: Final = {criterion: place for place, criterion in enumerate(sorted(vocabulary()))}


def prior_rubric(
    prompt: PostcardPrompt,
    responses: Sequence[str],
    num_items: tuple[int, int],
    rng: np.random.Generator,
) -> Rubric:
    """Draw a rubric: about half of its items discriminate on the responses, the rest are random.

    Good and bad criteria are equally likely and weights are uniform on 1..5, so the prior points
    nowhere. `num_items` is the fewest and the most items. Without responses (a static evaluator)
    all items are random. Items keep one order, so that no repetition has to be unlearnt.
    """
    criteria = [c.criterion for c in criteria_for(prompt)]
    useful = [c for c in criteria if 0 < sum(bool(check(c, r)) for r in responses) < len(responses)]
    size = int(rng.integers(num_items[0], num_items[1] + 1))
    chosen: list[str] = []
    while len(chosen) < size:
        pool = useful if useful and rng.random() < _DISCRIMINATING_SHARE else criteria
        criterion = str(rng.choice(pool))
        if criterion not in chosen:
            chosen.append(criterion)
    chosen.sort(key=_ORDER.__getitem__)
    return Rubric(
        tuple(Item(criterion, int(rng.integers(1, _MAX_WEIGHT + 1))) for criterion in chosen)
    )
