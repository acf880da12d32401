"""Rubrics averaged over orders: the generator is shown a response set in several orders.

A generator reads its set as a list, so where a response stands can move the rubric. Here it writes
one rubric for each of several orders, and they become one: an item weighs its mean weight over
them, 0 where a rubric lacks it, and as many of the heaviest stay as the rubrics had on average. So
what only one order brings out falls away, a generator that order does not move is not changed, and
the result is a rubric like any other: read, judged and kept as such. It costs a rubric an order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynamicrubric.engines.base import Generation
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.evaluators.writers import RubricWriter
from dynamicrubric.rubrics import normalise_criterion, render_rubric
from dynamicrubric.seeds import derive_seed, generator_for
from dynamicrubric.types import MAX_WEIGHT, MIN_WEIGHT, InvalidRubric, Item, Rubric

Read = Callable[[Generation], Rubric | InvalidRubric]


class OrderAveragedWriter:
    """Writes rubrics with another writer, one for each order, and averages them."""

    def __init__(self, writer: RubricWriter, orders: int, read: Read) -> None:
        """Write with `writer`.

        Args:
            writer: writes the rubric of a set as it is shown.
            orders: how many orders; the first is the one the set is in.
            read: parses a rubric as whoever applies it will.
        """
        self._writer = writer
        self._orders = orders
        self._read = read

    def write(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[Generation]:
        """Return one rubric for each set; if none of its orders' is valid, the first as it is."""
        shown = [
            (in_order(one, order, seed), order_seed(order, seed))
            for one, seed in zip(sets, seeds, strict=True)
            for order in range(self._orders)
        ]
        texts = self._writer.write([one for one, _ in shown], [seed for _, seed in shown])
        groups = [texts[n : n + self._orders] for n in range(0, len(texts), self._orders)]
        return [self._averaged(group) for group in groups]

    def _averaged(self, texts: Sequence[Generation]) -> Generation:
        read = [self._read(text) for text in texts]
        valid = [rubric for rubric in read if isinstance(rubric, Rubric)]
        if not valid:
            return texts[0]
        return Generation((), render_rubric(average_rubric(valid)), "stop")


def in_order(one: ResponseSet, order: int, seed: int) -> ResponseSet:
    """Return a set with its responses in another order; order 0 is the one it is in.

    Args:
        one: the set.
        order: number of the order.
        seed: of the set's rubric.
    """
    if order == 0:
        return one
    places = generator_for(seed, "order", order).permutation(len(one.responses))
    failures = tuple(one.failures[place] for place in places) if one.failures else ()
    responses = tuple(one.responses[place] for place in places)
    return ResponseSet(one.prompt_id, one.prompt, responses, failures)


def order_seed(order: int, seed: int) -> int:
    """Return the seed of the rubric of one order: that of the first is the set's own."""
    return seed if order == 0 else derive_seed(seed, "order", order, "rubric")


def average_rubric(rubrics: Sequence[Rubric]) -> Rubric:
    """Average rubrics for the same responses: the heaviest items by mean weight.

    Args:
        rubrics: at least one.

    >>> one = Rubric((Item("greets", 4), Item("thanks", 1)))
    >>> other = Rubric((Item("greets", 2), Item("wishes", 5)))
    >>> average_rubric([one, other]).items
    (Item(criterion='greets', weight=3), Item(criterion='wishes', weight=3))
    """
    totals: dict[str, int] = {}
    wording: dict[str, str] = {}
    for item in (item for rubric in rubrics for item in rubric.items):
        name = normalise_criterion(item.criterion)
        totals[name] = totals.get(name, 0) + item.weight
        wording.setdefault(name, item.criterion)
    size = _rounded(sum(len(rubric.items) for rubric in rubrics), len(rubrics))
    heaviest = sorted(totals, key=lambda name: -totals[name])[:size]  # the earlier of equal ones
    return Rubric(
        tuple(
            Item(wording[name], min(MAX_WEIGHT, max(MIN_WEIGHT, _rounded(total, len(rubrics)))))
            for name, total in totals.items()
            if name in heaviest
        )
    )


def _rounded(total: int, number: int) -> int:
    """Return a quotient rounded to the nearest whole number, halves up."""
    return (2 * total + number) // (2 * number)
