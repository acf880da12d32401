"""What overlaps a benchmark, what does not, and in which way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dynamicrubric.data.contamination import Benchmarks, OverlapKind
from dynamicrubric.data.formats import TextRow
from dynamicrubric.data.grams import GramIndex, gram_hashes
from dynamicrubric.data.report import check_contamination
from dynamicrubric.data.settings import ContaminationSettings, DataSettings

LONG = (
    "Write a short letter to the owner of the small bakery at the corner and thank her for the "
    "cake that she made for the wedding of your sister last week."
)
ARTICLE = " ".join(f"Line {n} tells of a town called {n * 7} and of its river." for n in range(30))
ANSWER = " ".join(f"the {n}th stone lies beside the {n + 1}th" for n in range(12))


def text_row(*prompts: str, responses: tuple[str, ...] = ()) -> TextRow:
    return TextRow("t", prompts, responses)


def kinds(benchmark: TextRow, training: TextRow, **settings: Any) -> list[OverlapKind]:
    index = Benchmarks([("bench", benchmark)], ContaminationSettings(**settings))
    return [overlap.kind for overlap in index.overlaps(training)]


@pytest.mark.parametrize(
    ("benchmark", "training", "kind"),
    [
        ("Why is grass green?", " WHY is grass\n\ngreen", OverlapKind.PROMPT_EQUAL),
        (LONG, f"**{LONG.upper()}**", OverlapKind.PROMPT_EQUAL),
        ("Rhyme.\n\nInput: moon", "### Instruction:\nRhyme.\n\nmoon", OverlapKind.PROMPT_EQUAL),
        ("Why is the sky blue?", "why the sky is blue?", OverlapKind.PROMPT_REORDERED),
        (
            "Why is grass green?",
            "You are a kind botanist. Answer in verse.\nWhy is grass green?",
            OverlapKind.PROMPT_SENTENCE,
        ),
        (LONG, f"You are a helpful assistant.\n\n{LONG}", OverlapKind.PROMPT_NGRAMS),
        (LONG, LONG.replace("short", "long").replace("sister", "aunt"), OverlapKind.PROMPT_NGRAMS),
        (f"{ARTICLE} {LONG}", LONG, OverlapKind.PROMPT_INSIDE),
    ],
)
def test_prompt_that_is_a_benchmarks_is_found(
    benchmark: str, training: str, kind: OverlapKind
) -> None:
    assert kinds(text_row(benchmark), text_row(training)) == [kind]


@pytest.mark.parametrize(
    ("benchmark", "training"),
    [
        ("Why is grass green?", "Why is grass green in spring, and brown when August comes?"),
        ("Why?", "Tell me a story. Why?"),
        (LONG, "Write a short letter to the owner of the zoo about a lion that you saw there."),
        (f"{ARTICLE} {LONG}", "Write a short letter to the owner of the small zoo, please."),
        ("What is 3 - 2?", "What is 3 + 2?"),
    ],
)
def test_prompt_that_is_another_is_not_found(benchmark: str, training: str) -> None:
    assert kinds(text_row(benchmark), text_row(training)) == []


def test_any_turn_of_a_conversation_is_compared_but_not_a_bare_word() -> None:
    training = text_row(f"Human: Hi\n\nHuman: {LONG}", "Go on", LONG)
    assert kinds(text_row(LONG), training) == [OverlapKind.PROMPT_EQUAL]
    assert kinds(text_row("Go on"), training) == []
    assert kinds(text_row("Some first question of four turns", "Go on"), training) == []


def test_responses_are_compared_when_they_are_long_enough() -> None:
    benchmark = text_row("Which stone lies where?", responses=(ANSWER, "Yes, of course."))
    near = ANSWER.replace("the 3th stone", "one more stone")
    for response, expected in [
        (ANSWER.upper(), [OverlapKind.RESPONSE_EQUAL]),
        (near, [OverlapKind.RESPONSE_NGRAMS]),
        ("Yes, of course.", []),
        (ARTICLE, []),
    ]:
        training = text_row("Something else that nobody asks?", responses=(response,))
        assert kinds(benchmark, training) == expected
        assert kinds(benchmark, training, responses=False) == []


def test_phrase_of_many_benchmark_prompts_is_no_evidence() -> None:
    phrase = "Please explain your whole reasoning to the reader step by step before you answer."
    asked = ["How many grains of salt?", "How tall is that tower?", "Who won?", "When was it?"]
    rows = [("b", text_row(f"{question} {phrase}")) for question in asked]
    new = text_row(f"How deep is the lake? {phrase}")
    few = Benchmarks(rows, ContaminationSettings(max_prompts_of_phrase=4))
    assert {found.kind for found in few.overlaps(new)} == {OverlapKind.PROMPT_NGRAMS}
    many = Benchmarks(rows, ContaminationSettings(max_prompts_of_phrase=3))
    assert many.overlaps(new) == []
    again = text_row(f"who won? {phrase}")
    assert [found.kind for found in many.overlaps(again)] == [OverlapKind.PROMPT_EQUAL]


def test_prompt_in_many_rows_of_a_benchmark_is_no_phrase() -> None:
    rows = [("b", TextRow(str(n), (LONG,), ())) for n in range(9)]
    found = Benchmarks(rows, ContaminationSettings()).overlaps(text_row(f"Hello. {LONG}"))
    assert [overlap.row.id for overlap in found] == [str(n) for n in range(9)]


def test_shares_of_an_index_agree_with_counting_words_by_hand() -> None:
    rng = np.random.default_rng(7)
    for _ in range(40):
        documents = [[str(w) for w in rng.integers(0, 6, size=rng.integers(0, 14))] for _ in "abc"]
        text = [str(word) for word in rng.integers(0, 6, size=12)]
        index = GramIndex(documents, [0, 1, 2], 3, max_groups=3)
        grams = {tuple(text[i : i + 3]) for i in range(len(text) - 2)}
        expected = {}
        for number, words in enumerate(documents):
            covered = {
                place + k
                for place in range(len(words) - 2)
                if tuple(words[place : place + 3]) in grams
                for k in range(3)
            }
            if covered:
                expected[number] = len(covered) / len(words)
        found = {shared.document: shared.of_document for shared in index.shared(text)}
        assert found == pytest.approx(expected)


def test_gram_hashes_tell_orders_apart() -> None:
    assert gram_hashes(["a", "b"], 2)[0] != gram_hashes(["b", "a"], 2)[0]
    assert gram_hashes(["a"], 2).size == 0


def test_report_counts_overlaps_repeats_and_contradictions(
    tmp_path: Path,
    write_jsonl: Callable[..., Path],
    anchor: Callable[..., dict[str, Any]],
    read_lines: Callable[[Path], list[Any]],
) -> None:
    bench = write_jsonl("bench.jsonl", [anchor(n, id=f"b{n}") for n in range(10)])
    swapped = anchor(30, id="swapped", ranking=[1, 3, 2, 0, 4, 6, 5])
    training = write_jsonl(
        "train.jsonl",
        [
            anchor(1, prompt=anchor(1)["prompt"].upper(), responses=list("abcdefg")),
            anchor(2, prompt=anchor(2)["prompt"].replace(" ", "\n "), responses=list("abcdefg")),
            *(anchor(n) for n in range(20, 31)),
            swapped,
            anchor(20),
        ],
    )
    report = check_contamination(
        [str(training)], [str(bench)], DataSettings(), out=tmp_path / "report"
    )
    assert report.sentence() == "2 of 15 training rows overlap a benchmark."
    assert report.table.kinds(str(training), str(bench)) == {OverlapKind.PROMPT_EQUAL: 2}
    assert report.table.num_touched(str(training), str(bench)) == 2
    assert dict(report.repeats[0].repeats) == {"duplicate_row": 1, "contradictory": 2}
    files = sorted(path.name for path in (tmp_path / "report").iterdir())
    assert files == ["overlaps.csv", "repeats.csv", "report.md", "table.csv"]
    lines = (tmp_path / "report" / "overlaps.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[1:5] for line in lines[1:]] == [
        ["row-1", "bench.jsonl", "b1", "prompt_equal"],
        ["row-2", "bench.jsonl", "b2", "prompt_equal"],
    ]


def test_report_of_public_anchors_finds_the_prompts_they_share(shared_data: Path) -> None:
    """An independent count: the prompts of AlpacaEval that both files hold letter by letter."""
    import json

    def prompts(path: Path) -> dict[str, str]:
        with path.open(encoding="utf-8") as stream:
            return {row["id"]: row["prompt"] for row in map(json.loads, stream)}

    training = shared_data / "anchors" / "tulu_bon.jsonl"
    bench = shared_data / "pairs" / "llmbar_processed.jsonl"
    there = set(prompts(bench).values())
    same = {name for name, prompt in prompts(training).items() if prompt in there}
    assert same
    settings = DataSettings(contamination=ContaminationSettings(responses=False))
    report = check_contamination([str(training)], [str(bench)], settings)
    assert report.table.total >= len(same)
