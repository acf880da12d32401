"""How long a step has worked, over all its attempts: kept in its work folder while it works.

A killed attempt says nothing at its end, so the time is written down about once a second.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_WRITE_EVERY_SECONDS: Final = 1.0


class Spent:
    """Seconds of work, those of earlier attempts included."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = _read(path)
        self._seconds: float | None = None
        self._written_at = float("-inf")

    @property
    def seconds(self) -> float:
        """All of them."""
        return self._before + (self._seconds or 0.0)

    @property
    def is_noted(self) -> bool:
        """Whether this attempt has said how long it works."""
        return self._seconds is not None

    def note(self, seconds: float) -> None:
        """Say how long this attempt has worked by now, without what it waited for."""
        self._seconds = seconds
        if time.monotonic() - self._written_at >= _WRITE_EVERY_SECONDS:
            temporary = self._path.with_suffix(".tmp")
            temporary.write_text(f"{self.seconds}\n", encoding="utf-8")
            temporary.replace(self._path)
            self._written_at = time.monotonic()


def _read(path: Path) -> float:
    with suppress(FileNotFoundError, ValueError):
        return float(path.read_text(encoding="utf-8"))
    return 0.0
