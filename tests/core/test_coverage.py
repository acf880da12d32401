"""The simulation of the interval, with few studies: it passes, and would notice a broken interval.

`python benchmarks/coverage.py` is the whole of it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dynamicrubric import stats

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "coverage.py"
STUDIES = 200
LOWEST = 0.9  # of 0.95; with the normal distribution it is about 0.8


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def held(simulation: ModuleType, name: str, num_seeds: int) -> float:
    shape = next(shape for shape in simulation.SHAPES if shape.name == name)
    of = simulation.Configuration(shape, num_seeds, simulation.UNSCORED)
    return simulation.coverage(of, STUDIES, lambda: None).share


@pytest.mark.parametrize("name", ["seeds differ most", "prompts differ most"])
@pytest.mark.parametrize("num_seeds", [3, 5])
def test_interval_holds_the_truth_of_simulated_studies(
    simulation: ModuleType, name: str, num_seeds: int
) -> None:
    assert held(simulation, name, num_seeds) >= LOWEST


def test_interval_with_the_normal_distribution_in_place_of_t_is_noticed(
    simulation: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = stats.crossed_variance
    monkeypatch.setattr(stats, "crossed_variance", lambda *a: (right(*a)[0], 1e9))
    assert held(simulation, "seeds differ most", 3) < LOWEST


def test_interval_of_seeds_taken_for_independent_rows_is_noticed(
    simulation: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds resampled together with nothing: the prompts' share is divided by the seeds."""
    monkeypatch.setattr(
        stats, "crossed_variance", lambda parts, *counts: (parts.remainder, float(counts[1]))
    )
    assert held(simulation, "prompts differ most", 5) < LOWEST


def test_copies_of_rows_change_no_estimate(simulation: ModuleType) -> None:
    for of in simulation.configurations()[::5]:
        assert simulation.copies_change_nothing(of)
