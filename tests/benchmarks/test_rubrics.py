"""Two generators' rubrics compared: judges whose answers are known, and the world's own truth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.benchmarks.rubricfigures import dimension_table, dimensions_of
from dynamicrubric.benchmarks.rubricjudge import dimensions, judge_pairs, judged_text
from dynamicrubric.benchmarks.rubrics import Pair, by_judge, compare_pairs, in_world
from dynamicrubric.benchmarks.worlddimensions import WORLD_DIMENSIONS, world_dimensions
from dynamicrubric.engines.base import JudgeRequest
from dynamicrubric.errors import UserError
from dynamicrubric.types import Verdict
from dynamicrubric.worlds.postcards.criteria import criteria_for, true_quality
from dynamicrubric.worlds.postcards.prompts import all_prompts

LONG = (("says thank you to the reader of it", 3), ("greets the reader", 1))
SHORT = (("greets", 2),)


class Judge:
    """Answers every question by a function of what it reads; counts its calls."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.requests: list[JudgeRequest] = []

    def accepts(self, criterion: str) -> bool:
        return True

    def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        self.requests += requests
        return [[self.answer(one) for _ in one.criteria] for one in requests]


def prefers_longer(request: JudgeRequest) -> Verdict:
    first, second = request.response.split("Rubric A:\n")[1].split("\n\nRubric B:\n")
    return Verdict.yes() if len(first) > len(second) else Verdict.no()


@pytest.mark.parametrize(
    ("answer", "outcome", "win_rate", "flips"),
    [
        (prefers_longer, "win", 1.0, 0.0),
        (lambda _: Verdict.yes(), "inconsistent", 0.5, 1.0),
        (lambda _: Verdict.no(), "inconsistent", 0.5, 1.0),
        (lambda _: Verdict.unscored("refusal"), "unscored", None, None),
    ],
)
def test_judge_is_asked_in_both_orders(
    items: Any, answer: Any, outcome: str, win_rate: float | None, flips: float | None
) -> None:
    judge = Judge(answer)
    pairs = [Pair(1, item, (LONG, SHORT)) for item in items(25)]
    found = by_judge(judge)(pairs)
    assert len(judge.requests) == 50
    figures = dimensions_of(found, list(dimensions()))
    assert [one.name for one in figures] == list(dimensions())
    for one in figures:
        assert dict(one.outcomes) == {outcome: 25}
        assert one.win_rate == win_rate
        assert one.flip_rate == flips
    table = dimension_table(figures, ("first", "second"))
    assert len(table.lines) == 6


def test_six_dimensions_of_the_paper_have_a_sentence_each() -> None:
    assert list(dimensions()) == [
        "task_alignment", "local_discrimination", "response_awareness", "specificity",
        "weighting", "overall",
    ]  # fmt: skip
    assert all("rubric A" in sentence or "Rubric A" in sentence
               for sentence in dimensions().values())  # fmt: skip


def test_judge_reads_texts_with_braces_as_they_are_and_no_gold_order(items: Any) -> None:
    (item,) = items(1, responses=("{second} best", "worst {responses}"))
    text = judged_text(item, 1, (("is {first}", 2),), SHORT)
    assert "{second} best" in text
    assert "is {first} (weight 2)" in text
    firsts = [
        judged_text(one, 1, LONG, SHORT).index("quality 1") <
        judged_text(one, 1, LONG, SHORT).index("quality 0")
        for one in items(60)
    ]  # fmt: skip
    assert 15 < sum(firsts) < 45


def test_invalid_rubric_is_unscored_and_counted(items: Any, tmp_path: Path) -> None:
    pairs = [Pair(1, item, (None if n % 3 else LONG, SHORT)) for n, item in enumerate(items(9))]
    found = compare_pairs(pairs, by_judge(Judge(prefers_longer)), 4, tmp_path / "c.jsonl")
    assert [one.reason for one in found].count("invalid_rubric") == 6
    (figures,) = dimensions_of(found, ["overall"])
    assert dict(figures.outcomes) == {"win": 3, "unscored": 6}
    assert figures.win_rate == 1.0


