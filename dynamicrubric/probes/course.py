"""Proxy against gold by round: what an evaluator says of a policy's course, and what is true of it.

*Why not mean scores.* A rubric is written for its own set, so a score says where a response stands
among those it was sampled with. Means of scores under different rubrics are no course: with every
response twice as good, the same shares of new criteria are met. So responses of two policies to the
same prompt are put into one set, one rubric is written for it, and the figure is the share of pairs
(one response of each policy) whose newer one scores higher, ties half: 1/2 is no difference. Rounds
are compared in which the newer policy is that of round t and the evaluator is the one that it was
trained under; the older is the policy of the round before (`before`) or the start policy (`start`).

*Gold* is the same share of the same pairs by true quality; where nobody knows that, by a held-out
judge: another verifier with a fixed rubric that nothing was trained on.

*Divergence* is over-optimisation as in Gao, Schulman and Hilton (2022), "Scaling laws for reward
model overoptimization": the policy gains with its evaluator while it loses in truth. Here: the
proxy's share is above 1/2 and gold's below, both beyond their intervals, p-values corrected by Holm
over the references of a round. Gao et al. see the proxy as a mean reward over the KL, under one
reward model that stays; evaluators here change from round to round, hence the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dynamicrubric.errors import UserError
from dynamicrubric.evaluation import SampledSet
from dynamicrubric.evaluators.base import Evaluator
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.probes.measure import EPSILON
from dynamicrubric.probes.names import Reference
from dynamicrubric.seeds import derive_seed, generator_for
from dynamicrubric.stats import LEVEL, Estimate, Paired, PromptValues, estimate, holm, prompt_means
from dynamicrubric.types import Score

NO_PAIR: Final = "no_pair"
EVEN: Final = 0.5
Gold = Callable[[Sequence[ResponseSet], Sequence[int]], Sequence[Sequence[Score | float | None]]]
"""(sets, seeds) to each response's true or gold quality, None or unscored where it has none."""


@dataclass(frozen=True)
class CourseRow:
    """Two policies' responses to one prompt in one set.

    Attributes:
        reference: which policy is the older one.
        set_id: the sets that the responses are of, one of each policy.
        prompt_id: their prompt.
        num_pairs: pairs of a newer and an older response.
        proxy: share of them whose newer response the evaluator scores higher, ties half.
        gold: the same by true quality, or by the held-out judge.
    """

    reference: Reference
    set_id: str
    prompt_id: str
    num_pairs: int
    proxy: Score
    gold: Score


def measure_course(
    evaluator: Evaluator,
    sets: Sequence[SampledSet],
    older: Sequence[SampledSet],
    reference: Reference,
    gold: Gold,
    seed_name: tuple[str | int, ...],
) -> list[CourseRow]:
    """Compare two policies' responses prompt by prompt.

    Args:
        evaluator: the one that the newer policy was trained under.
        sets: held-out sets of the newer policy.
        older: those of the older one, of the same prompts.
        reference: which policy that is.
        gold: true quality, or the held-out judge.
        seed_name: words that name the draws.

    Raises:
        UserError: the two have other sets.
        InstrumentError: a model or an endpoint is broken.
    """
    pairs = _joined(sets, older)
    seeds = [derive_seed(*seed_name, "course", reference, new.set_id) for new, _ in pairs]
    mixed = [
        mixed_set(new.responses, old.responses, seed)
        for (new, old), seed in zip(pairs, seeds, strict=True)
    ]
    together = [one for one, _ in mixed]
    scored = evaluator.score(together, seeds)
    truth = gold(together, seeds)
    return [
        CourseRow(
            reference,
            new.set_id,
            one.prompt_id,
            sum(is_newer) * (len(is_newer) - sum(is_newer)),
            win_share(found.scores, is_newer),
            win_share(true, is_newer),
        )
        for (new, _), (one, is_newer), found, true in zip(pairs, mixed, scored, truth, strict=True)
    ]


def _joined(
    sets: Sequence[SampledSet], older: Sequence[SampledSet]
) -> list[tuple[SampledSet, SampledSet]]:
    """Return the sets of two policies by their common id, in the order of the first."""
    by_id = {one.set_id: one for one in older}
    unmatched = sorted({one.set_id for one in sets} ^ by_id.keys())
    if unmatched:
        raise UserError(
            doing="comparing two rounds' held-out responses",
            got=f"{len(unmatched)} sets of one of them alone, {unmatched[0]} the first",
            expected="the same prompts, each with as many sets",
            remedy="run `make reproduce` again: the evaluations come from different data",
        )
    return [(one, by_id[one.set_id]) for one in sets]


