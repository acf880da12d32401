"""A hub on loopback and a finished study with weights, for every test of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fakehub import FakeHub, fake_hub
from project import give_weights, write_study


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    """An empty hub."""
    with fake_hub() as running:
        yield running


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two arms with three seeds and one round, the first seed's first cell with weights.

    For tests that only read it.
    """
    helpers = str(Path(__file__).parents[1] / "report")
    sys.path.insert(0, helpers)
    from fakestudy import FakeStudy

    root = tmp_path_factory.mktemp("hub") / "project"
    made = FakeStudy(root, arms=("coevolved", "frozen"), seeds=(1, 2, 3), rounds=1)
    sys.path.remove(helpers)
    give_weights(made, "coevolved-s1-r1", "policy")
    give_weights(made, "coevolved-s1-r1", "generator")
    write_study(made)
    yield made
