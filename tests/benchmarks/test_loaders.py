"""Rows become items, or refusals that name line and field; the rest of the file is scored."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.benchmarks.catalog import CATALOG
from dynamicrubric.benchmarks.loaders import load_dataset, read_rows
from dynamicrubric.errors import UserError

GOOD = {"id": "a", "prompt": "Name a fruit.", "responses": ["Stone.", "An apple."],
        "ranking": [1, 0], "subset": "s"}  # fmt: skip
BAD: dict[str, tuple[Any, str, str]] = {
    "one response": ({**GOOD, "responses": ["x"]}, "responses", "one_response"),
    "no response": ({**GOOD, "responses": []}, "responses", "no_responses"),
    "responses of another type": ({**GOOD, "responses": "x"}, "responses", "not_a_list"),
    "response no text": ({**GOOD, "responses": ["x", 3]}, "responses[1]", "response_not_text"),
    "no prompt": ({k: v for k, v in GOOD.items() if k != "prompt"}, "prompt", "missing_prompt"),
    "prompt no text": ({**GOOD, "prompt": 7}, "prompt", "no_prompt"),
    "empty prompt": ({**GOOD, "prompt": " "}, "prompt", "empty_prompt"),
    "no order": ({k: v for k, v in GOOD.items() if k != "ranking"}, "ranking", "missing_ranking"),
    "place twice": ({**GOOD, "ranking": [0, 0]}, "ranking", "place_twice"),
    "place missing": ({**GOOD, "ranking": [1]}, "ranking", "place_missing"),
    "place unknown": ({**GOOD, "ranking": [0, 1, 2]}, "ranking", "unknown_place"),
    "ranking no places": ({**GOOD, "ranking": ["a", "b"]}, "ranking", "order_not_places"),
    "tiers disagree": ({**GOOD, "tiers": [[0], [1]]}, "tiers", "tiers_disagree"),
    "tiers twice": ({**GOOD, "ranking": None, "tiers": [[0], [0, 1]]}, "tiers", "place_twice"),
    "id of another type": ({**GOOD, "id": [1]}, "id", "id_not_text"),
    "subset of another type": ({**GOOD, "subset": 3}, "subset", "not_text"),
    "half a character in the subset": ({**GOOD, "subset": "a\ud800"}, "subset", "lone_surrogate"),
    "ranking of lists": ({**GOOD, "ranking": [[1], [0]]}, "ranking", "order_not_places"),
    "half a character": ({**GOOD, "responses": ["a\ud800", "b"]}, "responses", "lone_surrogate"),
    "a list": ([1, 2], "", "not_an_object"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_row_is_refused_with_line_and_field_and_the_others_are_items(
    name: str, tmp_path: Path
) -> None:
    value, field, reason = BAD[name]
    path = tmp_path / "own.jsonl"
    other = {**GOOD, "id": "other"}
    path.write_text("".join(json.dumps(row) + "\n" for row in (value, other)))
    loaded = load_dataset("own", str(path))
    assert [item.id for item in loaded.items] == ["other"]
    assert loaded.rows == 2
    (refusal,) = loaded.refusals
    assert (refusal.place, refusal.field, refusal.reason) == ("line 1", field, reason)
    assert refusal.got


def test_refusal_shows_a_few_words_of_whatever_is_there() -> None:
    _, (refusal,) = read_rows("own", [("line 1", {**GOOD, "ranking": [10**400, 0]})], "plain")
    assert refusal.reason == "unknown_place"
    assert len(refusal.got) <= 120


def test_invalid_utf8_and_no_json_are_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_bytes(b'{"prompt": "\xff"}\n{"a": \n' + json.dumps(GOOD).encode() + b"\n")
    loaded = load_dataset("own", str(path))
    assert [(r.place, r.reason) for r in loaded.refusals] == [
        ("line 1", "not_utf8"),
        ("line 2", "not_json"),
    ]
    assert len(loaded.items) == 1


def test_second_row_of_an_id_is_refused_and_names_the_first(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    rows = [GOOD, GOOD, {**GOOD, "prompt": "Name a stone."}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    loaded = load_dataset("own", str(path))
    assert [(r.place, r.field, r.reason) for r in loaded.refusals] == [
        ("line 2", "id", "duplicate_row"),
        ("line 3", "id", "duplicate_id"),
    ]
    assert "line 1" in loaded.refusals[0].got


def test_odd_texts_are_items_with_flags(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    rows = [
        {**GOOD, "id": "same", "responses": ["x", " x\n"]},
        {**GOOD, "id": "empty", "responses": ["", "x"]},
        {**GOOD, "id": "long", "responses": ["word " * 13_000, "x"]},
        {**GOOD, "id": "tie", "ranking": None, "tiers": [[0, 1]]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {item.id: item for item in load_dataset("own", str(path)).items}
    assert found["same"].is_identical
    assert {name: item.flags for name, item in found.items()} == {
        "same": ("identical_responses",),
        "empty": ("empty_response",),
        "long": ("long_response",),
        "tie": ("all_tied",),
    }
    assert found["long"].responses[1] == "word " * 13_000  # the worse one, uncut


def test_file_without_a_usable_row_is_a_user_error_that_names_the_first(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({**GOOD, "ranking": [0, 0]}) + "\n")
    with pytest.raises(UserError, match=r"line 1: ranking: place 0"):
        load_dataset("own", str(path))


def test_unknown_data_set_without_a_path_names_those_there_are() -> None:
    with pytest.raises(UserError, match=r"llmbar, autoj"):
        load_dataset("llm_bar", None)
    with pytest.raises(UserError, match="GAIR-NLP/auto-j"):
        load_dataset("autoj", None)


def test_limit_takes_the_same_items_whatever_the_order(tmp_path: Path) -> None:
    rows = [{**GOOD, "id": f"r{n}"} for n in range(30)]
    found = []
    for name, order in (("a", rows), ("b", rows[::-1])):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in order))
        found.append({item.id for item in load_dataset("own", str(path), 7).items})
    assert found[0] == found[1]
    assert len(found[0]) == 7


def test_rank_order_and_tiers_of_an_item_follow_the_file() -> None:
    row = {"id": "a", "prompt": "p", "responses": ["w", "x", "y", "z"], "tiers": [[2, 0], [3], [1]]}
    (item,), _ = read_rows("own", [("line 1", row)], "plain")
    by_tier = {t: {r for r, own in zip(item.responses, item.tiers, strict=True) if own == t}
               for t in range(3)}  # fmt: skip
    assert by_tier == {0: {"w", "y"}, 1: {"z"}, 2: {"x"}}


USER, REPLY = {"role": "user", "content": "Why?"}, {"role": "assistant", "content": "good"}
PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llmbar": (
        {"input": "Why?", "output_1": "bad", "output_2": "good", "label": 2},
        {"label": 3},
    ),
    "autoj": (
        {"prompt": "Why?", "response 1": "bad", "response 2": "good", "label": 1, "scenario": "s"},
        {"label": None},
    ),
    "pandalm": (
        {"idx": 4, "instruction": "Why?", "input": "", "response1": "bad", "response2": "good",
         "annotator1": 2, "annotator2": 0, "annotator3": 2, "cmp_key": "a_b"},
        {"annotator3": "x"},
    ),
    "mt_bench_human": (
        {"conversation_a": [USER, {**REPLY, "content": "bad"}], "conversation_b": [USER, REPLY],
         "winner": "model_b", "turn": 1},
        {"turn": 2},
    ),
    "hhh": (
        {"input": "Why?", "targets": {"choices": ["good", "bad"], "labels": [1, 0]}},
        {"targets": {"choices": ["good", "bad"], "labels": [1, 1]}},
    ),
    "rm_bench": (
        {"id": 3, "prompt": "Why?", "chosen": ["good"], "rejected": ["bad", "worse"],
         "domain": "chat"},
        {"chosen": [1]},
    ),
    "judgebench": (
        {"pair_id": "u", "question": "Why?", "response_A": "bad", "response_B": "good",
         "label": "B>A", "source": "mmlu"},
        {"label": "B<A"},
    ),
    "rewardbench": (
        {"id": 1, "prompt": "Why?", "chosen": "good", "rejected": "bad", "subset": "xstest"},
        {"rejected": None},
    ),
    "rewardbench2": (
        {"id": "1", "prompt": "Why?", "chosen": ["good"], "rejected": ["bad"], "subset": "Ties"},
        {"prompt": None},
    ),
    "ppe": (
        {"question_id": "q", "prompt": "Why?", "response_1": "bad", "response_2": "good",
         "winner": "model_b", "language": "English"},
        {"winner": "nobody"},
    ),
    "ultrafeedback": (
        {"prompt_id": "p", "prompt": "Why?", "chosen": [USER, REPLY],
         "rejected": [USER, {**REPLY, "content": "bad"}], "score_chosen": 8, "score_rejected": 3},
        {"chosen": []},
    ),
    "personalized_rewardbench": (
        {"id": "1", "question": "Why?", "chosen": "good", "rejected": "bad"},
        {"question": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CATALOG)
def test_published_row_is_read_and_one_with_a_wrong_field_is_refused(name: str) -> None:
    row, wrong = PUBLISHED[name]
    shape = CATALOG[name].shape
    items, refusals = read_rows(name, [("row 1", row), ("row 2", {**row, **wrong})], shape)
    assert [item.prompt for item in items] == ["Why?"]
    assert items[0].responses[0] == "good"
    assert items[0].tiers[0] < items[0].tiers[1]
    (refusal,) = refusals
    assert refusal.place == "row 2"
    changed = next(iter(wrong))
    assert refusal.field.startswith(changed) or (changed, refusal.field) == (
        "turn", "conversation_a",
    )  # fmt: skip


def test_labels_written_as_text_mark_the_same_choice() -> None:
    row = {"input": "Why?", "targets": {"choices": ["good", "bad"], "labels": ["1", "0"]}}
    (item,), _ = read_rows("hhh", [("row 1", row)], "hhh")
    assert item.responses[0] == "good"


@pytest.mark.parametrize(
    ("given", "subset"), [("all", "all (subset)"), ("macro", "macro (subset)"), (None, "unnamed")]
)
def test_subset_is_never_called_as_all_of_them_together_are(given: str | None, subset: str) -> None:
    (item,), _ = read_rows("own", [("line 1", {**GOOD, "subset": given})], "plain")
    assert item.subset == subset


def test_votes_without_a_majority_and_equal_scores_are_ties() -> None:
    row = {**PUBLISHED["pandalm"][0], "annotator1": 1, "annotator2": 0, "annotator3": 2}
    (item,), _ = read_rows("pandalm", [("row 1", row)], "pandalm")
    assert item.tiers == (0, 0)
    row = {**PUBLISHED["ultrafeedback"][0], "score_chosen": 3}
    (item,), _ = read_rows("ultrafeedback", [("row 1", row)], "messages")
    assert item.tiers == (0, 0)


def test_public_files_are_read_whole(shared_data: Path) -> None:
    files = {
        "llmbar": ("pairs/llmbar.jsonl", 100), "autoj": ("pairs/autoj_pairwise.jsonl", 600),
        "pandalm": ("pairs/pandalm.jsonl", 400), "hhh": ("pairs/hhh_alignment.jsonl", 171),
        "rm_bench": ("listwise/rm_bench.jsonl", 364), "awkward": ("awkward.jsonl", 14),
    }  # fmt: skip
    for name, (path, rows) in files.items():
        loaded = load_dataset(name, str(shared_data / path))
        assert (len(loaded.items), loaded.refusals) == (rows, ())
    flags = Counter(flag for item in loaded.items for flag in item.flags)
    assert flags["identical_responses"] == 2
    assert flags["empty_response"] == 2
    assert flags["long_response"] == 1
