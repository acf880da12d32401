"""Runs evaluators over data sets: appends to scores.jsonl, and goes on where it was stopped.

Items are scored in chunks that hold all rows of a prompt, in one fixed order, and a chunk is
written whole or cut off at the next start. What a chunk is asked does not depend on what was done
before it in the same process, so a run that was killed ends with the bytes of one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dynamicrubric.benchmarks.loaders import Loaded
from dynamicrubric.benchmarks.runfiles import (
    SCORES_FILE,
    SECONDS_FILE,
    Chunk,
    Seconds,
    append,
    claim,
    only_one,
    resume,
)
from dynamicrubric.benchmarks.schema import BenchItem, Refusal, orders_of
from dynamicrubric.benchmarks.scored import ScoredItem, scored_item
from dynamicrubric.evaluators.base import Evaluator, ScoredSet
from dynamicrubric.seeds import derive_seed
from dynamicrubric.types import Score

FORMAT: Final = 2
"""Of what a line holds and how items are placed; another number makes older folders unreadable."""
IDENTICAL_SCORE: Final = 0.5
Open = Callable[[int, str], AbstractContextManager[Evaluator]]
"""(seed, evaluator's name) to an evaluator that is open inside a `with` statement."""


@dataclass(frozen=True)
class Task:
    """What a run does.

    Attributes:
        settings: what it depends on, as JSON values; part of its identity.
        seeds: in order.
        evaluators: names, in order.
        data: by seed, the data sets in order.
        open: opens an evaluator.
        chunk: items that are scored together.
    """

    settings: Mapping[str, Any]
    seeds: Sequence[int]
    evaluators: Sequence[str]
    data: Mapping[int, Sequence[Loaded]]
    open: Open
    chunk: int

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that the bytes of scores.jsonl depend on."""
        return {
            "format": FORMAT,
            "settings": dict(self.settings),
            "data": {
                str(seed): {one.name: one.identity for one in self.data[seed]}
                for seed in self.seeds
            },
        }

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """What was read, with the first seed."""
        return [loaded.summary for loaded in self.data[self.seeds[0]]]

    @property
    def refusals(self) -> list[Refusal]:
        """Rows that are no items, with all seeds."""
        return [one for seed in self.seeds for own in self.data[seed] for one in own.refusals]

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of the run, in order."""
        for seed in self.seeds:
            for evaluator in self.evaluators:
                for loaded in self.data[seed]:
                    for items in chunks_of(loaded.items, self.chunk):
                        yield Chunk(seed, evaluator, loaded.name, items)


@dataclass
class Progress:
    """Told of what is done; the default says nothing."""

    on_start: Callable[[int, int], None] = lambda done, total: None
    on_chunk: Callable[[Chunk], None] = lambda chunk: None


def chunks_of(items: Sequence[BenchItem], size: int) -> list[tuple[BenchItem, ...]]:
    """Return items in chunks of at least `size`, rows of one prompt together.

    Together, because a static evaluator writes a prompt's rubric once: neither its cost nor its
    rubric may depend on where a run was interrupted.
    """
    by_prompt: dict[str, list[BenchItem]] = {}
    for item in items:
        by_prompt.setdefault(item.prompt_id, []).append(item)
    found: list[tuple[BenchItem, ...]] = []
    group: list[BenchItem] = []
    for own in by_prompt.values():
        group += own
        if len(group) >= size:
            found.append(tuple(group))
            group = []
    return [*found, tuple(group)] if group else found


def run(task: Task, out: Path, progress: Progress | None = None) -> list[ScoredItem]:
    """Score everything that is not scored yet, and return all of it in order.

    Args:
        task: what is scored by whom.
        out: the run's folder; made if it is not there.
        progress: told of what is done.

    Raises:
        UserError: the folder is another run's.
        InstrumentError: an engine is broken; what is scored stays.
    """
    with only_one(out):
        return _run(task, out, progress or Progress())


def _run(task: Task, out: Path, told: Progress) -> list[ScoredItem]:
    claim(out, task.identity, task.refusals)
    chunks = list(task.chunks())
    done, num_chunks = resume(out / SCORES_FILE, chunks)
    told.on_start(len(done), sum(len(chunk.items) for chunk in chunks))
    seconds = Seconds.load(out / SECONDS_FILE)
    path = out / SCORES_FILE
    left = chunks[num_chunks:]
    while left:
        first = left[0]
        own = [c for c in left if (c.seed, c.evaluator) == (first.seed, first.evaluator)]
        with task.open(first.seed, first.evaluator) as evaluator:
            for chunk in own:
                started = time.monotonic()
                scored = score_chunk(chunk, evaluator)
                seconds.add(chunk, time.monotonic() - started)
                append(path, scored)
                done += scored
                told.on_chunk(chunk)
        left = left[len(own) :]
    return done


def score_chunk(chunk: Chunk, evaluator: Evaluator) -> list[ScoredItem]:
    """Score a chunk's items in all their orders, in one call of the evaluator.

    Both orders of an item have one seed: what differs between them is the order alone.
    """
    orders = [orders_of(item, chunk.seed, evaluator.sees_set) for item in chunk.items]
    asked = [
        (item.placed(order), derive_seed(chunk.seed, "bench", item.dataset, item.id))
        for item, own in zip(chunk.items, orders, strict=True)
        if not item.is_identical
        for order in own
    ]
    found = iter(
        evaluator.score([one for one, _ in asked], [seed for _, seed in asked]) if asked else ()
    )
    scored = []
    for item, own in zip(chunk.items, orders, strict=True):
        said = [_tied(item) if item.is_identical else next(found) for _ in own]
        scored.append(scored_item(item, chunk.seed, chunk.evaluator, own, said))
    return scored


def _tied(item: BenchItem) -> ScoredSet:
    """Return what is said of responses that are all one text: nobody is asked."""
    return ScoredSet(tuple(Score.of(IDENTICAL_SCORE) for _ in item.responses))
