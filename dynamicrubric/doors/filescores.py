"""Scores of a whole file: written as they come, kept when stopped, published when complete.

Until the last row is scored the results are in `<output>.part`: JSON Lines, first what they are
scores of, then one document for each row. The same command goes on behind the last whole line; with
another file or another evaluator it refuses, and while another process writes them. The output
itself appears complete or not at all.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from dynamicrubric.doors.documents import (
    CostDocument,
    MeanDocument,
    ScoreDocument,
    document_of,
    seed_of,
)
from dynamicrubric.doors.filerows import FileRow
from dynamicrubric.durable import naming, sync
from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.base import Cost, Evaluator

FORMAT_VERSION: Final = 1
BATCH_ROWS: Final = 16


@dataclass
class Tally:
    """What became of a file's rows.

    Attributes:
        rows: all of them.
        refused: rows that are no response set, by fault.
        first_refused: place, fault and field of the first of each.
        responses: places of the sets that were scored.
        unscored: those without a score, by reason.
        noted: rows with each kind of note.
        cost: what scoring took.
    """

    rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    first_refused: dict[str, str] = field(default_factory=dict)
    responses: int = 0
    unscored: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    cost: Cost = field(default_factory=Cost)

    def count(self, row: Mapping[str, Any]) -> None:
        """Count one row of the output."""
        self.rows += 1
        self.noted.update({note.partition(":")[0] for note in row["notes"]})
        if row["refused"] is not None:
            self.refused[row["refused"]] += 1
            where = f" ({row['field']})" if row["field"] else ""
            self.first_refused.setdefault(row["refused"], f"{row['place']}{where}")
            return
        self.responses += len(row["scores"])
        self.unscored.update(reason for reason in row["reasons"] if reason is not None)
        self.cost += Cost(**row["cost"])


@contextmanager
def only_one(part: Path) -> Iterator[None]:
    """Hold the results while a process writes them; the kernel lets go of them when it ends.

    The file that is held stands beside `part`, empty, and goes with the hold.

    Raises:
        UserError: another process holds them.
    """
    held = part.with_name(f".{part.name}.lock")
    with naming(held), held.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if held.stat().st_ino != os.fstat(stream.fileno()).st_ino:
                raise BlockingIOError  # who held it has just removed it, and another has begun
        except (BlockingIOError, FileNotFoundError):
            raise UserError(
                doing=f"writing {part}",
                got="another process that writes it",
                expected="one at a time",
                remedy="wait for it, or name another output with --out",
            ) from None
        try:
            yield
        finally:
            held.unlink(missing_ok=True)


def score_rows(
    rows: Iterable[FileRow],
    evaluator: Evaluator,
    part: Path,
    identity: Mapping[str, Any],
    *,
    seed: int = 0,
    batch_rows: int = BATCH_ROWS,
    on_row: Callable[[Tally], None] | None = None,
) -> Tally:
    """Score the rows that are not scored yet, and return what became of all of them.

    Args:
        rows: of the whole file, in order.
        evaluator: scores.
        part: where results are kept until the end.
        identity: what they are scores of: the input's hash, the evaluator, the seed.
        seed: of whatever is random.
        batch_rows: rows that are scored together and written at once.
        on_row: told after each row, those of an earlier run included.

    Raises:
        UserError: `part` holds results of something else.
        InstrumentError: a model or an endpoint is broken; what was scored before is kept.
    """
    tally, told = Tally(), on_row or (lambda _: None)
    done = _resume(part, {"format": FORMAT_VERSION, **identity})
    for row in _written(part):
        tally.count(row)
        told(tally)
    left = islice(rows, done, None)
    with naming(part), part.open("a", encoding="utf-8") as stream:
        while batch := list(islice(left, batch_rows)):
            for row in _scored(batch, evaluator, seed):
                stream.write(json.dumps(row, allow_nan=False) + "\n")
                tally.count(row)
                told(tally)
            stream.flush()
    sync(part)
    return tally


def publish(part: Path, out: Path, write: Callable[[Iterator[dict[str, Any]], Path], None]) -> None:
    """Turn complete results into the output, and remove them.

    Args:
        part: the results.
        out: the output's name.
        write: writes rows into a file.

    Raises:
        UserError: somebody has put something at the output's name; the results stay.
    """
    temporary = out.with_name(f".{out.name}.tmp")
    try:
        with naming(out):
            write(_written(part), temporary)
        sync(temporary)
        if out.exists():
            raise UserError(
                doing=f"writing {out}",
                got="something that is there, though it was not when the scoring began",
                expected="a new file",
                remedy="move it away, and run the same command again: nothing is scored twice",
            )
        temporary.replace(out)
        sync(out.absolute().parent)
    finally:
        temporary.unlink(missing_ok=True)
    part.unlink()


def _scored(batch: Sequence[FileRow], evaluator: Evaluator, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the output of a batch's rows, those that are no response set among them."""
    sets = [row.responses for row in batch if row.responses is not None]
    scored = iter(evaluator.score(sets, [seed_of(seed, one) for one in sets]) if sets else [])
    for row in batch:
        if row.responses is None:
            yield _refusal(row, evaluator.name)
        else:
            document = document_of(
                row.responses, next(scored), evaluator.name, name=row.name, notes=row.notes
            )
            yield _output(row, document)


def _output(row: FileRow, document: ScoreDocument) -> dict[str, Any]:
    return {"place": row.place, **document.model_dump(), "refused": None, "field": None}


def _refusal(row: FileRow, evaluator: str) -> dict[str, Any]:
    """Return the output of a row that is no response set: the same keys, and nothing scored."""
    nothing = ScoreDocument(
        id=row.name,
        evaluator=evaluator,
        scores=[],
        reasons=[],
        mean=MeanDocument(value=None, n_scored=0, n_total=0, reasons={}),
        cost=CostDocument(**asdict(Cost())),
        notes=list(row.notes),
    )
    return {**_output(row, nothing), "refused": row.fault, "field": row.field}


def _resume(part: Path, identity: Mapping[str, Any]) -> int:
    """Make `part` ready to go on with, and return how many rows it holds.

    Raises:
        UserError: it holds results of something else.
    """
    if not part.exists():
        with naming(part):
            part.write_text(json.dumps(identity) + "\n", encoding="utf-8")
        return 0
    whole, header, rows = 0, None, 0
    with part.open("rb") as stream:
        for line in stream:
            if not line.endswith(b"\n") or (header is not None and not _object(line)):
                break  # torn by a kill, or by a machine that went down
            whole += len(line)
            if header is None:
                header = _object(line)
            else:
                rows += 1
    if header is None:
        part.unlink()
        return _resume(part, identity)
    differing = [key for key in identity if header.get(key) != identity[key]]
    if differing:
        raise UserError(
            doing=f"going on with {part}",
            got=f"results with another {', '.join(differing)}",
            expected="those of the same file, evaluator and seed",
            remedy=f"remove {part} to begin anew, or name another output with --out",
        )
    with part.open("r+b") as stream:
        stream.truncate(whole)
    return rows


def _object(line: bytes) -> dict[str, Any]:
    """Return the JSON object that a line holds, an empty one if it holds none."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _written(part: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of results, without what stands before them."""
    with part.open(encoding="utf-8") as stream:
        next(stream)
        for line in stream:
            yield json.loads(line)
