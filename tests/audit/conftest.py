"""The made-up measurements are found by the tests beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def synthetic() -> Iterator[Any]:
    """Return the module that makes up measurements."""
    folder = str(Path(__file__).parent)
    sys.path.insert(0, folder)
    import syntheticaudit

    yield syntheticaudit
    sys.path.remove(folder)
