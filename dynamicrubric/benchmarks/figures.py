"""From items to figures: by evaluator, data set and subset, with counts, bounds and intervals.

*Which mean.* A figure of a subset is the mean over its items, of a data set once over all its items
(`all`) and once over its subsets (`macro`). Its interval clusters by prompt: an item's share of the
figure is booked on its prompt as an influence value, so that the mean over prompts is the figure
and their spread that of the figure (linearisation; Cameron and Miller 2015). `macro` takes the
subsets as they are and asks about other prompts in them. `stats` makes the interval of the values,
over seeds too where there are three.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dynamicrubric.benchmarks.outcomes import FIGURES, ItemFigures, item_figures
from dynamicrubric.benchmarks.schema import ALL, MACRO
from dynamicrubric.benchmarks.scored import ScoredItem
from dynamicrubric.evaluators.base import Cost
from dynamicrubric.stats import Estimate, Paired, PromptValues, estimate, estimate_over_prompts

BESIDE: Final = ("longer_wins", "flip_rate", "accuracy_longer_loses")
"""Shown beside every figure: what length and place explain of it."""


@dataclass(frozen=True)
class Figure:
    """One figure over the items of a scope.

    Attributes:
        value: mean over seeds, None where nothing is scored.
        interval: at `stats.LEVEL`, None if `lacking` says why.
        n_scored: items with a value, over all seeds.
        n_total: items that have such a pair or list, scored or not.
        lacking: why there is no interval.
        over: what the interval is over.
        by_seed: the value with each seed.
    """

    value: float | None
    interval: tuple[float, float] | None
    n_scored: int
    n_total: int
    lacking: str
    over: str
    by_seed: Mapping[int, float | None]


@dataclass(frozen=True)
class Row:
    """All figures of one evaluator on one scope of a data set.

    Attributes:
        evaluator: its name.
        dataset: the data set's.
        subset: a subset, `macro` (mean over subsets) or `all` (mean over items).
        figures: by name of `outcomes.FIGURES`.
        worst: accuracy if every unscored pair were lost.
        best: accuracy if every one were won.
        unscored_rate: share of responses without a score.
        reasons: why, by response.
        outcomes: decided pairs by outcome, over all seeds.
        num_items: items, over all seeds.
        num_prompts: different prompts.
        cost: what scoring took, over all seeds.
    """

    evaluator: str
    dataset: str
    subset: str
    figures: Mapping[str, Figure]
    worst: float | None
    best: float | None
    unscored_rate: float
    reasons: Mapping[str, int]
    outcomes: Mapping[str, int]
    num_items: int
    num_prompts: int
    cost: Cost


def by_evaluator(scored: Sequence[ScoredItem]) -> dict[tuple[str, str], list[ItemFigures]]:
    """Return the items' figures by (evaluator, data set), in the order of the run."""
    found: dict[tuple[str, str], list[ItemFigures]] = defaultdict(list)
    for item in scored:
        found[item.evaluator, item.dataset].append(item_figures(item))
    return dict(found)


def all_rows(scored: Sequence[ScoredItem]) -> list[Row]:
    """Return a row for each evaluator and data set: subsets, then macro and all if several."""
    found = []
    for (evaluator, dataset), items in by_evaluator(scored).items():
        for subset in scopes(items):
            found.append(_row(evaluator, dataset, subset, in_scope(items, subset)))
    return found


def scopes(items: Sequence[ItemFigures]) -> list[str]:
    """Return the scopes of a data set: its subsets in order, and what joins several."""
    subsets = list(dict.fromkeys(one.item.subset for one in items))
    return [*subsets, MACRO, ALL] if len(subsets) > 1 else [ALL]


def in_scope(items: Sequence[ItemFigures], scope: str) -> list[ItemFigures]:
    """Return the items of a scope."""
    joined = scope == MACRO or (scope == ALL and len({one.item.subset for one in items}) > 1)
    only = len({one.item.subset for one in items}) == 1
    return [one for one in items if joined or only or one.item.subset == scope]


