"""The world "language" without models: criteria, rubrics of the warm start, prepared data."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dynamicrubric.errors import UserError
from dynamicrubric.rubrics import parse_rubric, render_rubric
from dynamicrubric.types import Rubric
from dynamicrubric.worlds.base import BASE_FOLDER, WORLD_FILE, base_of, world_of
from dynamicrubric.worlds.language.criteria import BANK, PAIRS, check
from dynamicrubric.worlds.language.rubric_prior import prior_rubric

TEXTS = (
    "Sure! For example, take 7 apples because they keep well.",
    "I am sorry, but I do not know. Could you say more?",
    "# Apples\n\n- red ones\n- green ones\n\nIn summary, 12 of them.",
    "",
)


@pytest.mark.parametrize("text", TEXTS)
def test_text_meets_exactly_one_of_each_pair_that_a_program_can_read(text: str) -> None:
    for asked, opposite, judge in PAIRS:
        found = (check(asked, text), check(opposite, text))
        assert found == (None, None) if judge is None else found in ((True, False), (False, True))


def test_criteria_of_the_bank_are_distinct_and_each_checked_one_tells_the_texts_apart() -> None:
    assert len(set(BANK)) == len(BANK) == 2 * len(PAIRS)
    told = {a for a, _, judge in PAIRS if judge and len({check(a, text) for text in TEXTS}) == 2}
    assert {"gives a number", "asks a question", "uses a bullet list", "apologises"} <= told


def test_warm_starts_rubrics_are_valid_and_have_no_direction() -> None:
    rng = np.random.default_rng(0)
    rubrics = [prior_rubric("Name an apple", TEXTS[:3], (2, 4), rng) for _ in range(1500)]
    for rubric in rubrics[:50]:
        text = render_rubric(rubric)
        assert parse_rubric(text, min_items=2, max_items=4, finish_reason="stop") == rubric
    counts = Counter(item.criterion for rubric in rubrics for item in rubric.items)
    sides = [sum(counts[pair[side]] for pair in PAIRS) for side in (0, 1)]
    assert 0.47 < sides[0] / sum(sides) < 0.53
    # Chi-squared of every pair's fair coin: its mean is one a pair, its deviation the root of two.
    spread = [(counts[a] - counts[b]) ** 2 / (counts[a] + counts[b]) for a, b, _ in PAIRS]
    assert sum(spread) < len(PAIRS) + 4 * (2 * len(PAIRS)) ** 0.5


def test_about_half_of_the_items_discriminate_on_the_set() -> None:
    rng = np.random.default_rng(1)

    def share(responses: tuple[str, ...]) -> float:
        rubrics = [prior_rubric("Name an apple", responses, (3, 3), rng) for _ in range(200)]
        told = [
            len({check(item.criterion, text) for text in TEXTS[:3]} - {None}) == 2
            for rubric in rubrics
            for item in rubric.items
        ]
        return sum(told) / len(told)

    assert share(TEXTS[:3]) > share(()) + 0.1


def test_rubrics_have_as_many_items_as_asked_for_on_an_empty_prompt() -> None:
    rubric = prior_rubric("", (), (4, 4), np.random.default_rng(2))
    assert isinstance(rubric, Rubric)
    assert len(rubric.items) == 4


def test_world_of_a_prepared_folder_is_what_its_file_says(tmp_path: Path) -> None:
    assert world_of(tmp_path).name == "postcards"
    assert base_of(tmp_path) is None
    facts = {"name": "language", "dtype": "bfloat16", "checkpoint": "somewhere"}
    (tmp_path / WORLD_FILE).write_text(json.dumps(facts), encoding="utf-8")
    assert world_of(tmp_path).name == "language"
    assert world_of(tmp_path).true_quality("any", "text") is None
    base = base_of(tmp_path)
    assert base is not None
    assert (base.folder, base.dtype) == (tmp_path / BASE_FOLDER, "bfloat16")


@pytest.mark.parametrize("text", ["", "[]", '{"name": "mars"}', "{}"])
def test_broken_world_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / WORLD_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(UserError):
        world_of(tmp_path)
