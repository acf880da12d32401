"""Measurement of one round on held-out prompts: three tables and the round's figures.

Gaps follow one distribution of pairs, the default of `theory.pairs`: uniform over the pairs of a
response set that true quality orders, ties left out. Where nobody knows true quality, what needs it
is unscored, and the anchor lists of held-out prompts measure the evaluator (`anchorfigures`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dynamicrubric.engines.base import Generation
from dynamicrubric.evaluators.judging import JudgedSet, Judging, ResponseSet, text_hash
from dynamicrubric.evaluators.writers import RubricWriter
from dynamicrubric.rewards import r_disc_of_verdicts
from dynamicrubric.scoring import scored_matrix, yes_matrix
from dynamicrubric.seeds import derive_seed
from dynamicrubric.theory import (
    Decomposition,
    Reference,
    decompose,
    pairs,
    rank_accuracy,
    tie_rate,
)
from dynamicrubric.types import InvalidRubric, Mean, Rubric, Score, mean_of

Quality = Callable[[str, str], float | None]
NO_RUBRIC = "no_rubric"
"""Reason of a response without a score where the evaluator writes no rubrics."""


@dataclass(frozen=True)
class SampledSet:
    """A response set as it was sampled.

    Attributes:
        set_id: unique name, e.g. `lisbon-anna-birthday/2`.
        responses: prompt and texts.
        generations: the K completions; none of a set that was read back from its table.
        kl: log P_t - log P_0 of each completion, summed over its tokens, None where the engine
            gave none; likewise.
    """

    set_id: str
    responses: ResponseSet
    generations: tuple[Generation, ...]
    kl: tuple[float | None, ...]


@dataclass(frozen=True)
class MeasuredSet:
    """A response set with its rubric, scores and figures (None where there is none)."""

    sampled: SampledSet
    rubric_text: str | None
    judged: JudgedSet | None
    quality: tuple[float | None, ...]
    r_disc: float | None
    parts: Decomposition | None
    rank_accuracy: float | None
    tie_rate: float | None
    scores: tuple[Score, ...] | None = None
    """Of an evaluator without verdicts; others have them in `judged`."""
    gap: float | None = None
    """Delta_gap of such scores."""

    @property
    def delta_gap(self) -> float | None:
        """Delta_gap, however the responses were scored."""
        return self.parts.delta_gap if self.parts else self.gap


@dataclass(frozen=True)
class Evaluation:
    """Everything measured in a round; `metrics` by name, the rest as rows of tables."""

    metrics: dict[str, Mean]
    responses: list[dict[str, Any]]
    rubrics: list[dict[str, Any]]
    verdicts: list[dict[str, Any]]
    anchors: list[dict[str, Any]] = field(default_factory=list)
    """A row for each set's rubric on its prompt's anchor list, where there are such lists."""


def evaluate_sets(
    sets: Sequence[SampledSet],
    writer: RubricWriter,
    judging: Judging,
    quality: Quality,
    seed_name: tuple[str | int, ...],
    anchors: Mapping[str, Sequence[str]] | None = None,
) -> Evaluation:
    """Return everything measured on the held-out sets of a round; arguments as `measure_sets`.

    With anchor lists, each set's rubric is also applied to its prompt's list.
    """
    measured = measure_sets("the held-out sets", sets, writer, judging, quality, seed_name)
    evaluation = evaluation_of(measured)
    if not anchors:
        return evaluation
    from dynamicrubric.anchorfigures import anchor_figures, judge_anchors

    rows = judge_anchors(measured, anchors, judging, seed_name)
    return replace(evaluation, metrics=evaluation.metrics | anchor_figures(rows), anchors=rows)


def measure_sets(
    where: str,
    sets: Sequence[SampledSet],
    writer: RubricWriter,
    judging: Judging,
    quality: Quality,
    seed_name: tuple[str | int, ...],
) -> list[MeasuredSet]:
    """Write a rubric for each set, judge it and measure it.

    Args:
        where: which sets they are, as a person reads it.
        sets: held-out response sets of a policy.
        writer: the evaluator's rubric writer.
        judging: how its rubrics are read and applied.
        quality: true quality of (prompt id, text); used for measurement alone.
        seed_name: words that name this measurement's draws.

    Raises:
        InstrumentError: a rate is above its limit.
    """
    seeds = [derive_seed(*seed_name, one.set_id, "rubric") for one in sets]
    responses = [one.responses for one in sets]
    texts = writer.write(responses, seeds)
    judged = judging.judge_sets(texts, responses, seeds)
    judging.check_rates(where, judged)
    return [
        _measure(one, under, text.text, quality)
        for one, under, text in zip(sets, judged, texts, strict=True)
    ]


def evaluate_without_rubrics(sets: Sequence[SampledSet], quality: Quality) -> Evaluation:
    """Measure sets of a policy whose evaluator writes no rubrics: what is of rubrics is unscored.

    Args:
        sets: held-out response sets of the current policy.
        quality: true quality of (prompt id, text).
    """
    return evaluation_of([_measure(one, None, None, quality) for one in sets])


def evaluation_of(measured: Sequence[MeasuredSet]) -> Evaluation:
    """Return the figures and tables of measured sets."""
    return Evaluation(
        metrics=_figures(measured),
        responses=[row for one in measured for row in _response_rows(one)],
        rubrics=[rubric_row(one) for one in measured],
        verdicts=[row for one in measured for row in _verdict_rows(one)],
    )


def _measure(
    sampled: SampledSet, judged: JudgedSet | None, rubric_text: str | None, quality: Quality
) -> MeasuredSet:
    responses = sampled.responses
    truth = true_qualities(responses, quality)
    if judged is None:
        return MeasuredSet(sampled, rubric_text, None, truth, None, None, None, None)
    known = [value for value in truth if value is not None]
    whole = isinstance(judged.rubric, Rubric) and bool(scored_matrix(judged.verdicts).all())
    if len(known) < len(truth):
        disc = r_disc_of(judged) if whole else None
        return MeasuredSet(sampled, rubric_text, judged, truth, disc, None, None, None)
    ordered, parts = pairs(Reference.of_quality(known)), None
    if isinstance(judged.rubric, Rubric) and whole:
        parts = decompose(judged.rubric.weights, yes_matrix(judged.verdicts), ordered)
    return MeasuredSet(
        sampled,
        rubric_text,
        judged,
        truth,
        parts.r_disc if parts else None,
        parts,
        rank_accuracy(judged.scores, ordered).value,
        tie_rate(judged.scores, ordered).value,
    )


def true_qualities(responses: ResponseSet, quality: Quality) -> tuple[float | None, ...]:
    """Return the true quality of each response that there is, None where nobody knows it."""
    return tuple(
        quality(responses.prompt_id, response) if failed is None else None
        for response, failed in zip(responses.responses, responses.reasons, strict=True)
    )


def r_disc_of(judged: JudgedSet) -> float | None:
    """Return R_disc of a judged set; None for an invalid rubric or without a scored verdict."""
    if isinstance(judged.rubric, InvalidRubric):
        return None
    return r_disc_of_verdicts(judged.rubric.weights, judged.verdicts).value


def _figures(measured: Sequence[MeasuredSet]) -> dict[str, Mean]:
    """Return the round's figures; means over sets count the sets that have the figure."""
    generations = [g for one in measured for g in one.sampled.generations]
    return {
        "true_quality": mean_of([q for one in measured for q in one.quality]),
        **rubric_figures(measured),
        "response_length": mean_of(
            [float(len(g.token_ids)) if g.failure is None else None for g in generations]
        ),
        "kl": mean_of([value for one in measured for value in one.sampled.kl]),
    }


