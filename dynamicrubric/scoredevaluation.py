"""Measurement of a round whose evaluator gives scores without verdicts.

Figures have the names and the meaning that they have for rubrics; those that take verdicts (R_disc
and its relatives) are unscored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dynamicrubric.anchorfigures import anchor_figures, scored_anchor_row
from dynamicrubric.evaluation import (
    Evaluation,
    MeasuredSet,
    Quality,
    SampledSet,
    evaluation_of,
    true_qualities,
)
from dynamicrubric.evaluators.base import Evaluator, ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.evaluators.limits import ScoreLimits, check_scores
from dynamicrubric.seeds import derive_seed, generator_for
from dynamicrubric.theory import delta_gap, ordered_pairs, rank_accuracy, tie_rate


def evaluate_scored(
    sets: Sequence[SampledSet],
    evaluator: Evaluator,
    limits: ScoreLimits,
    quality: Quality,
    seed_name: tuple[str | int, ...],
    anchors: Mapping[str, Sequence[str]] | None = None,
) -> Evaluation:
    """Return everything measured on the held-out sets of a round; arguments as `measure_scored`.

    With anchor lists, those of the held-out prompts are scored as well, each as a set of its own.
    """
    measured = measure_scored("the held-out sets", sets, evaluator, limits, quality, seed_name)
    evaluation = evaluation_of(measured)
    if not anchors:
        return evaluation
    rows = _anchor_rows(measured, anchors, evaluator, limits, seed_name)
    return replace(evaluation, metrics=evaluation.metrics | anchor_figures(rows), anchors=rows)


def measure_scored(
    where: str,
    sets: Sequence[SampledSet],
    evaluator: Evaluator,
    limits: ScoreLimits,
    quality: Quality,
    seed_name: tuple[str | int, ...],
) -> list[MeasuredSet]:
    """Score each set and measure it.

    Args:
        where: which sets they are, as a person reads it.
        sets: held-out response sets of a policy.
        evaluator: the evaluator.
        limits: above which shares of unscored responses it is a broken instrument.
        quality: true quality of (prompt id, text); used for measurement alone.
        seed_name: words that name this measurement's draws.

    Raises:
        InstrumentError: a share is above its limit.
    """
    seeds = [derive_seed(*seed_name, one.set_id, "rubric") for one in sets]
    scored = evaluator.score([one.responses for one in sets], seeds)
    check_scores(where, scored, limits)
    return [_measure(one, found, quality) for one, found in zip(sets, scored, strict=True)]


def _measure(sampled: SampledSet, scored: ScoredSet, quality: Quality) -> MeasuredSet:
    truth = true_qualities(sampled.responses, quality)
    nothing = MeasuredSet(
        sampled, scored.rubric_text, None, truth, None, None, None, None, scored.scores
    )
    known = [value for value in truth if value is not None]
    if len(known) < len(truth):
        return nothing
    pairs = ordered_pairs(known)
    whole = all(score.is_scored for score in scored.scores)
    return replace(
        nothing,
        rank_accuracy=rank_accuracy(scored.scores, pairs).value,
        tie_rate=tie_rate(scored.scores, pairs).value,
        gap=delta_gap(scored.scores, pairs).value if whole else None,
    )


def _anchor_rows(
    measured: Sequence[MeasuredSet],
    anchors: Mapping[str, Sequence[str]],
    evaluator: Evaluator,
    limits: ScoreLimits,
    seed_name: tuple[str | int, ...],
) -> list[dict[str, Any]]:
    """Score each held-out prompt's list once; it counts once for each set of its prompt.

    An evaluator that reads the list reads it in an order drawn for the prompt, never best first.
    """
    found = [one.sampled for one in measured if one.sampled.responses.prompt_id in anchors]
    prompts = {one.responses.prompt_id: one.responses.prompt for one in found}
    orders = {
        key: generator_for(*seed_name, key, "anchors", "place").permutation(len(anchors[key]))
        for key in prompts
    }
    lists = [
        ResponseSet(key, text, tuple(anchors[key][place] for place in orders[key]))
        for key, text in prompts.items()
    ]
    seeds = [derive_seed(*seed_name, key, "anchors") for key in prompts]
    scored = evaluator.score(lists, seeds) if lists else []
    check_scores("the held-out anchor lists", scored, limits)
    best_first = {
        key: [one.scores[place] for place in np.argsort(orders[key])]
        for key, one in zip(prompts, scored, strict=True)
    }
    return [scored_anchor_row(one, best_first[one.responses.prompt_id]) for one in found]
