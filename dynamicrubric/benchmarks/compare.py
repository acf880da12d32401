"""Paired differences between evaluators: the reference less each other, item by item, with Holm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dynamicrubric.benchmarks.figures import (
    by_evaluator,
    estimate_of,
    in_scope,
    mean_by_scope,
    scopes,
)
from dynamicrubric.benchmarks.outcomes import ItemFigures
from dynamicrubric.benchmarks.schema import ALL, MACRO
from dynamicrubric.benchmarks.scored import ScoredItem
from dynamicrubric.stats import MIN_PROMPTS, holm

COMPARED: Final = "accuracy"
MOST_SUBSETS: Final = 6
"""A data set of more subsets is compared as a whole: a family of sixty tests finds nothing."""


@dataclass(frozen=True)
class Comparison:
    """The reference's accuracy less another evaluator's, on the items that both scored.

    Attributes:
        reference: the reference's name.
        other: the other evaluator's.
        dataset: where.
        subset: a subset, `macro` or `all`.
        difference: mean over seeds of the mean over items; None where nothing is common.
        interval: at `stats.LEVEL`.
        p_value: two-sided, of no difference.
        p_holm: corrected over all comparisons of the table.
        n_items: items that both scored, over all seeds.
        lacking: why there is no interval.
        over: what the interval is over.
        by_seed: the difference with each seed.
    """

    reference: str
    other: str
    dataset: str
    subset: str
    difference: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    p_holm: float | None
    n_items: int
    lacking: str
    over: str
    by_seed: Mapping[int, float | None]


def compare_all(scored: Sequence[ScoredItem], reference: str) -> list[Comparison]:
    """Compare the reference with every other evaluator, on every data set of the run."""
    found: list[Comparison] = []
    items = by_evaluator(scored)
    for (evaluator, dataset), others in items.items():
        if evaluator == reference or (reference, dataset) not in items:
            continue
        own = items[reference, dataset]
        for scope in compared_scopes(own):
            pair = in_scope(own, scope), in_scope(others, scope)
            found.append(_comparison((reference, evaluator), dataset, scope, *pair))
    corrected = holm([one.p_value for one in found])
    return [replace(one, p_holm=p) for one, p in zip(found, corrected, strict=True)]


def compared_scopes(items: Sequence[ItemFigures]) -> list[str]:
    """Return the scopes that are compared: few subsets with prompts enough, and their mean."""
    every = scopes(items)
    subsets = [one for one in every if one not in (MACRO, ALL)]
    if len(subsets) > MOST_SUBSETS:
        return [MACRO, ALL]
    enough = [
        one
        for one in subsets
        if len({own.item.prompt_id for own in in_scope(items, one)}) >= MIN_PROMPTS
    ]
    return [*enough, MACRO] if subsets else [ALL]


def _comparison(
    names: tuple[str, str],
    dataset: str,
    scope: str,
    own: Sequence[ItemFigures],
    others: Sequence[ItemFigures],
) -> Comparison:
    values = {(one.item.seed, one.item.id): one.values[COMPARED] for one in others}
    differences: list[tuple[ItemFigures, float | None]] = []
    for one in own:
        first, second = one.values[COMPARED], values.get((one.item.seed, one.item.id))
        gap = None if first is None or second is None else first - second
        differences.append((one, gap))
    means = mean_by_scope(differences, scope)
    known = [mean for mean in means.values() if mean is not None]
    found = estimate_of(differences, scope)
    return Comparison(
        reference=names[0],
        other=names[1],
        dataset=dataset,
        subset=scope,
        difference=math.fsum(known) / len(known) if known else None,
        interval=found.interval,
        p_value=found.p_value,
        p_holm=None,
        n_items=sum(value is not None for _, value in differences),
        lacking=found.lacking,
        over=found.over or "",
        by_seed=means,
    )