def rubric_figures(measured: Sequence[MeasuredSet]) -> dict[str, Mean]:
    """Return the figures that are about the rubrics: means over the sets that have the figure."""
    parts = [one.parts for one in measured]
    rubrics = [one.judged.rubric if one.judged else None for one in measured]
    return {
        "delta_gap": mean_of([one.delta_gap for one in measured]),
        "r_disc": mean_of([one.r_disc for one in measured]),
        "r_dir": mean_of([p.r_dir if p else None for p in parts]),
        "r_cov": mean_of([p.r_cov if p else None for p in parts]),
        "rank_accuracy": mean_of([one.rank_accuracy for one in measured]),
        "tie_rate": mean_of([one.tie_rate for one in measured]),
        "valid_rubric_rate": mean_of(
            [None if r is None else float(isinstance(r, Rubric)) for r in rubrics]
        ),
        "items_per_rubric": mean_of(
            [float(len(r.items)) if isinstance(r, Rubric) else None for r in rubrics]
        ),
    }


def _response_rows(one: MeasuredSet) -> list[dict[str, Any]]:
    sampled, responses = one.sampled, one.sampled.responses
    unscored = [Score.unscored(failed or NO_RUBRIC) for failed in responses.reasons]
    scores = one.judged.scores if one.judged else one.scores or unscored
    return [
        {
            "prompt_id": responses.prompt_id,
            "prompt": responses.prompt,
            "set_index": int(sampled.set_id.rpartition("/")[2]),
            "sample_index": index,
            "response_id": f"{sampled.set_id}/{index}",
            "text": generation.text,
            "text_hash": text_hash(generation.text),
            "num_tokens": len(generation.token_ids),
            "finish_reason": generation.finish_reason,
            "true_quality": one.quality[index],
            "score": scores[index].value,
            "score_reason": scores[index].reason,
            "kl": sampled.kl[index],
        }
        for index, generation in enumerate(sampled.generations)
    ]


def rubric_row(one: MeasuredSet) -> dict[str, Any]:
    """Return a set's rubric and its figures as a row of a table with `RUBRIC_TYPES`."""
    rubric, parts = one.judged.rubric if one.judged else None, one.parts
    return {
        "rubric_id": one.sampled.set_id,
        "prompt_id": one.sampled.responses.prompt_id,
        "set_index": int(one.sampled.set_id.rpartition("/")[2]),
        "text": one.rubric_text,
        "valid": None if rubric is None else isinstance(rubric, Rubric),
        "invalid_reason": str(rubric.reason) if isinstance(rubric, InvalidRubric) else None,
        "num_items": len(rubric.items) if isinstance(rubric, Rubric) else None,
        "delta_gap": one.delta_gap,
        "r_disc": one.r_disc,
        "r_dir": parts.r_dir if parts else None,
        "r_cov": parts.r_cov if parts else None,
        "rank_accuracy": one.rank_accuracy,
        "tie_rate": one.tie_rate,
    }


def _verdict_rows(one: MeasuredSet) -> list[dict[str, Any]]:
    if one.judged is None or isinstance(one.judged.rubric, InvalidRubric):
        return []
    rubric = one.judged.rubric
    return [
        {
            "response_id": f"{one.sampled.set_id}/{index}",
            "rubric_id": one.sampled.set_id,
            "item_index": place,
            "criterion": item.criterion,
            "weight": item.weight,
            "verdict": verdict.value,
            "reason": verdict.reason,
            "p_yes": verdict.p_yes,
        }
        for index, row in enumerate(one.judged.verdicts)
        for place, (item, verdict) in enumerate(zip(rubric.items, row, strict=True))
    ]
