"""The one schema of a benchmark item, and what stands for a row that is none.

An item keeps its responses best first. Nobody who is asked sees that order: every evaluator reads
the responses as `place` puts them, which is a function of (item id, seed) alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dynamicrubric.data.normalise import prompt_key
from dynamicrubric.data.rows import text_hash
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.seeds import derive_seed

MACRO: Final = "macro"
ALL: Final = "all"
"""What stands in the place of a subset for the mean over subsets, and for that over all items."""
NO_SUBSET: Final = "unnamed"
"""Subset of rows that name none."""
LONG_RESPONSE: Final = 32_000
"""Characters from which a response is flagged as long: many contexts end about there."""


@dataclass(frozen=True)
class BenchItem:
    """A prompt, its responses and the order that the data set's people give them.

    Attributes:
        dataset: name of the data set in this run.
        id: name of the row, unique in its data set.
        subset: part of the data set that it belongs to.
        prompt: what is answered.
        responses: K >= 2 texts, best first; the order inside a tier means nothing.
        tiers: tier of each response, 0 for the best, shape (K,), never falling.
        prompt_id: name of the prompt, the same in all rows that have it.
        quality: true quality of each response where it is known, shape (K,) or empty.
    """

    dataset: str
    id: str
    subset: str
    prompt: str
    responses: tuple[str, ...]
    tiers: tuple[int, ...]
    prompt_id: str
    quality: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.responses) < 2 or len(self.tiers) != len(self.responses):
            raise ValueError(f"{len(self.tiers)} tiers of {len(self.responses)} responses")
        if list(self.tiers) != sorted(self.tiers):
            raise ValueError(f"tiers {self.tiers} are not best first")

    @cached_property
    def same(self) -> tuple[int, ...]:
        """The first place that holds the same text as this one, shape (K,).

        Texts that differ in the white space around them alone are the same text.
        """
        first: dict[str, int] = {}
        texts = [text.strip() for text in self.responses]
        return tuple(first.setdefault(text, place) for place, text in enumerate(texts))

    @property
    def is_identical(self) -> bool:
        """Whether all responses are one text: a tie, without asking anybody."""
        return not any(self.same)

    @property
    def flags(self) -> tuple[str, ...]:
        """What is unusual about the texts, for the record."""
        found = {
            "empty_response": any(not text.strip() for text in self.responses),
            "long_response": any(len(text) >= LONG_RESPONSE for text in self.responses),
            "identical_responses": any(place != own for place, own in enumerate(self.same)),
            "all_tied": len(set(self.tiers)) == 1,
        }
        return tuple(name for name, is_there in found.items() if is_there)

    def placed(self, order: Sequence[int]) -> ResponseSet:
        """Return the responses as an evaluator reads them: the text at `order[n]` in place n."""
        texts = tuple(self.responses[place] for place in order)
        return ResponseSet(self.prompt_id, self.prompt, texts)


@dataclass(frozen=True)
class Refusal:
    """A row that is no item.

    Attributes:
        dataset: name of the data set in this run.
        place: where the row is, in words ("line 12").
        field: the field that is at fault; "" for the whole line.
        reason: a short name that can be counted.
        got: what is there, cut to a few words.
    """

    dataset: str
    place: str
    field: str
    reason: str
    got: str


def subset_named(name: str | None) -> str:
    """Return the subset of a row: never a name by which all of them together are called.

    >>> subset_named("math"), subset_named("all"), subset_named(None)
    ('math', 'all (subset)', 'unnamed')
    """
    return f"{name} (subset)" if name in (MACRO, ALL) else name or NO_SUBSET


def name_of_prompt(prompt: str) -> str:
    """Return the name of a prompt: equal for prompts that differ in dressing alone."""
    return text_hash(prompt_key(prompt)).hex()[:16]


def place(item_id: str, num_responses: int, seed: int) -> tuple[int, ...]:
    """Return where an item's responses stand: a permutation, a function of (item id, seed).

    >>> place("a", 3, 1) == place("a", 3, 1)
    True
    >>> sorted(place("b", 4, 1))
    [0, 1, 2, 3]
    """
    # Sorted by a hash of their own, so that no library's generator decides.
    return tuple(sorted(range(num_responses), key=lambda n: derive_seed(seed, "place", item_id, n)))


def orders_of(item: BenchItem, seed: int, sees_set: bool) -> tuple[tuple[int, ...], ...]:
    """Return the orders in which an evaluator reads an item: one, or one and its reverse.

    Both where a response's place can matter; of two responses the reverse is the swap.
    """
    first = place(item.id, len(item.responses), seed)
    return (first, first[::-1]) if sees_set else (first,)
