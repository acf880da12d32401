"""How an evaluator ranks the anchor lists of held-out prompts: what stands for the truth there.

The rubric that was written for a response set is applied to the anchor list of the same prompt, as
in the generator's training, but on prompts that no training read. Figures are means over the sets;
a list counts once for each set of its prompt. R_anchor is measured on lists without an unscored
verdict alone: the bound that stands for the others in training is no measurement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynamicrubric.evaluation import MeasuredSet, SampledSet
from dynamicrubric.evaluators.judging import Job, JudgedSet, Judging
from dynamicrubric.rewards import r_anchor
from dynamicrubric.seeds import derive_seed
from dynamicrubric.theory import PairDistribution, Reference, delta_gap, pairs, rank_accuracy
from dynamicrubric.types import Mean, Score, mean_of


def judge_anchors(
    measured: Sequence[MeasuredSet],
    anchors: Mapping[str, Sequence[str]],
    judging: Judging,
    seed_name: tuple[str | int, ...],
) -> list[dict[str, Any]]:
    """Return a row with `ANCHOR_TYPES` for each set whose prompt has an anchor list.

    Args:
        measured: the held-out sets with their rubrics.
        anchors: ranked texts, best first, by prompt id.
        judging: how rubrics are read and applied; its limits hold.
        seed_name: words that name this measurement's draws.

    Raises:
        InstrumentError: the verifier leaves more of the lists unscored than its limit.
    """
    found = [
        (one.sampled, one.judged.rubric)
        for one in measured
        if one.judged is not None and one.sampled.responses.prompt_id in anchors
    ]
    if not found:
        return []
    ranked = judging.judge(
        [
            Job(
                rubric,
                anchors[sampled.responses.prompt_id],
                derive_seed(*seed_name, sampled.set_id, "anchors"),
                sampled.responses.prompt,
            )
            for sampled, rubric in found
        ]
    )
    judging.check_rates("the held-out anchor lists", ranked)
    return [_row(sampled, one) for (sampled, _), one in zip(found, ranked, strict=True)]


def anchor_figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mean]:
    """Return the figures of `metrics.ANCHOR_METRICS`: means over the rows that have a value."""
    names = ("anchor_rank_accuracy", "anchor_delta_gap", "anchor_r_anchor")
    unscored = sum(row["num_unscored"] for row in rows)
    scored = sum(row["num_verdicts"] for row in rows) - unscored
    return {
        **{name: mean_of([row[name] for row in rows]) for name in names},
        "anchor_unscored_rate": mean_of([1.0] * unscored + [0.0] * scored),
    }


def scored_anchor_row(sampled: SampledSet, scores: Sequence[Score]) -> dict[str, Any]:
    """Return a row of an evaluator without verdicts; its scores are counted in their place."""
    unscored = sum(not score.is_scored for score in scores)
    return _figures(sampled, scores) | {"num_verdicts": len(scores), "num_unscored": unscored}


def _row(sampled: SampledSet, ranked: JudgedSet) -> dict[str, Any]:
    return _figures(sampled, ranked.scores) | {
        "num_verdicts": ranked.num_verdicts,
        "num_unscored": ranked.unscored_reasons.total(),
    }


def _figures(sampled: SampledSet, scores: Sequence[Score]) -> dict[str, Any]:
    ordered = _pairs(len(scores))
    return {
        "rubric_id": sampled.set_id,
        "prompt_id": sampled.responses.prompt_id,
        "set_index": int(sampled.set_id.rpartition("/")[2]),
        "anchor_rank_accuracy": rank_accuracy(scores, ordered).value,
        "anchor_delta_gap": delta_gap(scores, ordered).value,
        "anchor_r_anchor": r_anchor(scores),
    }


def _pairs(length: int) -> PairDistribution:
    """Return P over a list, which is ranked best first and has no ties."""
    return pairs(Reference.of_ranks(range(1, length + 1)))
