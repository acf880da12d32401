"""The way from a rubric's sentence to the checkpoint it trained, read from a cell's lineage.

Each training keeps a row for every completion (`rollouts.parquet`). Here a row is taken apart and
put together again: verdicts and weights to the score, the group's rewards to the advantage, the
file's record to the checkpoint. A lineage that does not add up is a broken artefact and raises.
Plain data: no torch, no plan; what a cell was trained with is in its records.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.judging import text_hash
from dynamicrubric.plan import RUNS_DIR
from dynamicrubric.report.cellfiles import REMEDY, RUN_IT, checked_file
from dynamicrubric.yamlio import parse_yaml

ROLLOUTS: Final = "rollouts.parquet"
WEIGHTS: Final = ("model.safetensors", "adapter_model.safetensors")
"""Of a whole model, and of an adapter over a pretrained base."""
RECORD: Final = "record.json"
PLAN_FILE: Final = "cells.json"
RECORD_KEYS: Final = frozenset({"step", "identity", "inputs", "files", "content_hash"})
TOLERANCE: Final = 1e-9
"""Stored numbers are written in full: a difference is no rounding."""
_CELL_NAME: Final = re.compile(r"(?P<arm>.+)-(?P<seed>s\d+)-r(?P<round>\d+)")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "policy": (
        *("step", "prompt_id", "sample_index", "text", "text_hash", "rubric_id", "rubric"),
        *("verdicts", "score", "score_reason", "reward", "advantage"),
    ),
    "generator": (
        *("step", "row", "prompt_id", "text", "invalid_reason", "num_items", "r_disc", "r_anchor"),
        *("advantage_disc", "advantage_anchor", "advantage"),
    ),
}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """What a row trained.

    Attributes:
        role: policy or generator.
        file: its weights, below the project's folder.
        sha256: hash of that file's bytes, compared with the record's.
        content_hash: hash of the whole artefact, which later steps name as their input.
        dvc_hash: what dvc.lock calls the artefact's folder; None if it does not know it.
    """

    role: str
    file: str
    sha256: str
    content_hash: str
    dvc_hash: str | None


@dataclass(frozen=True)
class Training:
    """The training of one role in one cell.

    Attributes:
        root: the project's folder.
        key: the cell.
        role: policy or generator.
        record: the artefact's record.
    """

    root: Path
    key: str
    role: str
    record: Mapping[str, Any]

    @classmethod
    def open(cls, root: Path, key: str, role: str) -> Training:
        """Find the training of a role.

        Raises:
            UserError: there is no such cell, it is not trained, or its record cannot be read.
        """
        if key not in cells_of(root):
            raise unknown_cell(root, key)
        record = read_record(root, key, role)
        if record["step"] != f"train_{role}":
            raise UserError(
                doing=f"reading the {role}'s training of {key}",
                got=f"a {role} that this round did not train (step {record['step']})",
                expected=f"a round that trains its {role}",
                remedy="ask for a round that does; some arms have none",
            )
        return cls(root, key, role, record)

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the training was computed from."""
        found: Mapping[str, Any] = self.record["identity"]
        return found

    @property
    def path(self) -> Path:
        """The lineage file."""
        return self.root / RUNS_DIR / self.key / self.role / ROLLOUTS

    @cached_property
    def rows(self) -> list[Row]:
        """Every row in the order of training, with its `id`.

        Raises:
            UserError: the file is not the recorded one, is no table, or lacks a column.
        """
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table

        path = checked_file(self.path, self.record)
        try:
            rows: list[dict[str, Any]] = read_table(path).to_pylist()
        except (ArrowException, OSError) as error:
            raise self.fault(str(error).partition("\n")[0], "a parquet table") from None
        present = rows[0].keys() if rows else ()
        lacking = [name for name in COLUMNS[self.role] if name not in present]
        if lacking:
            raise self.fault(f"a table without {', '.join(lacking)}", "this version's lineage")
        seen: dict[tuple[int, str], int] = {}
        for row in rows:
            group = (row["step"], row[self.group_column])
            seen[group] = seen.get(group, -1) + 1
            row["id"] = f"{row['step']}/{row[self.group_column]}/{seen[group]}"
        return list(rows)

    @property
    def group_column(self) -> str:
        """What names a group within a step."""
        return "prompt_id" if self.role == "policy" else "row"

    def find(self, name: str) -> Row:
        """Return the row of an id, or of a text's hash that only one row has.

        Raises:
            UserError: no row has it, or several have that text; says how to list them.
        """
        found = [row for row in self.rows if row["id"] == name]
        if not found and re.fullmatch(r"[0-9a-f]{16}", name):
            found = [row for row in self.rows if text_hash(row["text"]) == name]
        if len(found) == 1:
            return found[0]
        what = "response" if self.role == "policy" else "rubric"
        ids = [row["id"] for row in self.rows]
        near = difflib.get_close_matches(name, ids, n=3) if not found else []
        several = f"{len(found)} {what}s with that text: {', '.join(r['id'] for r in found[:5])}"
        hint = f" (near: {', '.join(near)})" if near else ""
        option = " --generator" if self.role == "generator" else ""
        raise UserError(
            doing=f"looking up the {what} {name} of {self.key}",
            got=several if found else f"no such {what} among {len(ids)}{hint}",
            expected=f"an id STEP/{self.group_column.upper()}/NUMBER, such as {ids[0]}",
            remedy=f"list them: `dynamicrubric explain {self.key}{option} --step 1`",
        )

    def group_of(self, row: Row) -> list[Row]:
        """Return the rows that were compared with each other: same step, same prompt."""
        column = self.group_column
        group = [r for r in self.rows if r["step"] == row["step"] and r[column] == row[column]]
        size = self.group_size
        if len(group) != size:
            raise self.fault(f"{len(group)} rows in the group of {row['id']}", f"{size}")
        return group

    @property
    def group_size(self) -> int:
        """How many completions a group has."""
        if self.role == "policy":
            return int(self.identity["responses_per_set"])
        return int(self.identity["training"]["group_size"])

    def checkpoint(self) -> Checkpoint:
        """Return what this training made, its bytes compared with the record."""
        name = next((one for one in WEIGHTS if one in self.record["files"]), WEIGHTS[0])
        path = checked_file(self.path.with_name(name), self.record)
        return Checkpoint(
            self.role,
            path.relative_to(self.root).as_posix(),
            str(self.record["files"][name]["sha256"]),
            str(self.record["content_hash"]),
            _dvc_hash(self.root, self.key, path.parent.relative_to(self.root).as_posix()),
        )

    def check(self, what: str, stored: object, computed: object) -> None:
        """Compare a stored value with what its parts say.

        Raises:
            UserError: they differ; names both.
        """
        if not _equal(stored, computed):
            raise self.fault(f"{what}: {stored!r} is stored", f"{computed!r}, which its parts give")

    def fault(self, got: str, expected: str) -> UserError:
        """Return the error of a lineage that is not right."""
        return UserError(doing=f"reading {self.path}", got=got, expected=expected, remedy=REMEDY)


