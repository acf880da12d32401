"""Runs evaluators over data sets: appends to scores.jsonl, and goes on where it was stopped.

Items are scored in chunks that hold all rows of a prompt, in one fixed order, and a chunk is
written whole or cut off at the next start. What a chunk is asked does not depend on what was done
before it in the same process, so a run that was killed ends with the bytes of one that was not.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dynamicrubric.benchmarks.loaders import Loaded
from dynamicrubric.benchmarks.schema import BenchItem, orders_of
from dynamicrubric.benchmarks.scored import ScoredItem, scored_item
from dynamicrubric.durable import naming
from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.base import Evaluator, ScoredSet
from dynamicrubric.hashing import changed_fields, hash_of
from dynamicrubric.seeds import derive_seed
from dynamicrubric.types import Score
from dynamicrubric.yamlio import replace_text

SCORES_FILE: Final = "scores.jsonl"
REFUSED_FILE: Final = "refused.jsonl"
RUN_FILE: Final = "run.json"
SECONDS_FILE: Final = "seconds.json"
LOCK_FILE: Final = ".lock"
FORMAT: Final = 1
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

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of the run, in order."""
        for seed in self.seeds:
            for evaluator in self.evaluators:
                for loaded in self.data[seed]:
                    for items in chunks_of(loaded.items, self.chunk):
                        yield Chunk(seed, evaluator, loaded.name, items)


@dataclass(frozen=True)
class Chunk:
    """Items that one evaluator scores together."""

    seed: int
    evaluator: str
    dataset: str
    items: tuple[BenchItem, ...]


@dataclass
class Progress:
    """Told of what is done; the default says nothing."""

    on_start: Callable[[int, int], None] = lambda done, total: None
    on_chunk: Callable[[Chunk], None] = lambda chunk: None


@dataclass
class Seconds:
    """Wall seconds of scoring by seed, evaluator and data set; kept over interruptions."""

    path: Path
    by_part: dict[str, float] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Seconds:
        """Read what earlier starts of the run took."""
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return cls(path, known)

    def add(self, chunk: Chunk, seconds: float) -> None:
        """Add a chunk's seconds, and write them down."""
        part = f"{chunk.seed}/{chunk.evaluator}/{chunk.dataset}"
        self.by_part[part] = self.by_part.get(part, 0.0) + seconds
        replace_text(self.path, json.dumps(self.by_part, indent=1, sort_keys=True) + "\n")


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
    claim(out, task)
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


@contextmanager
def only_one(out: Path) -> Iterator[None]:
    """Hold a folder while a run writes it; the kernel lets go of it when the process ends.

    Raises:
        UserError: another process holds it.
    """
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK_FILE).open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                doing=f"writing {out}",
                got="another process that writes it",
                expected="one run in a folder at a time",
                remedy="wait for it, or name another folder with --out",
            ) from None
        yield


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


def claim(out: Path, task: Task) -> None:
    """Write down which run a folder is of, or check that it is this one.

    Raises:
        UserError: it is another run's, and which settings differ.
    """
    path = out / RUN_FILE
    identity = task.identity
    document = {"identity": hash_of(identity), **identity}
    if path.is_file():
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            known = {}
        if known != json.loads(json.dumps(document)):
            changed = changed_fields(known, json.loads(json.dumps(document)))
            shown = "; ".join(line[:120] for line in changed if not line.startswith("identity:"))
            raise UserError(
                doing=f"going on in {out}",
                got=f"the scores of another run ({shown[:600] or 'nothing readable'})",
                expected="the same settings and data",
                remedy="name another folder with --out, or remove this one",
            )
    elif (out / SCORES_FILE).exists():
        raise UserError(
            doing=f"writing {out}",
            got=f"a {SCORES_FILE} without a {RUN_FILE}",
            expected="a new folder, or one of this run",
            remedy="name another folder with --out",
        )
    else:
        replace_text(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    refused = [one for seed in task.seeds for loaded in task.data[seed] for one in loaded.refusals]
    lines = dict.fromkeys(json.dumps(vars(one)) + "\n" for one in refused)  # each once
    replace_text(out / REFUSED_FILE, "".join(lines))


def resume(path: Path, chunks: Sequence[Chunk]) -> tuple[list[ScoredItem], int]:
    """Read the whole chunks that a run has written, and cut the rest off.

    Returns:
        Their lines, and how many chunks they are.

    Raises:
        UserError: the lines are not those of this run.
    """
    lines = path.read_bytes().split(b"\n") if path.is_file() else [b""]
    whole, kept, num_chunks = lines[:-1], 0, 0  # behind the last line break: cut, or nothing
    done: list[ScoredItem] = []
    for chunk in chunks:
        own = whole[kept : kept + len(chunk.items)]
        if len(own) < len(chunk.items):
            break
        read = [_line(path, kept + n, line) for n, line in enumerate(own, start=1)]
        expected = [(chunk.seed, chunk.evaluator, item.dataset, item.id) for item in chunk.items]
        if [one.key for one in read] != expected:
            raise _not_ours(path, kept + 1)
        done += read
        kept += len(own)
        num_chunks += 1
    size = sum(len(line) + 1 for line in whole[:kept])
    if path.is_file() and path.stat().st_size > size:
        with path.open("r+b") as stream:
            stream.truncate(size)
    return done, num_chunks


def _line(path: Path, number: int, line: bytes) -> ScoredItem:
    try:
        return ScoredItem.of_line(line.decode("utf-8"))
    except (ValueError, KeyError, TypeError):
        raise _not_ours(path, number) from None


def _not_ours(path: Path, number: int) -> UserError:
    return UserError(
        doing=f"going on in {path.parent}",
        got=f"line {number} of {path.name}, which this run has not written",
        expected="the lines of this run, in its order",
        remedy="remove the folder, or name another with --out",
    )


def append(path: Path, scored: Sequence[ScoredItem]) -> None:
    """Append a chunk's lines in one write, and wait until they are on the disk."""
    text = "".join(one.as_line() for one in scored).encode("utf-8", "backslashreplace")
    with naming(path), path.open("ab") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
