"""Rows of both formats, and each way of being no row."""

from __future__ import annotations

from typing import Any

import pytest

from dynamicrubric.data.formats import Origin, TextRow, format_of, parse_row, parse_texts
from dynamicrubric.data.rows import AnchorRow, RowFault

ORIGIN = Origin("nectar.jsonl", "stated nowhere")


def nectar(prompt: object, *answers: tuple[object, object]) -> dict[str, Any]:
    given = [{"answer": text, "model": "gpt-4", "rank": rank} for text, rank in answers]
    return {"prompt": prompt, "answers": given or [{"answer": "a", "rank": 1}] * 2}


def plain(**fields: Any) -> dict[str, Any]:
    return {"id": "1", "prompt": "Why?", "responses": ["a", "b", "c"], **fields}


def test_nectar_row_is_sorted_by_rank_and_keeps_no_model() -> None:
    row = parse_row(
        nectar("\n\nHuman: Why?\n\nAssistant: ", ("worst", 3.0), ("best", 1.0), ("middle", 2.0)),
        "nectar",
        ORIGIN,
    )
    assert isinstance(row, AnchorRow)
    assert row.responses == ("best", "middle", "worst")
    assert (row.prompt, row.tiers, row.license) == ("Why?", (1, 1, 1), "stated nowhere")
    assert "gpt-4" not in repr(row)


def test_nectar_row_of_several_turns_keeps_them_apart() -> None:
    prompt = "\n\nHuman: Hi there\n\nAssistant: Hello!\n\nHuman: Why?\n\nIn detail.\n\nAssistant: "
    row = parse_row(nectar(prompt), "nectar", ORIGIN)
    assert isinstance(row, AnchorRow)
    assert row.turns == ("Hi there", "Hello!", "Why?\n\nIn detail.")
    assert row.user_turns == ("Hi there", "Why?\n\nIn detail.")
    assert row.prompt == "Human: Hi there\n\nAssistant: Hello!\n\nHuman: Why?\n\nIn detail."


def test_nectar_equal_ranks_are_one_tier() -> None:
    answers = [("c", 2.0), ("a", 1.0), ("d", 2.0), ("e", 5.0)]
    row = parse_row(nectar("\n\nHuman: Why?\n\nAssistant: ", *answers), "nectar", ORIGIN)
    assert isinstance(row, AnchorRow)
    assert (row.responses, row.tiers) == (("a", "c", "d", "e"), (1, 2, 1))


def test_row_without_an_id_has_one_that_follows_from_its_content() -> None:
    value = nectar("\n\nHuman: Why?\n\nAssistant: ", ("a", 1), ("b", 2))
    again = nectar("\n\nHuman: Why?\n\nAssistant: ", ("b", 2), ("a", 1))
    first, second = (parse_row(one, "nectar", ORIGIN) for one in (value, again))
    assert isinstance(first, AnchorRow)
    assert first == second


def test_plain_row_ranking_and_tiers_give_best_first() -> None:
    row = parse_row(plain(ranking=[2, 0, 1], tiers=[[2], [1, 0]]), "plain", ORIGIN)
    assert isinstance(row, AnchorRow)
    assert (row.responses, row.tiers) == (("c", "a", "b"), (1, 2))


def test_plain_row_pure_tie_is_one_tier() -> None:
    row = parse_row(plain(ranking=None, tiers=[[0, 1, 2]]), "plain", ORIGIN)
    assert isinstance(row, AnchorRow)
    assert row.tiers == (3,)


