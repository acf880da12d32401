"""The grid's step beside the round's own measurement: one set of draws, one set of figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dynamicrubric import steps
from dynamicrubric.errors import InstrumentError


def evaluate(
    tiny: Any, where: Path, round_number: int, before: Path | None = None, **changed: Any
) -> Path:
    """Measure the tiny policy and generator as a round does."""
    where.mkdir()
    steps.evaluate_round(
        recipe=tiny.recipe(round=round_number, **changed),
        policy_dir=str(tiny.policy),
        generator_dir=str(tiny.generator),
        start_policy_dir=str(tiny.policy),
        prepared_dir=str(tiny.prepared),
        out_dir=str(where),
        before_dir=str(before) if before else None,
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
    tiny: Any, tmp_path: Path
) -> None:
    many: dict[str, Any] = {"evaluation": {"sets_per_prompt": 8}}
    figures = {}
    for weights in ("written", "equal"):
        recipe = {**many, "rubrics": {"weights": weights}}
        own = evaluate(tiny, tmp_path / weights, 0, **recipe)
        found = grid(tiny, tmp_path / f"{weights}-grid", {"P_0": own}, **recipe)
        figures[weights] = json.loads((found / "metrics.json").read_text())["metrics"]["G_0"]["P_0"]
        expected = json.loads((own / "metrics.json").read_text())["metrics"]
        assert figures[weights] == {name: expected[name] for name in figures[weights]}
    assert figures["written"]["items_per_rubric"] == figures["equal"]["items_per_rubric"]
    assert figures["written"]["delta_gap"] != figures["equal"]["delta_gap"]


def test_grid_above_a_limit_says_whose_sets_and_which_generator(
    tiny: Any, evaluations: dict[str, Path], tmp_path: Path
) -> None:
    broken = {"verifier": {"failure_rate": 0.9, "max_unscored_rate": 0.5}}
    with pytest.raises(InstrumentError, match="held-out sets of P_0 under G_0"):
        grid(tiny, tmp_path / "grid", evaluations, **broken)


def test_round_measures_its_generator_on_the_responses_of_the_round_before(
    tiny: Any, evaluations: dict[str, Path], tmp_path: Path
) -> None:
    noisy = {"verifier": {"error_rate": 0.2, "failure_rate": 0.1}}
    before = evaluations["P_0"]
    found = evaluate(tiny, tmp_path / "1", 1, before, **noisy)
    pd.testing.assert_frame_equal(  # the same generator: what the round before measured itself
        pd.read_parquet(found / "before.parquet"), pd.read_parquet(before / "rubrics.parquet")
    )
    alone = evaluations["P_1"]
    assert not (alone / "before.parquet").exists()
    for name in ("responses.parquet", "rubrics.parquet", "verdicts.parquet", "metrics.json"):
        assert (found / name).read_bytes() == (alone / name).read_bytes()
