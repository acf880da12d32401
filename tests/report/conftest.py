"""Studies that are written once for all tests that only read them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HELPERS = str(Path(__file__).parent)


@pytest.fixture(scope="session")
def shared_study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Return a function that writes a finished study, once for equal options.

    For tests that only read it; what writes or harms a cell takes `fake_study`.
    """
    sys.path.insert(0, HELPERS)
    from fakestudy import FakeStudy

    found: dict[str, Any] = {}

    def study(**options: Any) -> Any:
        key = repr(sorted(options.items()))
        if key not in found:
            found[key] = FakeStudy(tmp_path_factory.mktemp("shared") / "project", **options)
        return found[key]

    yield study
    sys.path.remove(HELPERS)
