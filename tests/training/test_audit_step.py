"""Weights kept in training and the audit's step, beside what a round measures of the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dynamicrubric import steps
from dynamicrubric.audit.measure import heldout_anchors, reward_spreads
from dynamicrubric.config import WorldConfig
from dynamicrubric.report.celltables import CellTables
from dynamicrubric.report.gapparts import gap_parts
from dynamicrubric.worlds.base import world_named
from dynamicrubric.worlds.prepared import load_prepared

WORLD = {"name": "postcards", "seed": 3, "num_heldout_prompts": 8, "num_anchors": 5}


def train(tiny: Any, where: Path, every: int) -> tuple[Path, Path]:
    """Train the generator for three steps; return its artefact and the weights that were kept."""
    out, work = where / "out", where / "work"
    for folder in (out, work):
        folder.mkdir(parents=True)
    steps.train_generator(
        recipe=tiny.recipe(),
        generator_dir=str(tiny.generator),
        responses_dir=str(tiny.responses),
        prepared_dir=str(tiny.prepared),
        out_dir=str(out),
        work_dir=str(work),
        checkpoint_every_steps=10,
        snapshot_every_steps=every,
    )
    return out, work / "snapshots"


@pytest.fixture(scope="module")
def trained(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return train(tiny, tmp_path_factory.mktemp("kept"), every=1)


def test_keeping_weights_on_the_way_changes_nothing_that_is_trained(
    tiny: Any, trained: tuple[Path, Path], tmp_path: Path
) -> None:
    out, kept = trained
    plain, none = train(tiny, tmp_path, every=0)
    assert not none.exists()
    assert sorted(path.name for path in kept.iterdir()) == ["step-000001", "step-000002"]
    for path in plain.iterdir():
        assert path.read_bytes() == (out / path.name).read_bytes(), path.name
    weights = {(one / "model.safetensors").read_bytes() for one in (*kept.iterdir(), out)}
    assert len(weights) == 3


def test_step_measures_what_rounds_measure_and_anchors_of_heldout_prompts(
    tiny: Any, trained: tuple[Path, Path], tmp_path: Path
) -> None:
    out, kept = trained
    recipe = tiny.recipe()
    evaluation, before, audit = (tmp_path / name for name in ("0", "1", "audit"))
    for folder in (evaluation, before, audit):
        folder.mkdir()
    common = {"policy_dir": str(tiny.policy), "start_policy_dir": str(tiny.policy),
              "prepared_dir": str(tiny.prepared)}  # fmt: skip
    steps.evaluate_round(
        recipe=tiny.recipe(round=0), generator_dir=str(tiny.generator), out_dir=str(evaluation),
        **common,
    )  # fmt: skip
    steps.evaluate_round(
        recipe=recipe, generator_dir=str(out), out_dir=str(before), before_dir=str(evaluation),
        **common,
    )  # fmt: skip
    folders = {0: tiny.generator, 1: kept / "step-000001", 3: out}
    steps.audit_checkpoints(
        policies=[{"name": "start", "round": 1, "sets": str(evaluation)}],
        checkpoints=[
            {"name": f"cell/{step}", "policy": "start", "cell": "cell", "step": step, "steps": 3,
             "directory": str(folder), "trained": str(out), "recipe": recipe}
            for step, folder in folders.items()
        ],
        world=WORLD,
        prepared_dir=str(tiny.prepared),
        out_dir=str(audit),
    )  # fmt: skip
    rows = pd.read_parquet(audit / "measurements.parquet")
    own = {step: rows[rows["checkpoint"] == f"cell/{step}"] for step in folders}
    columns = ["rubric_id", "text", "delta_gap", "r_disc", "r_dir", "r_cov"]
    for step, stored in ((0, evaluation / "rubrics.parquet"), (3, before / "before.parquet")):
        pd.testing.assert_frame_equal(
            own[step][columns].reset_index(drop=True), pd.read_parquet(stored)[columns]
        )
    assert own[1]["text"].tolist() != own[3]["text"].tolist()
    scored = rows.dropna(subset=["r_disc"])
    assert len(scored) and (scored["anchor_r_anchor"] < 0).all()
    document = json.loads((audit / "checkpoints.json").read_text())
    assert [one["step"] for one in document["checkpoints"]] == [0, 1, 3]
    assert document["checkpoints"][0]["anchor"] == 1.0
    assert document["spreads"]["cell"]["disc"] == reward_spreads(out).disc


def test_heldout_anchors_are_ranked_lists_of_heldout_prompts_alone(tiny: Any) -> None:
    prepared = load_prepared(tiny.prepared)
    world = WorldConfig.model_validate(WORLD)
    found = heldout_anchors(prepared, world)
    assert found.keys() == prepared.prompts["heldout"].keys()
    assert not found.keys() & prepared.anchors.keys()
    quality = world_named("postcards").true_quality
    for prompt, texts in found.items():
        values = [quality(prompt, text) for text in texts]
        assert len(values) == 5 and values == sorted(values, reverse=True)
    assert heldout_anchors(prepared, world) == found


def test_reward_spreads_are_medians_over_groups_of_rollouts(tmp_path: Path) -> None:
    rows = [
        {"step": step, "row": "a", "r_disc": disc, "r_anchor": -1.0}
        for step, values in ((1, (0.0, 0.2)), (2, (0.1, 0.1)), (3, (0.0, 0.4)))
        for disc in values
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "rollouts.parquet")
    found = reward_spreads(tmp_path)
    # standard deviations 0.1414 and 0.2828; the group without spread teaches nothing
    assert found.disc == pytest.approx(0.2121, abs=1e-4)
    assert found.anchor is None


def test_parts_by_item_are_those_of_a_rounds_own_tables(tiny: Any, tmp_path: Path) -> None:
    found = tmp_path / "evaluation"
    found.mkdir()
    steps.evaluate_round(
        recipe=tiny.recipe(round=0, verifier={"failure_rate": 0.1}),
        policy_dir=str(tiny.policy), generator_dir=str(tiny.generator),
        start_policy_dir=str(tiny.policy), prepared_dir=str(tiny.prepared), out_dir=str(found),
    )  # fmt: skip
    frames: Any = {name: pd.read_parquet(found / f"{name}.parquet")
              for name in ("responses", "rubrics", "verdicts")}  # fmt: skip
    tables = CellTables(files=None, figures={}, before=None, **frames)
    parts = gap_parts(tables)
    stored = json.loads((found / "metrics.json").read_text())["metrics"]
    assert parts.sets == stored["delta_gap"]["n_scored"] > 0
    assert parts.identity_error <= 1e-12 and parts.deviation <= 1e-12
    assert parts.total("delta_gap") == pytest.approx(stored["delta_gap"]["value"])
    assert parts.total("wrong") == pytest.approx(2 * stored["r_dir"]["value"])
    assert parts.total("cov") == pytest.approx(stored["r_cov"]["value"], abs=1e-12)
    assert parts.total("disc") == pytest.approx(2 * 4 / 3 * stored["r_disc"]["value"])
    assert parts.gap_under("uniform") == pytest.approx(stored["delta_gap"]["value"])
    items = sum(one.items for one in parts.criteria.values())
    whole = frames["rubrics"].dropna(subset=["delta_gap"])
    assert items == int(whole["num_items"].sum())
    frames["rubrics"].loc[frames["rubrics"]["delta_gap"].notna(), "r_dir"] += 0.1
    assert gap_parts(tables).deviation == pytest.approx(0.1)
