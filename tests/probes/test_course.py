"""Proxy against gold: known preferences, known truths, and what counts as divergence."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dynamicrubric.engines.programmatic import ProgrammaticVerifier
from dynamicrubric.errors import UserError
from dynamicrubric.evaluation import SampledSet
from dynamicrubric.evaluators.baselines import LengthEvaluator
from dynamicrubric.evaluators.judging import Judging, ResponseSet
from dynamicrubric.probes.course import (
    CourseRow,
    courses_of,
    distinct,
    measure_course,
    mixed_set,
    win_share,
)
from dynamicrubric.probes.gold import held_out, truth
from dynamicrubric.probes.watch import verdict_on
from dynamicrubric.types import Item, Rubric, Score
from dynamicrubric.worlds.postcards.criteria import check


def sets(mark: str, number: int = 24, size: int = 6, length: int = 0) -> list[SampledSet]:
    return [
        SampledSet(
            f"p{n}/0",
            ResponseSet(f"p{n}", "x", tuple(f"{mark}{n}-{k}" + "." * length for k in range(size))),
            (),
            (),
        )
        for n in range(number)
    ]


def old_is_better(prompt_id: str, text: str) -> float:
    return float(text.startswith("old"))


def rows(proxy: float | None, gold: float | None, number: int = 24) -> list[CourseRow]:
    """Rows whose shares scatter a little around two means."""
    draw = random.Random(7)

    def share(mean: float | None) -> Score:
        if mean is None:
            return Score.unscored("nobody_knows")
        return Score.of(min(1.0, max(0.0, mean + draw.uniform(-0.1, 0.1))))

    return [
        CourseRow("before", f"p{n}/0", f"p{n}", 9, share(proxy), share(gold)) for n in range(number)
    ]


def test_mixed_set_has_half_of_either_policy_in_an_order_that_the_seed_decides():
    new, old = sets("new", 1)[0].responses, sets("old", 1)[0].responses
    orders = set()
    for seed in range(30):
        mixed, is_newer = mixed_set(new, old, seed)
        assert sum(is_newer) == 3 and len(mixed.responses) == 6
        assert [text.startswith("new") for text in mixed.responses] == list(is_newer)
        assert {t for t in mixed.responses if t.startswith("new")} == set(new.responses[:3])
        orders.add(is_newer)
    assert len(orders) > 5
    assert mixed_set(new, old, 3) == mixed_set(new, old, 3)


def test_mixed_set_leaves_out_what_an_engine_did_not_give():
    new = replace(sets("new", 1)[0].responses, failures=(None, *["too_long"] * 5))
    mixed, is_newer = mixed_set(new, sets("old", 1)[0].responses, 1)
    assert (len(mixed.responses), sum(is_newer), mixed.failures) == (2, 1, ())


def test_course_says_what_the_evaluator_prefers_and_what_is_true():
    new, old = sets("new", length=9), sets("old")
    found = measure_course(
        LengthEvaluator(), new, old, "start", truth(old_is_better), (1, 2, "evaluate")
    )
    assert {(r.proxy.value, r.gold.value, r.num_pairs) for r in found} == {(1.0, 0.0, 9)}
    assert [r.prompt_id for r in found] == [f"p{n}" for n in range(24)]
    assert {r.reference for r in found} == {"start"}


def test_course_of_policies_with_other_sets_is_refused():
    with pytest.raises(UserError, match="p23/0"):
        measure_course(
            LengthEvaluator(), sets("new"), sets("old", 23), "start", truth(old_is_better), (1,)
        )


def test_share_of_pairs_with_an_unscored_response_is_none():
    assert win_share([Score.of(1.0), Score.unscored("cut")], [True, False]).reason == "cut"
    assert win_share([1.0, None], [True, False]).reason == "nobody_knows"
    assert win_share([1.0], [True]).reason == "no_pair"
    assert win_share([0.3, 0.3 + 1e-12], [True, False]).value == 0.5


def test_held_out_judge_is_gold_where_nobody_knows():
    judging = Judging(ProgrammaticVerifier(check), 1, 1, 1.0, 1.0)
    gold = held_out(judging, Rubric((Item("says thank you", 3),)))
    one = ResponseSet("p", "x", ("thank you", "no", ""), (None, None, "too_long"))
    ((first, second, third),) = gold([one], [5])
    assert (first.value, second.value, third.reason) == (1.0, 0.0, "failed_response:too_long")


@pytest.mark.parametrize(
    ("proxy", "gold", "diverges"),
    [
        (0.8, 0.2, True),
        (0.8, 0.8, False),
        (0.2, 0.2, False),
        (0.2, 0.8, False),
        (0.8, 0.5, False),  # no interval of gold leaves out one half
        (0.5, 0.2, False),
        (0.8, None, False),  # nobody knows
    ],
)
def test_divergence_is_a_proxy_above_one_half_and_gold_below(proxy, gold, diverges):
    (found,) = courses_of({"before": {1: rows(proxy, gold)}})
    assert found.diverges is diverges
    said = verdict_on("coevolved-s1-r2", 1, rows(proxy, gold))
    assert said.diverges is diverges
    assert ("do not diverge" in said.sentence) is not diverges
    assert "coevolved-s1-r2" in said.sentence


def test_p_of_divergence_is_the_larger_one_corrected_over_the_references():
    by_reference = {"before": {1: rows(0.55, 0.4)}, "start": {1: rows(0.8, 0.2)}}
    before, start = courses_of(by_reference)
    alone = courses_of({"before": {1: rows(0.55, 0.4)}})[0]
    larger = max(alone.proxy.p_value, alone.gold.p_value)
    assert alone.p_value == larger
    assert before.p_value == pytest.approx(max(larger, start.p_value))
    assert (
        start.p_value == pytest.approx(2 * max(start.proxy.p_value, start.gold.p_value))
        or start.p_value == before.p_value
    )


def test_too_few_prompts_have_no_interval_and_no_divergence():
    (found,) = courses_of({"before": {1: rows(1.0, 0.0, number=12)}})
    assert not found.diverges and found.p_value is None
    assert "fewer than 20" in verdict_on("c", 1, rows(1.0, 0.0, number=12)).sentence


def test_start_policy_is_left_out_where_it_is_that_of_the_round_before():
    before = rows(0.8, 0.2)
    start = [replace(row, reference="start") for row in before]
    same = {"before": {1: before}, "start": {1: start}}
    assert list(distinct(same, 1)) == ["before"]
    assert list(distinct(same, 2)) == ["before", "start"]  # another policy, whatever it comes to


def test_rule_rarely_sees_divergence_where_there_is_none():
    """Both shares are one half in truth: 24 prompts, nine pairs each, 300 studies."""
    draw = random.Random(11)
    seen = 0
    for _ in range(300):
        own = [
            CourseRow("before", f"p{n}/0", f"p{n}", 9, _share(draw), _share(draw))
            for n in range(24)
        ]
        seen += courses_of({"before": {1: own}})[0].diverges
    assert seen <= 5  # at most 0.025 ** 2 of them are expected: none


def _share(draw: random.Random) -> Score:
    return Score.of(sum(draw.random() < 0.5 for _ in range(9)) / 9)


def test_rule_sees_a_clear_divergence_nearly_always():
    draw = random.Random(12)
    found = [courses_of({"before": {1: _overoptimised(draw)}})[0].diverges for _ in range(50)]
    assert sum(found) >= 45


def _overoptimised(draw: random.Random) -> list[CourseRow]:
    def share(mean: float) -> Score:
        return Score.of(min(1.0, max(0.0, draw.gauss(mean, 0.25))))

    return [CourseRow("before", f"p{n}/0", f"p{n}", 9, share(0.75), share(0.25)) for n in range(24)]


def test_proxy_and_gold_are_of_the_same_sets():
    # Where the evaluator gives scores, it is right; gold falls where it gives none.
    scored = rows(0.8, 0.8)
    unscored = [
        replace(one, set_id=f"q{n}/0", prompt_id=f"q{n}") for n, one in enumerate(rows(None, 0.0))
    ]
    (found,) = courses_of({"before": {1: scored + unscored}})
    (alone,) = courses_of({"before": {1: scored}})
    assert not found.diverges
    assert found.gold.mean == pytest.approx(alone.gold.mean)
    # Likewise where the judge gives none; without any gold the proxy is shown all the same.
    unjudged = [replace(one, prompt_id=f"q{n}") for n, one in enumerate(rows(0.0, None))]
    (found,) = courses_of({"before": {1: scored + unjudged}})
    assert found.proxy.mean == pytest.approx(alone.proxy.mean)
    (found,) = courses_of({"before": {1: unjudged}})
    assert found.proxy.mean < 0 and found.gold.mean is None
