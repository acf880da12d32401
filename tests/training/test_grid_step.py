"""The grid's step beside the round's own measurement: one set of draws, one set of figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dynamicrubric import steps
from dynamicrubric.errors import InstrumentError


def evaluate(tiny: Any, where: Path, round_number: int, **changed: Any) -> Path:
    """Measure the tiny policy and generator as a round does."""
    where.mkdir()
    steps.evaluate_round(
        recipe=tiny.recipe(round=round_number, **changed),
        policy_dir=str(tiny.policy),
        generator_dir=str(tiny.generator),
        start_policy_dir=str(tiny.policy),
        prepared_dir=str(tiny.prepared),
        out_dir=str(where),
    )
    return where


def grid(tiny: Any, where: Path, evaluations: dict[str, Path], **changed: Any) -> Path:
    """Measure two generators, the tiny one and the same again, on the evaluations' sets."""
    where.mkdir()
    steps.evaluate_grid(
        recipe=tiny.recipe(**changed),
        rounds={name: number for number, name in enumerate(evaluations)},
        evaluation_dirs={name: str(path) for name, path in evaluations.items()},
        generator_dirs={"G_0": str(tiny.generator), "G~_2": str(tiny.generator)},
        out_dir=str(where),
    )
    return where


@pytest.fixture(scope="module")
def evaluations(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("grid")
    noisy = {"verifier": {"error_rate": 0.2, "failure_rate": 0.1}}
    return {f"P_{t}": evaluate(tiny, root / str(t), t, **noisy) for t in (0, 1)}


def test_grid_measures_again_what_the_rounds_own_evaluation_measured(
    tiny: Any, evaluations: dict[str, Path], tmp_path: Path
) -> None:
    noisy = {"verifier": {"error_rate": 0.2, "failure_rate": 0.1}}
    found = grid(tiny, tmp_path / "grid", evaluations, **noisy)
    figures = json.loads((found / "metrics.json").read_text())["metrics"]
    rubrics = pd.read_parquet(found / "rubrics.parquet")
    assert {generator: set(own) for generator, own in figures.items()} == {
        "G_0": {"P_0", "P_1"}, "G~_2": {"P_0", "P_1"}
    }  # fmt: skip
    for (generator, policy), rows in rubrics.groupby(["generator", "policy"]):
        own = json.loads((evaluations[policy] / "metrics.json").read_text())["metrics"]
        assert figures[generator][policy] == {name: own[name] for name in figures["G_0"]["P_0"]}
        table = rows.drop(columns=["generator", "policy"]).reset_index(drop=True)
        pd.testing.assert_frame_equal(
            table, pd.read_parquet(evaluations[policy] / "rubrics.parquet")
        )
    assert figures["G_0"]["P_0"] != figures["G_0"]["P_1"]


def test_grid_without_weights_is_the_rounds_own_evaluation_without_them(
    tiny: Any, evaluations: dict[str, Path], tmp_path: Path
) -> None:
    equal = {"rubrics": {"weights": "equal"}, "verifier": {"error_rate": 0.2, "failure_rate": 0.1}}
    own = evaluate(tiny, tmp_path / "own", 0, **equal)
    found = grid(tiny, tmp_path / "grid", {"P_0": own}, **equal)
    figures = json.loads((found / "metrics.json").read_text())["metrics"]["G_0"]["P_0"]
    expected, written = (
        json.loads((folder / "metrics.json").read_text())["metrics"]
        for folder in (own, evaluations["P_0"])
    )
    assert figures == {name: expected[name] for name in figures}
    assert figures["delta_gap"] != written["delta_gap"]


def test_grid_above_a_limit_says_whose_sets_and_which_generator(
    tiny: Any, evaluations: dict[str, Path], tmp_path: Path
) -> None:
    broken = {"verifier": {"failure_rate": 0.9, "max_unscored_rate": 0.5}}
    with pytest.raises(InstrumentError, match="held-out sets of P_0 under G_0"):
        grid(tiny, tmp_path / "grid", evaluations, **broken)
