"""File work whose failures people can act on: durable writes, hard links, clear disk errors."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dynamicrubric.durable import sync
from dynamicrubric.errors import DynamicRubricError, UserError
from dynamicrubric.hashing import sha256_of as sha256_of

_TROUBLE: Final[dict[int, tuple[str, str]]] = {
    errno.ENOSPC: ("a full disk", "free some space, then run the same command again"),
    errno.EDQUOT: ("an exhausted disk quota", "free some space, then run the same command again"),
    errno.EACCES: ("no permission", "change the owner or mode of the folder, or use another one"),
    errno.EPERM: ("no permission", "change the owner or mode of the folder, or use another one"),
    errno.EROFS: ("a read-only file system", "use a folder that can be written"),
    errno.ENOTDIR: ("a file where a folder has to be", "move that file away"),
    errno.EEXIST: ("a file where a folder has to be", "move that file away"),
    errno.ENAMETOOLONG: ("a name that is too long", "use a shorter folder name"),
}
# Libraries that write from native code (safetensors, torch) raise their own exception classes and
# keep the operating system's words only in the message.
_WORDS: Final[dict[str, int]] = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "Read-only file system": errno.EROFS,
}
_CANNOT_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP})


def disk_error(error: BaseException, doing: str, path: Path | None = None) -> UserError | None:
    """Return the `UserError` that tells a person about a disk failure, or None for other errors.

    Args:
        error: what was raised; its causes are looked at too.
        doing: what was being done, as a phrase.
        path: what to name if the error itself names no file.
    """
    link: BaseException | None = error
    while link is not None:
        code = link.errno if isinstance(link, OSError) else _code_in(str(link))
        if code in _TROUBLE:
            got, remedy = _TROUBLE[code]
            named = getattr(link, "filename", None) or path
            where = f" at {named}" if named is not None else ""
            return UserError(doing=doing, got=got + where, remedy=remedy)
        link = link.__cause__
    return None


def _code_in(message: str) -> int | None:
    return next((code for words, code in _WORDS.items() if words in message), None)


@contextmanager
def disk_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn a full disk, missing permission and the like into a `UserError`; pass the rest on."""
    try:
        yield
    except DynamicRubricError:
        raise
    except Exception as error:
        explained = disk_error(error, doing, path)
        if explained is None:
            raise
        raise explained from error


def check_writable(folders: Iterable[Path]) -> None:
    """Refuse folders that are there and cannot be written, before there is anything to write.

    Raises:
        UserError: names the first such folder.
    """
    for folder in folders:
        if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
            got, remedy = _TROUBLE[errno.EACCES]
            raise UserError(doing="starting the study", got=f"{got} at {folder}", remedy=remedy)


def write_json_durably(path: Path, value: Mapping[str, object]) -> None:
    """Write a JSON file and return only when it is on the disk."""
    with path.open("x", encoding="utf-8") as stream:
        json.dump(value, stream, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` a hard link to a file's bytes, or a read-only copy where links cannot reach."""
    real = source.resolve(strict=True)  # DVC may have put a symbolic link into its cache here
    try:
        os.link(real, target)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        shutil.copyfile(real, target)
        sync(target)
    if target.stat().st_mode & 0o222:
        target.chmod(0o444)


def staging(target: Path) -> Path:
    """Return where a folder is laid out before `replace_folder` puts it at `target`."""
    return target.with_name(f".{target.name}.publishing")


def replace_folder(staged: Path, target: Path) -> None:
    """Put the folder `staged` at `target` in one rename; what stood there before is removed."""
    aside = _aside(target)
    remove(aside)
    if target.is_symlink() or target.exists():
        os.rename(target, aside)
    os.rename(staged, target)
    sync(target.parent)
    remove(aside)


def leftovers(target: Path) -> list[Path]:
    """Return what a kill while `target` was replaced has left beside it."""
    return [path for path in (staging(target), _aside(target)) if path.exists()]


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.replaced")


def remove(path: Path) -> None:
    """Remove a folder, a file or a link if it is there; a link's target is left alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