@pytest.mark.parametrize("cut", [0, 10, 333, 10_000])
def test_comparison_goes_on_where_it_was_cut(items: Any, tmp_path: Path, cut: int) -> None:
    pairs = [Pair(1, item, (LONG, SHORT)) for item in items(10)]
    path = tmp_path / "compared.jsonl"
    compare_pairs(pairs, by_judge(Judge(prefers_longer)), 4, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    compare_pairs(pairs, by_judge(Judge(prefers_longer)), 4, path)
    assert path.read_bytes() == whole
    with pytest.raises(UserError, match="other pairs"):
        compare_pairs(pairs[::-1], by_judge(Judge(prefers_longer)), 4, path)


@pytest.fixture
def postcard_item(items: Any) -> Any:
    """An item of the world whose responses differ in a greeting, thanks, and nothing else."""
    prompt = all_prompts()[0]
    texts = ("Dear you, thank you.", "Dear you.", "you.")
    quality = tuple(true_quality(prompt, text) for text in texts)
    assert sorted(quality, reverse=True) == list(quality)
    (item,) = items(1, (0, 1, 2), responses=texts, prompt_id=prompt.id, quality=quality)
    return item


def test_world_dimensions_of_rubrics_that_are_known(postcard_item: Any) -> None:
    right = world_dimensions((("greets the reader", 2), ("says thank you", 2)), postcard_item)
    # Each splits the three responses 2:1 or 1:2, and always the right way.
    assert right["task_alignment"] == right["direction"] == right["response_awareness"] == 1.0
    assert right["local_discrimination"] == pytest.approx(4 * 2 / 9)
    assert right["overall"] == pytest.approx(2 / 3)
    assert right["weighting"] == 0.0
    assert right["specificity"] is None
    wrong = world_dimensions((("gives no greeting", 2), ("gives no thanks", 2)), postcard_item)
    assert wrong["task_alignment"] == wrong["direction"] == 0.0
    assert wrong["local_discrimination"] == right["local_discrimination"]
    assert wrong["overall"] == pytest.approx(-2 / 3)
    blind = world_dimensions((("names a colour", 1), ("shouts in capitals", 3)), postcard_item)
    assert blind["response_awareness"] == blind["overall"] == 0.0
    assert blind["task_alignment"] == 0.25
    assert blind["direction"] is None
    mixed = world_dimensions((("greets the reader", 5), ("gives no thanks", 1)), postcard_item)
    assert mixed["weighting"] == pytest.approx((5 - 1) / 6 * 2 / 3)


def test_good_criteria_beat_bad_ones_in_the_world_with_an_interval(
    postcard_item: Any,
) -> None:
    prompts = all_prompts()[:25]
    pairs = []
    for prompt in prompts:
        item = postcard_item.__class__(
            **{name: getattr(postcard_item, name) for name in postcard_item.__dataclass_fields__}
            | {"prompt_id": prompt.id, "id": prompt.id}
        )
        good = [c.criterion for c in criteria_for(prompt) if c.worth > 0]
        assert "greets the reader" in good
        pairs.append(Pair(1, item, ((("greets the reader", 1),), (("gives no greeting", 1),))))
    figures = {one.name: one for one in dimensions_of(in_world(pairs), list(WORLD_DIMENSIONS))}
    assert figures["overall"].win_rate == 1.0
    assert figures["overall"].means[0] == -figures["overall"].means[1]
    assert figures["local_discrimination"].outcomes == {"tie": 25}
    assert figures["specificity"].outcomes == {"unscored": 25}
    assert figures["direction"].difference == 1.0
    assert figures["overall"].flip_rate is None  # nobody judged
    json.dumps([one.outcomes for one in figures.values()])


def test_one_rubric_compared_with_itself_ties_without_a_call(items: Any) -> None:
    judge = Judge(lambda _: Verdict.yes())
    rubrics = [(LONG, SHORT), (LONG, LONG), (SHORT, LONG)]
    pairs = [Pair(1, item, own) for item, own in zip(items(3), rubrics, strict=True)]
    found = by_judge(judge)(pairs)
    assert [one.outcomes["overall"] for one in found] == ["inconsistent", "tie", "inconsistent"]
    assert len(judge.requests) == 4
    assert dimensions_of(found, ["overall"])[0].flip_rate == pytest.approx(2 / 3)


def test_judging_nothing_asks_nobody() -> None:
    judge = Judge(prefers_longer)
    assert judge_pairs(judge, [], 1) == []
    assert judge.requests == []
