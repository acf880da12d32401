"""Studies that are written once for all tests that only read them, and reports without drawing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def _without_pictures() -> Iterator[None]:
    def save(figure: Any, path: Path, **options: Any) -> None:
        path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", save)
        yield


@pytest.fixture(scope="session")
def without_pictures() -> Callable[[], Any]:
    """Return a context in which pictures are files without a picture.

    Drawing is nearly all of a report's time; tests of words and tables do without.
    """
    return _without_pictures


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Run a test in the context of `without_pictures`."""
    with _without_pictures():
        yield
