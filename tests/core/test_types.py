from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.types import Item, Mean, Rubric, Score, Verdict, mean_of

unit = st.floats(0.0, 1.0)


def test_mean_with_two_of_ten_unscored_keeps_counts_and_bounds() -> None:
    # Case 12: 10 pairs, 2 raise in the judge, 6 of 8 right.
    outcomes = [Score.of(1.0)] * 6 + [Score.of(0.0)] * 2 + [Score.unscored("judge_error")] * 2
    mean = mean_of(outcomes)
    assert (mean.value, mean.n_scored, mean.n_total) == (0.75, 8, 10)
    assert mean.reasons == {"judge_error": 2}
    assert mean.bounds() == pytest.approx((0.60, 0.80))
    assert mean.unscored_rate == pytest.approx(0.2)


def test_mean_of_nothing_scored_has_no_value_and_the_whole_range() -> None:
    assert mean_of([]).bounds() == (0.0, 1.0)
    mean = mean_of([None, Score.unscored("refusal")])
    assert mean.value is None
    assert mean.bounds() == (0.0, 1.0)
    assert mean.bounds(-1.0, 1.0) == (-1.0, 1.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_mean_of_non_finite_raises(bad: float) -> None:
    with pytest.raises(ValueError, match="averaged"):
        mean_of([0.5, bad])


@given(st.lists(st.one_of(st.none(), unit)), st.data())
def test_mean_bounds_hold_every_completion(values: list[float | None], data: st.DataObject) -> None:
    mean = mean_of(values)
    filled = [data.draw(unit) if value is None else value for value in values]
    low, high = mean.bounds()
    if filled:
        assert low - 1e-12 <= sum(filled) / len(filled) <= high + 1e-12
    assert mean.n_scored + mean.n_unscored == len(values)


@given(st.lists(st.one_of(st.none(), unit)), st.randoms())
def test_mean_of_permuted_values_is_the_same(values: list[float | None], rng: object) -> None:
    shuffled = list(values)
    rng.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis gives a random.Random
    assert mean_of(shuffled) == mean_of(values)


def test_mean_with_counts_that_disagree_raises() -> None:
    with pytest.raises(ValueError, match="add up"):
        Mean(0.5, 1, 3, {"refusal": 1})
    with pytest.raises(ValueError, match="over 0"):
        Mean(0.5, 0, 1, {"refusal": 1})


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, math.inf])
def test_score_outside_the_unit_interval_raises(bad: float) -> None:
    with pytest.raises(ValueError, match="outside"):
        Score.of(bad)


def test_unscored_values_have_no_truth_value() -> None:
    for value in (Score.of(0.0), Score.unscored("x"), Verdict.no(), Verdict.unscored("x")):
        with pytest.raises(TypeError, match="truth value"):
            bool(value)


def test_verdict_reason_goes_with_unscored_only() -> None:
    with pytest.raises(ValueError, match="reason"):
        Verdict("yes", "refusal")
    with pytest.raises(ValueError, match="reason"):
        Verdict("unscored")
    with pytest.raises(ValueError, match="reason"):
        Score.unscored("")
    with pytest.raises(ValueError, match="p_yes"):
        Verdict.yes(math.nan)
    with pytest.raises(ValueError, match="no such"):
        Verdict("maybe")  # type: ignore[arg-type] # what a careless caller does


@pytest.mark.parametrize("items", [(), (Item("a", 0),), (Item("a", 6),)])
def test_rubric_outside_its_contract_raises(items: tuple[Item, ...]) -> None:
    with pytest.raises(ValueError, match=r"item|weight"):
        Rubric(items)


def test_user_error_names_its_parts_and_survives_pickling() -> None:
    error = UserError(doing="reading a.yaml", got="K: 1", expected="K >= 2", remedy="raise K")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) == "reading a.yaml: got K: 1; expected K >= 2. Raise K."
    assert (copy.got, copy.remedy) == ("K: 1", "raise K")
    assert isinstance(error, ValueError)
    assert not issubclass(InstrumentError, ValueError)
