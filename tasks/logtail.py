"""Following a log file that another process writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_TAIL_BYTES = 16_384


class LogTail:
    """Hands over the complete lines that are appended to a file from now on."""

    def __init__(self, path: Path, on_line: Callable[[str], None] | None) -> None:
        self._path = path
        self._on_line = on_line
        self._offset = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def read_on(self) -> None:
        """Call `on_line` for each line completed since the last call."""
        if self._on_line is None or not self._path.exists():
            return
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._on_line(line.decode("utf-8", errors="replace"))


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a file; none if there is no file."""
    if not path.exists():
        return []
    with path.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
        text = stream.read().decode("utf-8", errors="replace")
    return [line for line in text.splitlines() if line.strip()][-count:]