def read_record(root: Path, key: str, role: str) -> Mapping[str, Any]:
    """Return the record of a role's artefact in a cell.

    Raises:
        UserError: the role has none in this cell, or it cannot be read.
    """
    path = root / RUNS_DIR / key / role / RECORD
    if not path.is_file():
        raise UserError(
            doing=f"reading the {role}'s training of {key}",
            got=f"no {path}",
            expected="a round that is finished; round 0 trains nothing",
            remedy=RUN_IT,
        )
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        missing = sorted(RECORD_KEYS - record.keys())
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(
            doing=f"reading {path}", got=str(error), expected="a record", remedy=REMEDY
        ) from None
    if missing:
        raise UserError(
            doing=f"reading {path}", got=f"no {', '.join(missing)}", expected="a record",
            remedy=REMEDY,
        )  # fmt: skip
    return record


def _equal(stored: object, computed: object) -> bool:
    if isinstance(stored, int | float) and isinstance(computed, int | float):
        return math.isclose(stored, computed, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return stored == computed


def cells_of(root: Path) -> list[str]:
    """Return the keys of the cells that have a folder."""
    runs = root / RUNS_DIR
    return sorted(path.name for path in runs.iterdir() if path.is_dir()) if runs.is_dir() else []


def unknown_cell(root: Path, key: str) -> UserError:
    """Return the error of a cell that has no folder; names those that are near."""
    cells = cells_of(root)
    shared = shared_cell(root, key)
    if shared is not None and shared != key:
        return UserError(
            doing="looking up a cell",
            got=f"{key!r}, a round that its arm shares with others",
            expected=f"the name of the cell that was trained for all of them: {shared}",
        )
    near = difflib.get_close_matches(key, cells, n=4, cutoff=0.5) or cells[:6]
    arms, name = list(_planned_arms(root)), _CELL_NAME.fullmatch(key)
    if arms and not (name and name["arm"] in arms):
        such = f", such as {', '.join(near)}" if near else f", such as {arms[0]}-s1-r1"
        return UserError(
            doing="looking up a cell",
            got=repr(key),
            expected=f"a cell (arm, seed, round) of the arms that run: {', '.join(arms)}{such}",
            remedy="for another arm, run it first: `make study ARMS=<arm>`",
        )
    return UserError(
        doing="looking up a cell",
        got=f"{key!r}, and no such folder in {RUNS_DIR}",
        expected=f"a cell that was run, such as {', '.join(near)}" if near else "a study here",
        remedy=RUN_IT if cells else f"run from the project's top folder, or {RUN_IT}",
    )


def shared_cell(root: Path, name: str) -> str | None:
    """Return the cell that a round of an arm is, by the plan beside; None if it has no such."""
    parts = _CELL_NAME.fullmatch(name)
    try:
        path = _planned_arms(root)[parts["arm"]][parts["seed"]] if parts else ()
        return str(path[int(parts["round"])]) if parts else None
    except (LookupError, TypeError):  # a plan that does not have it
        return None


def _planned_arms(root: Path) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return each arm's cells by seed as the plan beside has them; nothing without a plan."""
    try:
        arms = json.loads((root / PLAN_FILE).read_text(encoding="utf-8"))["arms"]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return arms if isinstance(arms, dict) else {}


def _dvc_hash(root: Path, key: str, folder: str) -> str | None:
    """Return the hash of an out; only the stage's own lines are parsed, the file may be long."""
    path = root / "dvc.lock"
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    found = re.search(rf"^  round@{re.escape(key)}:\n(?:   .*\n?)*", text, re.MULTILINE)
    if found is None:
        return None
    stage = parse_yaml(found[0], str(path))[f"round@{key}"]
    outs: Sequence[Mapping[str, Any]] = stage.get("outs", ())
    return next((str(out["md5"]) for out in outs if out.get("path") == folder), None)