def _row(evaluator: str, dataset: str, scope: str, items: Sequence[ItemFigures]) -> Row:
    reasons = sum((one.reasons for one in items), Counter[str]())
    responses = sum(len(one.item.tiers) for one in items)
    worst = mean_by_scope([(one, one.worst) for one in items], scope)
    best = mean_by_scope([(one, one.best) for one in items], scope)
    return Row(
        evaluator=evaluator,
        dataset=dataset,
        subset=scope,
        figures={name: figure_of(items, name, scope) for name in FIGURES},
        worst=_mean_of(worst),
        best=_mean_of(best),
        unscored_rate=sum(one.num_unscored for one in items) / responses if responses else 0.0,
        reasons=dict(sorted(reasons.items())),
        outcomes=dict(sorted(sum((one.outcomes for one in items), Counter[str]()).items())),
        num_items=len(items),
        num_prompts=len({one.item.prompt_id for one in items}),
        cost=sum((one.item.cost for one in items), Cost()),
    )


def figure_of(items: Sequence[ItemFigures], name: str, scope: str) -> Figure:
    """Return a figure with its interval.

    Args:
        items: those of the scope, of all seeds.
        name: of `outcomes.FIGURES`.
        scope: `macro` weighs each subset the same, everything else each item.
    """
    values = [(one, one.values[name]) for one in items]
    means = mean_by_scope(values, scope)
    found = estimate_of(values, scope)
    relevant = sum(_is_relevant(one, name) for one in items)
    return Figure(
        value=_mean_of(means),
        interval=found.interval,
        n_scored=sum(value is not None for _, value in values),
        n_total=relevant,
        lacking=found.lacking,
        over=found.over or "",
        by_seed=means,
    )


def _is_relevant(one: ItemFigures, name: str) -> bool:
    """Say whether an item could have a figure, were everything scored."""
    if one.values[name] is not None:
        return True
    pairs = one.outcomes.total() > 0
    if name == "flip_rate":
        return pairs and len(one.item.orders) > 1
    if name in ("accuracy_longer_loses", "prefers_longer"):
        lengths = [one.item.lengths[b] - one.item.lengths[w] for b, w in decided_pairs(one.item)]
        wanted = [n < 0 if name == "accuracy_longer_loses" else n != 0 for n in lengths]
        return any(wanted)
    if name == "gold_ties_tied":
        return has_tied_pair(one.item)
    return bool(one.item.quality) if name == "chosen_quality" else pairs


def has_tied_pair(item: ScoredItem) -> bool:
    """Say whether the data set puts two different texts into one tier."""
    texts: dict[int, set[int]] = {}
    for tier, same in zip(item.tiers, item.same, strict=True):
        texts.setdefault(tier, set()).add(same)
    return any(len(own) > 1 for own in texts.values())


def decided_pairs(item: ScoredItem) -> list[tuple[int, int]]:
    """Return the pairs of different texts in different tiers, the better first."""
    places = range(len(item.tiers))
    return [
        (b, w)
        for b in places
        for w in places
        if item.tiers[b] < item.tiers[w] and item.same[b] != item.same[w]
    ]


Values = Sequence[tuple[ItemFigures, float | None]]


def mean_by_scope(values: Values, scope: str) -> dict[int, float | None]:
    """Return the mean with each seed: over items, or over the means of subsets for `macro`."""
    found: dict[int, float | None] = {}
    for seed in sorted({one.item.seed for one, _ in values}):
        parts = _parts(values, seed, scope)
        means = [math.fsum(own) / len(own) for own in parts.values()]
        found[seed] = math.fsum(means) / len(means) if means else None
    return found


def _parts(values: Values, seed: int, scope: str) -> dict[str, list[float]]:
    """Return the scored values of a seed by subset, or all together."""
    parts: dict[str, list[float]] = defaultdict(list)
    for one, value in values:
        if one.item.seed == seed and value is not None:
            parts[one.item.subset if scope == MACRO else ""].append(value)
    return parts


