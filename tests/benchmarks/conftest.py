"""Scorers whose figures theory knows, and items made up for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.benchmarks.loaders import Loaded
from dynamicrubric.benchmarks.run import Task
from dynamicrubric.benchmarks.schema import BenchItem
from dynamicrubric.evaluators.base import Cost, ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.types import Score

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


class Scorer:
    """Scores each set by a function of (set, seed); counts what it was asked."""

    def __init__(
        self,
        name: str,
        score: Callable[[ResponseSet, int], Sequence[float | None]],
        sees_set: bool = False,
    ) -> None:
        self.name = name
        self.sees_set = sees_set
        self._score = score
        self.asked: list[ResponseSet] = []

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        self.asked += sets
        found = []
        for one, seed in zip(sets, seeds, strict=True):
            values = self._score(one, seed)
            scores = [Score.unscored("refusal") if v is None else Score.of(v) for v in values]
            found.append(ScoredSet(tuple(scores), cost=Cost(calls=1, prompt_tokens=10)))
        return found


def make_item(number: int, tiers: Sequence[int] = (0, 1), **changed: Any) -> BenchItem:
    """Return an item whose responses say how good they are, of lengths that say nothing."""
    responses = tuple(
        f"quality {max(tiers) - tier} of {number}, {place} " + "x" * ((number * 7 + place * 5) % 11)
        for place, tier in enumerate(tiers)
    )
    known: dict[str, Any] = {
        "dataset": "made", "id": f"i{number}", "subset": "all", "prompt": f"Prompt {number}?",
        "responses": responses, "tiers": tuple(tiers), "prompt_id": f"p{number}",
    }  # fmt: skip
    return BenchItem(**{**known, **changed})


@pytest.fixture
def items() -> Callable[..., list[BenchItem]]:
    def make(count: int, tiers: Sequence[int] = (0, 1), **changed: Any) -> list[BenchItem]:
        return [make_item(number, tiers, **changed) for number in range(count)]

    return make


@pytest.fixture
def scorer() -> type[Scorer]:
    return Scorer


@pytest.fixture
def task_for() -> Callable[..., Task]:
    """Return a function that makes a task of scorers over items."""

    def make(
        scorers: Sequence[Scorer], items: Sequence[BenchItem], seeds: Sequence[int] = (1,)
    ) -> Task:
        by_name = {one.name: one for one in scorers}

        @contextmanager
        def open_one(seed: int, name: str) -> Iterator[Scorer]:
            yield by_name[name]

        loaded = Loaded("made", tuple(items), (), len(items))
        data = dict.fromkeys(seeds, (loaded,))
        return Task({"test": True}, seeds, list(by_name), data, open_one, 4)

    return make


@pytest.fixture
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the public data are not here: ../shared/data")
    return SHARED
