"""The rubric that a person would write for a postcard, before seeing one: one for every prompt.

Only criteria that hold for every place, none of the sights: a hand-written rubric knows the task,
not the prompt. It is what the evaluator `rule_based` scores by: the floor that a generator has to
beat, and the yardstick of cost, since no model writes it.
"""

from __future__ import annotations

from typing import Final

from dynamicrubric.types import Item, Rubric

RULES: Final = Rubric(
    (
        Item("greets the reader", 3),
        Item("sends a wish", 3),
        Item("is never vague", 2),
        Item("repeats no word", 1),
        Item("ends with a full stop", 1),
    )
)


def rules(max_items: int) -> Rubric:
    """Return the rubric, its first items alone where a rubric may not have them all."""
    return Rubric(RULES.items[:max_items])