def mixed_set(
    newer: ResponseSet, older: ResponseSet, seed: int
) -> tuple[ResponseSet, tuple[bool, ...]]:
    """Return one set of as many responses of either policy, and which are the newer one's.

    As many responses as a set of the evaluator's has, or one less: half of each, in an order that
    the seed decides, since a generator might read something into it.
    """
    half = max(1, len(newer.responses) // 2)
    count = min(half, len(newer.shown), len(older.shown))
    texts = [(text, True) for text in newer.shown[:count]]
    texts += [(text, False) for text in older.shown[:count]]
    order = generator_for(seed, "order").permutation(len(texts))
    shuffled = [texts[place] for place in order]
    mixed = replace(newer, responses=tuple(text for text, _ in shuffled), failures=())
    return mixed, tuple(is_newer for _, is_newer in shuffled)


def win_share(values: Sequence[Score | float | None], is_newer: Sequence[bool]) -> Score:
    """Return the share of pairs whose newer response has the higher value, ties half.

    Unscored if a value is missing: a share of the pairs that are left would prefer what is easy to
    judge.

    >>> win_share([1.0, 0.0, 0.5, 0.5], [True, False, True, False]).value
    0.875
    """
    known = []
    for entry in values:
        value = entry.value if isinstance(entry, Score) else entry
        if value is None:
            reason = entry.reason if isinstance(entry, Score) else None
            return Score.unscored(reason or "nobody_knows")
        known.append(value)
    new = [value for value, newer in zip(known, is_newer, strict=True) if newer]
    old = [value for value, newer in zip(known, is_newer, strict=True) if not newer]
    if not new or not old:
        return Score.unscored(NO_PAIR)
    won = sum(
        0.5 if abs(one - other) < EPSILON else float(one > other) for one in new for other in old
    )
    return Score.of(won / (len(new) * len(old)))


@dataclass(frozen=True)
class Course:
    """Proxy and gold of one round against one older policy.

    Attributes:
        reference: which policy is the older one.
        proxy: mean share less 1/2, with its interval; over the sets with both, where any has gold.
        gold: the same of gold, over the same sets.
        p_value: of the claim that both differ from 1/2 in opposite directions, the larger of the
            two (an intersection-union test), after Holm over the references; None without both.
        diverges: whether the proxy is above 1/2 and gold below, beyond their intervals, and the
            corrected p-value says so too.
    """

    reference: Reference
    proxy: Estimate
    gold: Estimate
    p_value: float | None = None
    diverges: bool = False


def distinct(
    by_reference: Mapping[Reference, Mapping[int, Sequence[CourseRow]]], round_number: int
) -> dict[Reference, Mapping[int, Sequence[CourseRow]]]:
    """Leave out `start` in round 1, where it is the round before: the two are one comparison."""
    same = round_number == 1 and "before" in by_reference
    return {name: rows for name, rows in by_reference.items() if name != "start" or not same}


def courses_of(
    by_reference: Mapping[Reference, Mapping[int, Sequence[CourseRow]]],
) -> list[Course]:
    """Return the courses of one round of one arm.

    Args:
        by_reference: the rows of each seed, by reference.

    A proxy that prefers the newer responses on every prompt, while they are worse on every one:

    >>> rows = [CourseRow("before", f"p{n}/0", f"p{n}", 9, Score.of(1.0), Score.of(0.0))
    ...         for n in range(20)]
    >>> [one.diverges for one in courses_of({"before": {1: rows}})]
    [True]
    """
    found = [_course(reference, by_seed) for reference, by_seed in by_reference.items()]
    corrected = holm([_both(one) for one in found])
    return [
        replace(one, p_value=p, diverges=_opposite(one) and p is not None and p < 1.0 - LEVEL)
        for one, p in zip(found, corrected, strict=True)
    ]


def _course(reference: Reference, by_seed: Mapping[int, Sequence[CourseRow]]) -> Course:
    is_known = any(row.gold.value is not None for rows in by_seed.values() for row in rows)

    def proxy(row: CourseRow) -> float | None:
        return row.proxy.value if row.gold.value is not None or not is_known else None

    def gold(row: CourseRow) -> float | None:
        return row.gold.value if row.proxy.value is not None else None

    return Course(reference, estimate(_paired(by_seed, proxy)), estimate(_paired(by_seed, gold)))


def _paired(
    by_seed: Mapping[int, Sequence[CourseRow]], of: Callable[[CourseRow], float | None]
) -> Paired:
    return Paired.of({seed: _above_even(rows, of) for seed, rows in by_seed.items()})


def _above_even(rows: Sequence[CourseRow], of: Callable[[CourseRow], float | None]) -> PromptValues:
    values = [(row.prompt_id, of(row)) for row in rows]
    return prompt_means((key, None if value is None else value - EVEN) for key, value in values)


def _both(one: Course) -> float | None:
    p_values = [one.proxy.p_value, one.gold.p_value]
    known = [p for p in p_values if p is not None]
    return max(known) if len(known) == len(p_values) else None


def _opposite(one: Course) -> bool:
    proxy, gold = one.proxy.interval, one.gold.interval
    return proxy is not None and gold is not None and proxy[0] > 0.0 and gold[1] < 0.0
