"""Artefacts as steps publish them; `dynamicrubric.artefact` says what a record is and reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dynamicrubric import artefact
from dynamicrubric.artefact import RECORD_NAME, Artefact, Record
from dynamicrubric.errors import InstrumentError, UserError
from tasks import disk

__all__ = ["RECORD_NAME", "Artefact", "Record", "artefact_files", "load_artefact"]


def load_artefact(path: Path, verify: bool = True, *, expected_step: str | None = None) -> Artefact:
    """Return the artefact in a folder; see `dynamicrubric.artefact.load_artefact`.

    Raises:
        UserError: as there, and for a disk that cannot be read.
    """
    with disk.disk_errors(f"loading the artefact {path}", path):
        return artefact.load_artefact(path, verify, expected_step=expected_step)


def artefact_files(folder: Path) -> dict[str, Mapping[str, str | int]]:
    """Return name, hash and size of each file a build left in a folder, ready to be published.

    Symbolic links are refused: DVC would store the content of whatever they point to.

    Raises:
        UserError: there is a symbolic link; it and its target are named.
        InstrumentError: the build left nothing, a device or socket, or a `record.json` of its own.
    """
    files: dict[str, Mapping[str, str | int]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            _refuse_link(folder, path)
        if path.is_dir():
            continue
        if not path.is_file() or name == RECORD_NAME:
            raise InstrumentError(f"the build left {path}, which cannot be part of an artefact")
        files[name] = {"sha256": disk.sha256_of(path), "bytes": path.stat().st_size}
    if not files:
        raise InstrumentError(f"the build left no file in {folder}")
    return files


def _refuse_link(folder: Path, path: Path) -> None:
    inside = path.resolve().is_relative_to(folder.resolve())
    raise UserError(
        doing=f"publishing {folder}",
        got=f"the symbolic link {path} -> {os.readlink(path)}"
        + ("" if inside else ", which leaves the artefact"),
        expected="regular files only",
        remedy="write the file itself instead of a link",
    )
