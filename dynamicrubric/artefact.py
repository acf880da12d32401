"""Artefacts as they are read: a folder with its record, and every file compared with it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from dynamicrubric.errors import UserError
from dynamicrubric.hashing import JSON, hash_of, sha256_of

RECORD_NAME: Final = "record.json"
_REMEDY: Final = (
    "Remove the folder and run again, which makes it anew. `dvc checkout --force` or `dvc pull` "
    "restore it only if DVC's cache still has it as it was: the cache links to these files, so "
    "what was altered in place is altered there as well"
)


@dataclass(frozen=True)
class Record:
    """What `record.json` holds."""

    step: str
    step_version: int
    identity: Mapping[str, JSON]
    identity_hash: str
    inputs: Mapping[str, str]  # content hash of each input artefact
    files: Mapping[str, Mapping[str, str | int]]  # {relative path: {"sha256": ..., "bytes": ...}}
    content_hash: str
    provenance: Mapping[str, object]  # in no hash

    @classmethod
    def make(
        cls,
        fields: Mapping[str, Any],
        files: Mapping[str, Mapping[str, str | int]],
        provenance: Mapping[str, object],
    ) -> Record:
        """Return the record of files made for a request's identity fields."""
        return cls(
            **fields,
            identity_hash=hash_of(fields),
            files=files,
            content_hash=_content_hash(files),
            provenance=provenance,
        )

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read and check a folder's record.

        Raises:
            UserError: there is none, so the artefact does not exist; or it is altered.
        """
        path = folder / RECORD_NAME
        doing = f"loading the artefact {folder}"
        try:
            record = cls(**json.loads(path.read_text(encoding="utf-8")))
            _check_hashes(record)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UserError(
                doing=f"{doing}: it does not exist",
                got=f"no {path}",
                remedy="run the step that makes it, or `dvc pull`",
            ) from error
        except (ValueError, TypeError, AttributeError) as error:
            got = f"an altered or foreign {RECORD_NAME} ({error})"
            raise UserError(doing=doing, got=got, remedy=_REMEDY) from error
        return record

    @property
    def fields(self) -> dict[str, JSON]:
        """The fields whose hash is the identity hash."""
        return {
            "step": self.step,
            "step_version": self.step_version,
            "identity": self.identity,
            "inputs": self.inputs,
        }

    def as_json(self) -> dict[str, object]:
        """Return the record as `record.json` holds it."""
        return dict(vars(self))


@dataclass(frozen=True)
class Artefact:
    """A folder with a valid record: a small reference, to be passed between tasks."""

    path: Path
    record: Record

    @property
    def content_hash(self) -> str:
        """SHA-256 over the files' names and hashes; equal content has an equal hash."""
        return self.record.content_hash


def load_artefact(path: Path, verify: bool = True, *, expected_step: str | None = None) -> Artefact:
    """Return the artefact in a folder.

    Args:
        path: the folder.
        verify: compare each file's SHA-256 with the record; names and sizes are compared always.
        expected_step: the step that has to have made it.

    Raises:
        UserError: it does not exist, was made by another step, or a file in it is missing,
            unknown, or altered; the message names the file.
    """
    record = Record.read(path)
    _check_names(path, record)
    for name, facts in record.files.items():
        _check_file(path / name, facts, verify=verify)
    if expected_step is not None and record.step != expected_step:
        raise UserError(
            doing=f"loading the artefact {path}",
            got=f"one made by the step {record.step}",
            expected=f"one made by {expected_step}",
            remedy="name the folder of the right step",
        )
    return Artefact(path, record)


def _content_hash(files: Mapping[str, Mapping[str, str | int]]) -> str:
    return hash_of({name: facts["sha256"] for name, facts in files.items()})


def _check_hashes(record: Record) -> None:
    """Check a record against itself; a `ValueError` says what does not agree."""
    if hash_of(record.fields) != record.identity_hash:
        raise ValueError("identity_hash does not match the identity fields")
    if _content_hash(record.files) != record.content_hash:
        raise ValueError("content_hash does not match the files")
    for name in record.files:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or name == RECORD_NAME:
            raise ValueError(f"file name {name!r} leaves the artefact")


def _check_names(folder: Path, record: Record) -> None:
    paths = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    # exists() follows links: a link into a DVC cache that was emptied is a missing file.
    present = {path.relative_to(folder).as_posix() for path in paths if path.exists()}
    expected = {RECORD_NAME, *record.files}
    trouble = [f"missing: {name}" for name in sorted(expected - present)]
    trouble += [f"not in its record: {name}" for name in sorted(present - expected)]
    if trouble:
        raise UserError(
            doing=f"loading the artefact {folder}",
            got=f"files that do not match its record ({'; '.join(trouble)})",
            remedy=_REMEDY,
        )


def _check_file(path: Path, facts: Mapping[str, str | int], *, verify: bool) -> None:
    state = path.stat()
    if not stat.S_ISREG(state.st_mode) or state.st_size != facts["bytes"]:
        got, expected = f"{state.st_size} bytes", f"{facts['bytes']} bytes"
    elif verify and (found := sha256_of(path)) != facts["sha256"]:
        got, expected = f"sha256 {found}", f"sha256 {facts['sha256']}"
    else:
        return
    raise UserError(
        doing=f"loading the artefact {path.parent}: {path} was altered",
        got=got,
        expected=expected,
        remedy=_REMEDY,
    )
