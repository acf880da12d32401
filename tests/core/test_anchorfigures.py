"""Held-out anchor lists: what a failed verdict, or an invalid rubric, does to the figures."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dynamicrubric.anchorfigures import anchor_figures, judge_anchors
from dynamicrubric.engines.base import Generation, JudgeRequest
from dynamicrubric.errors import InstrumentError
from dynamicrubric.evaluation import SampledSet, measure_sets
from dynamicrubric.evaluators.judging import Judging, ResponseSet
from dynamicrubric.evaluators.writers import FixedWriter
from dynamicrubric.rewards import r_anchor
from dynamicrubric.types import Verdict

RUBRIC = '[{"criterion":"is good","weight":1}]'
ANCHORS = {
    "whole": ("good", "good too", "bad"),
    "holed": ("good", "silent", "bad"),
    "unasked": ("good", "bad", "bad too"),
}


class Verifier:
    """Says yes to what begins with "good", and nothing to what is "silent"."""

    def accepts(self, criterion: str) -> bool:
        return True

    def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        return [[self._verdict(one.response)] * len(one.criteria) for one in requests]

    def _verdict(self, text: str) -> Verdict:
        if text == "silent":
            return Verdict.unscored("refusal")
        return Verdict.yes() if text.startswith("good") else Verdict.no()


def measured(rubric: str, *, max_unscored_rate: float = 1.0) -> list[dict[str, object]]:
    judging = Judging(Verifier(), 1, 2, max_invalid_rate=1.0, max_unscored_rate=max_unscored_rate)
    sets = [
        SampledSet(
            f"{key}/0",
            ResponseSet(key, "Write", ("good", "bad")),
            (Generation((1,), "good", "stop"), Generation((1,), "bad", "stop")),
            (0.0, 0.0),
        )
        for key in ("whole", "holed", "elsewhere")
    ]
    found = measure_sets("the sets", sets, FixedWriter(rubric), judging, lambda *_: None, (1,))
    return judge_anchors(found, ANCHORS, judging, (1,))


def test_list_with_a_failed_verdict_has_no_reward_and_counts_as_unscored() -> None:
    rows = {row["prompt_id"]: row for row in measured(RUBRIC)}
    assert rows.keys() == {"whole", "holed"}
    assert rows["whole"]["anchor_r_anchor"] == r_anchor([1.0, 1.0, 0.0])
    assert rows["holed"]["anchor_r_anchor"] is None
    figures = anchor_figures(list(rows.values()))
    assert figures["anchor_r_anchor"].value == rows["whole"]["anchor_r_anchor"]
    assert (figures["anchor_r_anchor"].n_scored, figures["anchor_r_anchor"].n_total) == (1, 2)
    assert figures["anchor_unscored_rate"].value == pytest.approx(1 / 6)


def test_invalid_rubric_ranks_nothing() -> None:
    figures = anchor_figures(measured("["))
    for name in ("anchor_rank_accuracy", "anchor_delta_gap", "anchor_r_anchor"):
        assert (figures[name].value, figures[name].n_total) == (None, 2)


def test_verifier_that_fails_more_than_its_limit_on_the_lists_stops() -> None:
    with pytest.raises(InstrumentError, match="the held-out anchor lists"):
        measured(RUBRIC, max_unscored_rate=0.1)
