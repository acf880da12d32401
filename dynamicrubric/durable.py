"""What has to be on the disk before the next thing is written, and errors that name their file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dynamicrubric.errors import UserError


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an error of the body: a full disk is noticed by a write, which knows none.

    >>> with naming(Path("a.csv")):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: 'a.csv'
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def ready_folder(path: Path) -> None:
    """Make a folder that results go into at the end: what will not do is said before the work.

    Raises:
        UserError: there is something else at the name, or nothing can be written there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(
            doing=f"making the folder {path}",
            got="a file of that name" if path.is_file() else error.strerror or str(error),
            expected="a folder that can be written",
            remedy="name another one with --out",
        ) from None
