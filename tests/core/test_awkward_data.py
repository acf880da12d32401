"""Real rows that break parsers and scorers, through the two parse boundaries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamicrubric.rubrics import parse_rubric, render_rubric
from dynamicrubric.types import InvalidReason, InvalidRubric, Item, Rubric
from dynamicrubric.verdicts import LANGUAGES, read_verdict_text

AWKWARD = Path(__file__).parents[2].parent / "shared" / "data" / "awkward.jsonl"


@pytest.fixture(scope="module")
def texts() -> list[str]:
    if not AWKWARD.is_file():
        pytest.skip("the public data are not here: ../shared/data/awkward.jsonl")
    rows = [json.loads(line) for line in AWKWARD.read_text(encoding="utf-8").splitlines()]
    return [text for row in rows for text in (row["prompt"], *row["responses"])]


def test_parse_rubric_awkward_text_is_invalid_and_never_a_rubric(texts: list[str]) -> None:
    results = [parse_rubric(text, max_items=8) for text in texts]
    assert all(isinstance(result, InvalidRubric) for result in results)


def test_parse_rubric_awkward_text_as_criterion_round_trips_or_is_named(texts: list[str]) -> None:
    refused = {InvalidReason.BAD_CHARACTER, InvalidReason.EMPTY_CRITERION}
    for text in texts:
        rubric = Rubric((Item(text, 3),))
        result = parse_rubric(render_rubric(rubric), max_items=1, max_criterion_chars=100_000)
        assert result == rubric or (isinstance(result, InvalidRubric) and result.reason in refused)


def test_read_verdict_awkward_text_is_never_decided(texts: list[str]) -> None:
    for text in texts:
        verdict = read_verdict_text(text, finish_reason="stop", languages=tuple(LANGUAGES))
        assert not verdict.is_scored, text[:80]