BAD_PLAIN = [
    ([1, 2], RowFault.NOT_AN_OBJECT),
    (plain(prompt=None), RowFault.NO_PROMPT),
    (plain(prompt=["x"], ranking=[0, 1, 2]), RowFault.NO_PROMPT),
    (plain(prompt=" \n", ranking=[0, 1, 2]), RowFault.EMPTY_PROMPT),
    (plain(turns=["a", "b"], ranking=[0, 1, 2]), RowFault.NOT_A_CONVERSATION),
    (plain(responses=["a"], ranking=[0]), RowFault.NO_RESPONSES),
    (plain(responses="abc", ranking=[0, 1, 2]), RowFault.NO_RESPONSES),
    (plain(responses=["a", None, "c"], ranking=[0, 1, 2]), RowFault.RESPONSE_NOT_TEXT),
    (plain(), RowFault.NO_RANK),
    (plain(ranking=[0, 1]), RowFault.NOT_A_PERMUTATION),
    (plain(ranking=[0, 1, 1]), RowFault.NOT_A_PERMUTATION),
    (plain(ranking=[1, 2, 3]), RowFault.NOT_A_PERMUTATION),
    (plain(ranking=[False, True, 2]), RowFault.NOT_A_PERMUTATION),
    (plain(tiers=[[0, 1], []]), RowFault.NOT_A_PERMUTATION),
    (plain(tiers=[0, 1, 2]), RowFault.NOT_A_PERMUTATION),
    (plain(ranking=[0, 1, 2], tiers=[[1], [0, 2]]), RowFault.TIERS_DISAGREE),
    (plain(prompt="half \ud83d", ranking=[0, 1, 2]), RowFault.LONE_SURROGATE),
]
ASKED = "\n\nHuman: Why?\n\nAssistant: "
BAD_NECTAR = [
    (nectar(None), RowFault.NO_PROMPT),
    (nectar("  "), RowFault.EMPTY_PROMPT),
    (nectar("Why?"), RowFault.NOT_A_CONVERSATION),
    (nectar("\n\nHuman: Why?"), RowFault.NOT_A_CONVERSATION),
    (nectar("\n\nHuman: Why?\n\nAssistant: Because"), RowFault.NOT_A_CONVERSATION),
    (nectar("\n\nAssistant: Hi\n\nHuman: Why?"), RowFault.NOT_A_CONVERSATION),
    (nectar("\n\nHuman: a\n\nHuman: b\n\nAssistant: "), RowFault.NOT_A_CONVERSATION),
    (nectar("System.\n\nHuman: Why?\n\nAssistant: "), RowFault.NOT_A_CONVERSATION),
    (nectar("\n\nHuman: \n\nAssistant: "), RowFault.EMPTY_PROMPT),
    (nectar(ASKED, ("a", 1)), RowFault.NO_RESPONSES),
    (nectar(ASKED, (None, 1), ("b", 2)), RowFault.RESPONSE_NOT_TEXT),
    (nectar(ASKED, ("a", None), ("b", 2)), RowFault.NO_RANK),
    (nectar(ASKED, ("a", "1"), ("b", 2)), RowFault.RANK_NOT_A_NUMBER),
    (nectar(ASKED, ("a", float("nan")), ("b", 2)), RowFault.RANK_NOT_A_NUMBER),
    (nectar(ASKED, ("a", True), ("b", 2)), RowFault.RANK_NOT_A_NUMBER),
    ({"prompt": ASKED, "answers": [1, 2]}, RowFault.RESPONSE_NOT_TEXT),
]


@pytest.mark.parametrize(("value", "fault"), BAD_PLAIN)
def test_plain_row_that_is_none_has_a_named_fault(value: object, fault: RowFault) -> None:
    assert parse_row(value, "plain", ORIGIN) is fault


@pytest.mark.parametrize(("value", "fault"), BAD_NECTAR)
def test_nectar_row_that_is_none_has_a_named_fault(value: object, fault: RowFault) -> None:
    assert parse_row(value, "nectar", ORIGIN) is fault


def test_every_fault_of_a_row_has_a_test() -> None:
    of_lines = {RowFault.NOT_UTF8, RowFault.NOT_JSON}
    assert {fault for _, fault in BAD_PLAIN + BAD_NECTAR} | of_lines == set(RowFault)


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        (["prompt", "answers"], "nectar"),
        (["prompt", "responses", "ranking"], "plain"),
        (["turns", "responses"], "plain"),
        (["prompt"], None),
        (["text"], None),
    ],
)
def test_format_follows_from_the_fields(fields: list[str], shape: str | None) -> None:
    assert format_of(dict.fromkeys(fields)) == shape


def test_texts_of_benchmark_rows_of_other_shapes() -> None:
    asked = parse_texts({"question": "2+2?", "answer": "4"}, 7, ORIGIN)
    assert asked == TextRow("7", ("2+2?",), ("4",))
    turns = parse_texts({"id": "m", "prompt": "a", "turns": ["a", "b"]}, 1, ORIGIN)
    assert turns == TextRow("m", ("a", "b"), ())
    unranked = parse_texts(plain(), 1, ORIGIN)
    assert unranked == TextRow("1", ("Why?",), ("a", "b", "c"))
    assert parse_texts({"text": "x"}, 1, ORIGIN) is RowFault.NO_PROMPT