def influence(values: Values, scope: str) -> dict[int, PromptValues]:
    """Return each prompt's influence value on the figure of each seed.

    `m + P d_p`, with m the figure, P the number of prompts with a scored item and d_p the sum over
    the prompt's items of `w_i (x_i - m_s)`, w_i the item's weight in the figure and m_s the mean of
    its subset. The d_p sum to 0, so the values' mean is m exactly, and the variance of their mean
    is the cluster-robust one of m. A prompt without a scored item has None.

    Under `macro` each subset loses a degree of freedom to its own mean: its part of d_p is scaled
    by `sqrt(G_s / (G_s - 1))`, G_s its prompts, as in a stratified sample. Subsets of one prompt
    have no spread within them; they are taken together, with the spread of their means instead
    (collapsed strata, Cochran 1977, 5A.12), which is more likely too wide than too narrow.
    """
    found: dict[int, PromptValues] = {}
    for seed, mean in mean_by_scope(values, scope).items():
        prompts = dict.fromkeys(one.item.prompt_id for one, _ in values if one.item.seed == seed)
        own = _deviations(values, seed, scope)
        found[seed] = {
            prompt: mean + len(own) * own[prompt] if prompt in own and mean is not None else None
            for prompt in prompts
        }
    return found


def estimate_of(values: Values, scope: str) -> Estimate:
    """Return the interval of a figure of a scope; none where one subset alone has no spread."""
    for seed in sorted({one.item.seed for one, _ in values}):
        thin = [name for name, own in _by_prompt(values, seed, scope).items() if len(own) == 1]
        if scope == MACRO and len(thin) == 1:
            return Estimate(lacking=f"subset {thin[0]}: one scored prompt, which has no spread")
    return interval_of(influence(values, scope))


def _by_prompt(values: Values, seed: int, scope: str) -> dict[str, dict[str, list[float]]]:
    """Return the scored values of a seed by subset (or all together) and prompt."""
    found: dict[str, dict[str, list[float]]] = {}
    for one, value in values:
        if one.item.seed == seed and value is not None:
            part = found.setdefault(one.item.subset if scope == MACRO else "", {})
            part.setdefault(one.item.prompt_id, []).append(value)
    return found


def _deviations(values: Values, seed: int, scope: str) -> dict[str, float]:
    """Return what each prompt adds to the figure beyond its subset's mean; they sum to 0."""
    parts = _by_prompt(values, seed, scope)
    found: dict[str, list[float]] = defaultdict(list)
    thin: dict[str, float] = {}
    for name, own in parts.items():
        every = [value for group in own.values() for value in group]
        centre = math.fsum(every) / len(every)
        if scope == MACRO and len(own) == 1:
            thin[name] = centre
            continue
        scale = math.sqrt(len(own) / (len(own) - 1)) if scope == MACRO else 1.0
        weight = scale / (len(parts) * len(every))
        for prompt, group in own.items():
            found[prompt] += [weight * (value - centre) for value in group]
    scale = math.sqrt(len(thin) / (len(thin) - 1)) if len(thin) > 1 else 1.0
    for name, centre in thin.items():
        (prompt,) = parts[name]
        gap = centre - math.fsum(thin.values()) / len(thin)
        found[prompt].append(scale * gap / len(parts))
    return {prompt: math.fsum(own) for prompt, own in found.items()}


def interval_of(by_seed: Mapping[int, PromptValues]) -> Estimate:
    """Return the interval of a mean or a difference from its values by seed and prompt.

    A prompt that a seed does not have is unscored with it.
    """
    if not by_seed:
        return Estimate(lacking="no item")
    if len(by_seed) == 1:
        return estimate_over_prompts(next(iter(by_seed.values())))
    prompts = dict.fromkeys(prompt for own in by_seed.values() for prompt in own)
    return estimate(
        Paired.of({seed: {p: own.get(p) for p in prompts} for seed, own in by_seed.items()})
    )


def _mean_of(by_seed: Mapping[int, float | None]) -> float | None:
    known = [value for value in by_seed.values() if value is not None]
    return math.fsum(known) / len(known) if known else None
