"""The files of a run: whose they are, what is in them, and where it goes on after a kill."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dynamicrubric.benchmarks.schema import BenchItem, Refusal
from dynamicrubric.benchmarks.scored import ScoredItem
from dynamicrubric.durable import naming
from dynamicrubric.errors import UserError
from dynamicrubric.hashing import changed_fields, hash_of
from dynamicrubric.yamlio import replace_text

SCORES_FILE: Final = "scores.jsonl"
REFUSED_FILE: Final = "refused.jsonl"
RUN_FILE: Final = "run.json"
SECONDS_FILE: Final = "seconds.json"
LOCK_FILE: Final = ".lock"


@dataclass(frozen=True)
class Chunk:
    """Items that one evaluator scores together."""

    seed: int
    evaluator: str
    dataset: str
    items: tuple[BenchItem, ...]


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


def claim(out: Path, identity: Mapping[str, Any], refusals: Iterable[Refusal]) -> None:
    """Write down which run a folder is of, or check that it is this one.

    Raises:
        UserError: it is another run's, and which settings differ.
    """
    path = out / RUN_FILE
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
    lines = dict.fromkeys(json.dumps(vars(one)) + "\n" for one in refusals)  # each once
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
        read = [line_of(path, kept + n, line) for n, line in enumerate(own, start=1)]
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


def line_of(path: Path, number: int, line: bytes) -> ScoredItem:
    """Read a line of scores.jsonl back.

    Raises:
        UserError: it is none.
    """
    try:
        return ScoredItem.of_line(line.decode("utf-8"))
    except (ValueError, KeyError, TypeError):
        raise _not_ours(path, number) from None


def _not_ours(path: Path, number: int) -> UserError:
    return UserError(
        doing=f"reading the scores of {path.parent}",
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
