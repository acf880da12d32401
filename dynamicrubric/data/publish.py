"""Puts a prepared folder in place in one rename, with a `record.json` written last.

The record has the form that every artefact of this project has (`dynamicrubric.artefact` reads and
checks it), so that a prepared set can be the input of a step. Until it is whole there is nothing at
the folder's name.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dynamicrubric import __version__
from dynamicrubric.commit import git_commit
from dynamicrubric.durable import naming, sync
from dynamicrubric.errors import UserError
from dynamicrubric.hashing import hash_of, sha256_of

STEP: Final = "prepare_data"
STEP_VERSION: Final = 1
"""Bumped when the same settings and inputs give another set."""
RECORD: Final = "record.json"


@contextmanager
def staged_folder(out: Path) -> Iterator[Path]:
    """Give a folder to write into; whatever is still there at the end, is removed.

    Raises:
        UserError: `out` is something that this command did not make.
    """
    _check_replaceable(out)
    folder = out.with_name(f".{out.name}.publishing")
    shutil.rmtree(folder, ignore_errors=True)
    made_here = [parent for parent in folder.parents if not parent.exists()]
    folder.mkdir(parents=True)
    try:
        with naming(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for parent in made_here:
            with suppress(OSError):  # not empty: that is where the set is now
                parent.rmdir()


def publish(staged: Path, out: Path, identity: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Seal a staged folder and put it at `out`; what was there before is removed.

    Args:
        staged: the folder, with all of its files.
        out: where it goes.
        identity: what its content follows from: settings and hashes of what was read.
        seconds: how long it took to make.

    Returns:
        The record.
    """
    files: dict[str, dict[str, str | int]] = {}
    for path in sorted(staged.iterdir()):
        sync(path)
        path.chmod(0o444)
        files[path.name] = {"sha256": sha256_of(path), "bytes": path.stat().st_size}
    record = _record(identity, files, seconds)
    path = staged / RECORD
    text = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    path.chmod(0o444)
    sync(path)
    sync(staged)
    aside = out.with_name(f".{out.name}.replaced")
    shutil.rmtree(aside, ignore_errors=True)
    if out.exists():
        os.rename(out, aside)
    os.rename(staged, out)
    sync(out.parent)
    shutil.rmtree(aside, ignore_errors=True)
    return record


def _record(
    identity: Mapping[str, Any], files: Mapping[str, Mapping[str, str | int]], seconds: float
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "step": STEP,
        "step_version": STEP_VERSION,
        "identity": identity,
        "inputs": {},
    }
    return {
        **fields,
        "identity_hash": hash_of(fields),
        "files": files,
        "content_hash": hash_of({name: facts["sha256"] for name, facts in files.items()}),
        "provenance": {
            "seconds": round(seconds, 3),
            "git_commit": git_commit(),
            "packages": {"python": platform.python_version(), "dynamicrubric": __version__},
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    }


def _check_replaceable(out: Path) -> None:
    """Refuse to replace what is not a prepared set: the folder may be somebody's work."""
    if out.is_dir() and not any(out.iterdir()):
        return
    if not out.exists() and not out.is_symlink():
        return
    try:
        made_here = json.loads((out / RECORD).read_text(encoding="utf-8"))["step"] == STEP
    except (OSError, ValueError, KeyError, TypeError):
        made_here = False
    if not made_here or out.is_symlink():
        raise UserError(
            doing=f"writing {out}",
            got="something there that this command did not make",
            expected="a new folder, or a prepared set to replace",
            remedy="name another folder with --out",
        )
