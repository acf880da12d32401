"""Rubrics averaged over orders, and what is told of how they differ."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamicrubric.engines.base import Generation
from dynamicrubric.evaluators.judging import JudgedSet, ResponseSet
from dynamicrubric.evaluators.orders import OrderAveragedWriter, average_rubric, in_order
from dynamicrubric.honesty.orders import ShownSet, change_between, order_figures
from dynamicrubric.rubrics import parse_rubric, render_rubric
from dynamicrubric.scoring import score_set
from dynamicrubric.types import InvalidReason, InvalidRubric, Item, Rubric, Score, Verdict

SETS = [ResponseSet("p", "Write", ("a", "b", "c", "d")), ResponseSet("q", "Write", ("e", "f", "g"))]


def rubric(**items: int) -> Rubric:
    return Rubric(tuple(Item(text, weight) for text, weight in items.items()))


@st.composite
def rubrics(draw: st.DrawFn) -> list[Rubric]:
    names = st.sampled_from("abcdefgh")
    one = st.dictionaries(names, st.integers(1, 5), min_size=1, max_size=4).map(
        lambda items: rubric(**items)
    )
    return draw(st.lists(one, min_size=1, max_size=5))


@given(rubrics())
@settings(max_examples=150)
def test_average_is_a_rubric_of_no_more_items_than_the_largest_and_of_their_criteria(
    found: list[Rubric],
) -> None:
    average = average_rubric(found)
    sizes = [len(one.items) for one in found]
    assert min(sizes) <= len(average.items) <= max(sizes)
    assert set(average.criteria) <= {text for one in found for text in one.criteria}
    assert parse_rubric(render_rubric(average), min_items=1, max_items=max(sizes)) == average


@given(rubrics(), st.integers(1, 5))
@settings(max_examples=50)
def test_rubric_that_no_order_changes_is_its_own_average(found: list[Rubric], times: int) -> None:
    assert average_rubric([found[0]] * times) == found[0]


def test_average_keeps_the_heaviest_by_mean_weight_with_absence_as_zero() -> None:
    found = average_rubric(
        [rubric(always=2, often=5, once=4), rubric(always=2, often=5), rubric(always=2, last=3)]
    )
    assert found == rubric(always=2, often=3)  # sizes 3, 2, 2; means 2, 10/3, 4/3, 1


def test_criteria_that_differ_in_case_alone_are_one() -> None:
    found = average_rubric([Rubric((Item("Greets.", 4),)), Rubric((Item("greets", 2),))])
    assert found == Rubric((Item("Greets.", 3),))


class OrderTaught:
    """A writer whose rubric names the first response that it is shown."""

    def __init__(self, broken: Sequence[str] = ()) -> None:
        self.broken = broken
        self.asked: list[tuple[ResponseSet, int]] = []

    def write(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[Generation]:
        self.asked += zip(sets, seeds, strict=True)
        return [
            Generation((), "[" if one.responses[0] in self.broken else render_rubric(
                Rubric((Item(f"is {one.responses[0]}", 3), Item("is short", 2)))), "stop")
            for one in sets
        ]  # fmt: skip


def read(text: Generation) -> Rubric | InvalidRubric:
    return parse_rubric(text.text, min_items=1, max_items=4)


def test_writer_asks_once_an_order_and_first_as_the_set_is() -> None:
    inner = OrderTaught()
    found = OrderAveragedWriter(inner, 4, read).write(SETS, [11, 12])
    assert len(found) == 2 and len(inner.asked) == 8
    for place, one in enumerate(SETS):
        own = inner.asked[4 * place : 4 * place + 4]
        assert own[0] == (one, [11, 12][place])
        assert all(sorted(shown.responses) == sorted(one.responses) for shown, _ in own)
        assert len({seed for _, seed in own}) == 4
    assert len({shown.responses for shown, _ in inner.asked[:4]}) > 1
    # What every order says outweighs what one of them does.
    for text in found:
        rubric = read(text)
        assert isinstance(rubric, Rubric)
        weights = {i.criterion: i.weight for i in rubric.items}
        assert weights["is short"] == 2
        assert text.finish_reason == "stop"
    assert found == OrderAveragedWriter(OrderTaught(), 4, read).write(SETS, [11, 12])


def test_writer_leaves_invalid_rubrics_out_and_returns_the_first_if_all_are() -> None:
    shown = {in_order(SETS[0], order, 11).responses[0] for order in range(4)}
    assert len(shown) > 1
    one = OrderAveragedWriter(OrderTaught(broken=["a"]), 4, read).write(SETS[:1], [11])[0]
    assert "is a" not in json.dumps(one.text) and isinstance(read(one), Rubric)
    none = OrderAveragedWriter(OrderTaught(broken="abcd"), 4, read).write(SETS[:1], [11])[0]
    assert none.text == "["


def test_responses_that_are_not_there_move_with_their_places() -> None:
    failed = ResponseSet("p", "Write", ("a", "", "c", "d"), (None, "down", None, None))
    for order in range(6):
        moved = in_order(failed, order, 5)
        assert sorted(moved.shown) == ["a", "c", "d"]
        assert [text for text, why in zip(moved.responses, moved.failures, strict=True) if why] == [
            ""
        ]


def judged(found: Rubric | InvalidRubric, *rows: str) -> JudgedSet:
    if isinstance(found, InvalidRubric):
        return JudgedSet(found, (), tuple(Score.unscored("invalid") for _ in range(3)))
    signs = {"y": Verdict.yes(), "n": Verdict.no(), "-": Verdict.unscored("refusal")}
    verdicts = tuple(tuple(signs[sign] for sign in row) for row in rows)
    return JudgedSet(found, verdicts, score_set(found, verdicts))


FIRST = judged(rubric(a=1, b=1), "yy", "yn", "nn")  # scores 1, 1/2, 0
OTHER = judged(rubric(b=1, c=1), "yn", "yn", "yy")  # scores 1/2, 1/2, 1
INVALID = judged(InvalidRubric(InvalidReason.NOT_JSON, "["))


def test_change_between_two_rubrics_is_told_by_criteria_scores_and_order() -> None:
    found = change_between(FIRST, OTHER)
    assert found.criteria_kept == pytest.approx(1 / 3)
    assert found.score_change == pytest.approx((0.5 + 0.0 + 1.0) / 3)
    # 1 > 1/2 is now tied, 1 > 0 and 1/2 > 0 the other way round.
    assert found.pairs_flipped == pytest.approx(2 / 3)
    assert found.pairs_changed == 1.0
    assert change_between(FIRST, FIRST).pairs_changed == 0.0
    assert change_between(FIRST, INVALID).criteria_kept is None


def test_unscored_responses_are_in_no_pair() -> None:
    found = change_between(FIRST, judged(rubric(a=1, b=1), "yy", "y-", "nn"))
    assert (found.score_change, found.pairs_changed) == (0.0, 0.0)
    alone = change_between(FIRST, judged(rubric(a=1, b=1), "yy", "--", "--"))
    assert alone.criteria_kept == 1.0 and alone.score_change is None


def test_figures_take_off_what_asking_again_does_and_count_what_is_missing() -> None:
    sets = [
        ShownSet(
            prompt_id=f"p{number}", quality=(0.3, 0.2, 0.1), reproduced=number > 0, first=FIRST,
            permuted=(OTHER, INVALID), again=(FIRST, FIRST), averaged=FIRST if number else OTHER,
        )
        for number in range(25)
    ]  # fmt: skip
    found = order_figures(sets, seed=1)
    assert (found.orders, found.sets, found.reproduced) == (3, 25, 24)
    changed = found.permuted["pairs_changed"]
    assert (changed.value, changed.n_scored, changed.n_total) == (1.0, 25, 50)
    assert found.again["pairs_changed"].value == 0.0
    assert found.of_order["pairs_changed"].mean == 1.0
    assert found.valid[1].value == 0.5
    assert found.gap.value == pytest.approx((0.5 + 1.0 + 0.5) / 3)
    assert found.averaging.mean == pytest.approx((-(0.0 + 0.5 + 0.5) / 3 - 2 / 3) / 25)


def test_figures_without_a_known_quality_leave_the_gap_unscored() -> None:
    one = ShownSet("p", (None, None, None), True, FIRST, (OTHER,), (FIRST,), FIRST)
    found = order_figures([one], seed=1)
    assert found.gap.value is None and found.gap.n_total == 1
    assert found.averaging.mean is None
