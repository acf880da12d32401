"""The one boundary where errors meant for people become a sentence and an exit code.

Command lines call `run_with_boundary`; below it nothing catches these errors, and every other
exception is a fault of ours that keeps its traceback.
"""

from __future__ import annotations

import errno
import io
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dynamicrubric.errors import DynamicRubricError

EXIT_OK: Final = 0
EXIT_REFUSED: Final = 2
"""A person has to change something: a setting, a file, the machine."""
EXIT_INTERRUPTED: Final = 130

REMEDIES: Final[dict[int, tuple[str, str]]] = {
    errno.ENOSPC: ("the disk is full", "Free some space, then run the same command again"),
    errno.EDQUOT: ("the disk quota is used up", "Free some space, then run the same command again"),
    errno.EROFS: ("the file system is read-only", "Use a folder that can be written"),
    errno.EACCES: ("no permission", "Change the permissions, or use another folder"),
    errno.EPERM: ("no permission", "Change the permissions, or use another folder"),
    errno.EADDRINUSE: ("the address is in use", "Stop what uses it, or choose another port"),
    errno.EISDIR: ("it is a folder", "Name a file"),
    errno.ENOTDIR: ("a part of the path is a file", "Name a folder that exists"),
    errno.EMFILE: ("too many open files", "Raise the limit (`ulimit -n`)"),
}

_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def run_with_boundary(run: Callable[[], int | None]) -> int:
    """Run a command and return its exit code: errors for people become one sentence on stderr.

    Args:
        run: the command; None and 0 both mean success.

    Returns:
        The command's own code, 2 for an error that a person can put right, 130 for Ctrl-C.

    Raises:
        Exception: any other error, untouched: it is a fault of ours and needs its traceback.
    """
    for stream in (sys.stdout, sys.stderr):  # a sign that the terminal does not know is no error
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = run()
    except KeyboardInterrupt:
        print("Stopped. The same command goes on from here.", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Exception as error:
        sentence = sentence_for(error)
        if sentence is None:
            raise
        print(f"error: {sentence}", file=sys.stderr)
        return EXIT_REFUSED
    return EXIT_OK if code is None else code


def sentence_for(error: BaseException) -> str | None:
    """Return what to tell a person about an error, or None for a fault of ours.

    A library may wrap the error that says what happened, so the causes are looked at as well.
    """
    for link in _causes(error):
        if isinstance(link, DynamicRubricError):
            return str(link)
        if isinstance(link, OSError) and link.errno in REMEDIES:
            return _os_sentence(link)
        if isinstance(link, sqlite3.OperationalError):
            found = _database_sentence(link)
            if found is not None:
                return found
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was explicitly raised from; a mere context may be unrelated."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _os_sentence(error: OSError) -> str:
    assert error.errno is not None
    what, remedy = REMEDIES[error.errno]
    path = error.filename2 or error.filename
    if not path and error.errno in _DISK:
        path = f"Writing something, run from {Path.cwd()}"
    return f"{path}: {what}. {remedy}." if path else f"{what[0].upper()}{what[1:]}. {remedy}."


def _database_sentence(error: sqlite3.OperationalError) -> str | None:
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL:
        return "A database could not be written: the disk is full. Free some space, then try again."
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return f"A database could not be written: {error}. Check the permissions of its folder."
    return None
