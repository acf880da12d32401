"""What R_disc pays for, against references and known answers."""

from __future__ import annotations

import doctest
import importlib
from fractions import Fraction
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamicrubric.evaluationfiles import RUBRIC_TYPES
from dynamicrubric.honesty.cells import Honesty, honesty_of, together
from dynamicrubric.honesty.naive import paid
from dynamicrubric.honesty.redundant import redundant
from dynamicrubric.rewards import r_disc, r_disc_of_verdicts
from dynamicrubric.types import Verdict

VERDICTS = {"y": Verdict.yes(), "n": Verdict.no(), "-": Verdict.unscored("refusal")}


@st.composite
def cases(draw: st.DrawFn, signs: str = "yn-") -> tuple[list[int], list[str]]:
    num_items, num_responses = draw(st.integers(1, 4)), draw(st.integers(2, 6))
    row = st.text(st.sampled_from(signs), min_size=num_items, max_size=num_items)
    rows = draw(st.lists(row, min_size=num_responses, max_size=num_responses))
    return draw(st.lists(st.integers(1, 5), min_size=num_items, max_size=num_items)), rows


def matrices(rows: list[str]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array([list(row) for row in rows])
    return table == "y", table != "-"


def by_hand(weights: list[int], rows: list[str], version: str) -> Fraction:
    total = Fraction(0)
    for column, weight in enumerate(weights):
        said = [row[column] for row in rows]
        size = len(said)
        if version == "as_no":
            said = ["n" if one == "-" else one for one in said]
        if version == "scored_only":
            said = [one for one in said if one != "-"]
            size = max(1, len(said))
        total += weight * Fraction(said.count("y") * said.count("n"), size**2)
    return total / sum(weights)


@given(cases())
@settings(max_examples=150)
def test_paid_is_what_each_version_says_item_by_item(case: tuple[list[int], list[str]]) -> None:
    weights, rows = case
    found = paid(weights, *matrices(rows))
    for version in ("aware", "as_no", "scored_only"):
        assert getattr(found, version) == pytest.approx(float(by_hand(weights, rows, version)))
    trained = r_disc_of_verdicts(weights, [[VERDICTS[one] for one in row] for row in rows]).value
    assert found.aware == pytest.approx(trained or 0.0)
    assert found.aware <= min(found.as_no, found.scored_only) + 1e-12


@given(cases("yn"))
@settings(max_examples=50)
def test_versions_are_one_where_every_verdict_is_scored(case: tuple[list[int], list[str]]) -> None:
    weights, rows = case
    found = paid(weights, *matrices(rows))
    expected = r_disc(weights, matrices(rows)[0])
    assert (found.aware, found.as_no, found.scored_only) == pytest.approx((expected,) * 3)


@given(cases("yn"))
@settings(max_examples=60)
def test_chance_is_the_share_of_all_ways_to_deal_an_items_verdicts(
    case: tuple[list[int], list[str]],
) -> None:
    _, rows = case
    yes, scored = matrices(rows)
    found = redundant([f"criterion {n}" for n in range(yes.shape[1])], yes, scored)
    split = [c for c in yes.T if 0 < c.sum() < len(c)]
    equal = opposite = alike = other = 0.0
    for place, one in enumerate(split):
        for two in split[place + 1 :]:
            deals = list(permutations(two))
            equal += sum(tuple(one) == deal for deal in deals) / len(deals)
            opposite += sum(tuple(~one) == deal for deal in deals) / len(deals)
            alike += tuple(one) == tuple(two)
            other += tuple(~one) == tuple(two)
    assert found.pairs == len(split) * (len(split) - 1) // 2
    assert (found.equal, found.opposite) == (alike, other)
    assert found.equal_by_chance == pytest.approx(equal)
    assert found.opposite_by_chance == pytest.approx(opposite)


def test_items_that_do_not_split_or_have_unscored_verdicts_are_in_no_pair() -> None:
    yes, scored = matrices(["yyn-", "yyyy", "ynnn"])
    found = redundant(["a", "b", "c", "d"], yes, scored)
    assert found.pairs == 1  # the second and the third


def test_criteria_with_the_same_words_are_told() -> None:
    yes, scored = matrices(["yyy", "yyy"])
    texts = ["mentions the tram", "The tram, mentions!", "shouts"]
    assert redundant(texts, yes, scored).same_words == 1
    opposite = ["gives a number", "gives no number", "gives number"]
    assert redundant(opposite, yes, scored).same_words == 0


RESPONSES = ["saw the tram.", "dear Ann", "big hug"]


def tables(rubrics: dict[str, list[tuple[str, int, str]]]) -> tuple[pd.DataFrame, ...]:
    """Tables of one set a rubric; an item is (criterion, weight, a sign for each response)."""
    responses = [
        {"response_id": f"{name}/{place}", "sample_index": place, "prompt": "Write", "text": text}
        for name in rubrics
        for place, text in enumerate(RESPONSES)
    ]
    words = {"y": "yes", "n": "no", "-": "unscored"}
    verdicts = [
        {"response_id": f"{name}/{place}", "rubric_id": name, "item_index": item,
         "criterion": criterion, "weight": weight, "verdict": words[sign]}
        for name, items in rubrics.items()
        for item, (criterion, weight, signs) in enumerate(items)
        for place, sign in enumerate(signs)
    ]  # fmt: skip
    rows = [{"rubric_id": name, "valid": True, "invalid_reason": None} for name in rubrics]
    rows += [{"rubric_id": "x", "valid": False, "invalid_reason": "duplicate_criterion"}]
    rows += [{"rubric_id": "z", "valid": False, "invalid_reason": "not_json"}]
    types = {name: RUBRIC_TYPES[name] for name in ("rubric_id", "valid", "invalid_reason")}
    frame = pd.DataFrame(rows).astype(types)  # what is absent is pandas' NA, as when read back
    columns = ["response_id", "rubric_id", "item_index", "criterion", "weight", "verdict"]
    return pd.DataFrame(responses), frame, pd.DataFrame(verdicts, columns=columns)


def test_figures_of_a_cell_are_those_of_its_rubrics() -> None:
    found = honesty_of(
        *tables(
            {
                "a": [("mentions the tram", 1, "ynn"), ("greets", 3, "nyy"), ("is kind", 1, "yyy")],
                "b": [("shouts", 2, "nnn"), ("is calm", 2, "yy-")],
            }
        )
    )
    assert (found.written, found.duplicated, found.rubrics) == (4, 1, 2)
    assert (found.items, found.judged, found.all_meet, found.none_meet) == (5, 4, 1, 1)
    assert (found.single, found.pairs, found.equal, found.opposite) == (1, 1, 0, 1)
    assert found.opposite_by_chance == pytest.approx(1 / 3)
    assert (found.verdicts, found.unscored, found.overpaid) == (15, 1, 1)
    assert found.disc == pytest.approx((1 + 3) / 5 * 2 / 9)
    assert found.disc_of_single == pytest.approx(1 / 5 * 2 / 9)
    assert found.disc_as_no == pytest.approx(found.disc + 1 / 2 * 2 / 9)
    assert found.share("overpaid", "paid") == 0.5


def test_rubric_without_a_scored_verdict_has_no_r_disc() -> None:
    one = {"a": [("greets", 3, "nyy")]}
    found = honesty_of(*tables(one | {"b": [("shouts", 2, "---"), ("is calm", 2, "---")]}))
    assert (found.rubrics, found.paid, found.unscored, found.overpaid) == (2, 1, 6, 0)
    for name in ("disc", "disc_as_no", "disc_scored_only"):
        assert found.share(name, "paid") == pytest.approx(2 / 9)
    assert honesty_of(*tables({"b": [("shouts", 2, "---")]})).share("disc", "paid") is None


def test_order_of_the_stored_rows_decides_nothing() -> None:
    responses, rubrics, verdicts = tables(
        {"a": [("mentions the tram", 1, "ynn"), ("greets", 3, "nyy")]}
    )
    shuffled = [one.sample(frac=1, random_state=3) for one in (responses, rubrics, verdicts)]
    assert honesty_of(*shuffled) == honesty_of(responses, rubrics, verdicts)


def test_cell_without_rubrics_has_counts_and_no_share() -> None:
    responses, _, verdicts = tables({})
    rubrics = pd.DataFrame({"rubric_id": ["a"], "valid": [None], "invalid_reason": [None]})
    found = honesty_of(responses.reindex(columns=["response_id", "sample_index", "prompt", "text"]),
                       rubrics.astype({"valid": "boolean"}), verdicts)  # fmt: skip
    assert found == Honesty()
    assert found.share("single", "items") is None


def test_cells_add_up() -> None:
    one = honesty_of(*tables({"a": [("greets", 1, "ynn")]}))
    assert together([one, one]).rubrics == 2
    assert together([one, one]).share("disc", "paid") == one.share("disc", "paid")


@pytest.mark.parametrize(
    "name",
    [
        "honesty.single", "honesty.naive", "honesty.redundant", "honesty.cells",
        "evaluators.orders", "worlds.noise", "training.gap",
    ],
)  # fmt: skip
def test_module_examples_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"dynamicrubric.{name}"))
    assert result.failed == 0
    assert result.attempted > 0
