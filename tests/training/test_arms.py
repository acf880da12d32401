"""A round under each evaluator and switch that an arm may have, on the tiny world."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from dynamicrubric import steps
from dynamicrubric.evaluation import NO_RUBRIC
from dynamicrubric.explain import ResponseExplained, explain_response
from dynamicrubric.lineage import Training
from dynamicrubric.metrics import DERIVED_METRICS, ROUND_METRICS
from dynamicrubric.plan import Cell, parse_recipe
from dynamicrubric.report.cellfiles import CellFiles
from dynamicrubric.report.celltables import CellTables, read_tables
from dynamicrubric.report.costs import Cost, cost_of
from dynamicrubric.report.extremes import Extremes, extremes_of
from dynamicrubric.report.rubricchange import rubric_use
from dynamicrubric.worlds.postcards.criteria import LOWEST_QUALITY, true_quality
from dynamicrubric.worlds.postcards.prompts import prompt_by_id
from tasks.disk import sha256_of

NUM_PROMPTS = 4
"""Held-out prompts of the tiny world."""
OF_NO_RUBRIC = {"true_quality", "response_length", "kl"}
"""Figures that need no rubric."""
TWO_RULES = '[{"criterion":"greets the reader","weight":3},{"criterion":"sends a wish","weight":3}]'


def evaluated(tiny: Any, where: Path, policy: Path, generator: Path, **changed: Any) -> Path:
    where.mkdir()
    steps.evaluate_round(
        recipe=tiny.recipe(**changed),
        policy_dir=str(policy),
        generator_dir=str(generator),
        start_policy_dir=str(tiny.policy),
        prepared_dir=str(tiny.prepared),
        out_dir=str(where),
    )
    return where


@dataclass(frozen=True)
class ReadBack:
    """What the report and `explain` make of a round."""

    tables: CellTables
    extremes: Extremes
    cost: Cost
    explained: list[ResponseExplained]


def read_back(where: Path, recipe: dict[str, Any], run: Any, evaluation: Path) -> ReadBack:
    """Publish a round as a cell and read it; every check of its tables and lineage holds."""
    folder = where / "data/runs/arm-s1-r1"
    for name, source in {"policy": run.out, "evaluation": evaluation}.items():
        shutil.copytree(source, folder / name)
    (folder / "generator").mkdir()
    (folder / "generator" / "training_log.jsonl").touch()
    records: dict[str, Any] = {}
    for path in sorted(folder.iterdir()):
        files = {one.name: {"sha256": sha256_of(one)} for one in path.iterdir()}
        identity = {"rubrics": recipe["rubrics"], "responses_per_set": recipe["responses_per_set"]}
        records[path.name] = {
            "step": f"train_{path.name}", "identity": identity, "files": files,
            "inputs": {"generator": "generator"}, "content_hash": path.name,
            "provenance": {"seconds": 1.0},
        }  # fmt: skip
        (path / "record.json").write_text(json.dumps(records[path.name]))
    cell = Cell("arm-s1-r1", "arm-s1-r1-0", "0", "data/warm", None, parse_recipe(recipe))
    world = {"num_heldout_prompts": NUM_PROMPTS, "num_anchors": 5}
    plan: Any = SimpleNamespace(shared={"prepare": {"world": world}})
    tables = read_tables(plan, CellFiles(cell, folder, records))
    training = Training.open(where, cell.key, "policy")
    return ReadBack(
        tables,
        extremes_of(tables),
        cost_of(plan, tables.files),
        [explain_response(training, row["id"]) for row in training.rows],
    )


def figures(folder: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((folder / "metrics.json").read_text())["metrics"]
    return found


def test_oracles_round_trains_on_true_quality_and_measures_no_rubric(
    tiny: Any, tmp_path: Path
) -> None:
    oracle = {"rubrics": {"evaluator": "oracle"}, "generator_training": None}
    nobody = tmp_path / "no generator"
    run = tiny.train_policy(tmp_path / "run", generator=nobody, **oracle)
    rows = run.rollouts
    quality = [
        true_quality(prompt_by_id(key), text)
        for key, text in zip(rows["prompt_id"], rows["text"], strict=True)
    ]
    finished = rows["reward"] != LOWEST_QUALITY
    assert finished.any()
    assert rows["reward"][finished].tolist() == pd.Series(quality)[finished].tolist()
    assert rows["score"].isna().all() and rows["rubric"].isna().all()
    assert set(rows["score_reason"]) == {NO_RUBRIC}
    for line in run.log:
        assert -1.0 <= line["metrics"]["true_quality"] <= 1.0
        assert not {"score", "rate/invalid_rubric", "rate/unscored_verdict"} & set(line["metrics"])

    folder = evaluated(tiny, tmp_path / "evaluation", run.out, nobody, **oracle)
    found = figures(folder)
    assert found.keys() == set(ROUND_METRICS) - {"seconds", *DERIVED_METRICS}
    for name, figure in found.items():
        assert (figure["value"] is not None) == (name in OF_NO_RUBRIC), name
        assert (figure["n_scored"] > 0) == (name in OF_NO_RUBRIC), name
    assert set(pd.read_parquet(folder / "responses.parquet")["score_reason"]) == {NO_RUBRIC}
    rubrics = pd.read_parquet(folder / "rubrics.parquet")
    assert len(rubrics) == found["delta_gap"]["n_total"] > 0
    assert rubrics[["text", "valid", "invalid_reason", "delta_gap"]].isna().all(axis=None)
    assert pd.read_parquet(folder / "verdicts.parquet").empty

    read = read_back(tmp_path, tiny.recipe(**oracle), run, folder)
    assert (read.tables.num_written, sum(read.tables.is_valid)) == (0, 0)
    assert set(read.tables.by_prompt("delta_gap").values()) == {None}
    assert None not in read.tables.by_prompt("true_quality").values()
    assert (read.extremes.n_scored, read.extremes.most) == (0, ())
    assert rubric_use(read.tables).entropy is None
    assert (read.cost.steps, read.cost.verdicts) == (3, 0)
    assert read.cost.tokens is not None and read.cost.tokens > 0
    assert [one.cut for one in read.explained] == [not one for one in finished]
    assert {(one.judge, one.rubric, one.score) for one in read.explained} == {(None, None, None)}


def test_rule_based_round_scores_by_one_rubric_that_no_model_writes(
    tiny: Any, tmp_path: Path
) -> None:
    rules = {"rubrics": {"evaluator": "rule_based"}, "generator_training": None}
    nobody = tmp_path / "no generator"
    run = tiny.train_policy(tmp_path / "run", generator=nobody, **rules)
    assert set(run.rollouts["rubric"]) == {TWO_RULES}
    folder = evaluated(tiny, tmp_path / "evaluation", run.out, nobody, **rules)
    assert set(pd.read_parquet(folder / "rubrics.parquet")["text"]) == {TWO_RULES}
    assert figures(folder)["valid_rubric_rate"]["value"] == 1.0

    read = read_back(tmp_path, tiny.recipe(**rules), run, folder)
    assert read.tables.num_written == len(read.tables.rubrics) == sum(read.tables.is_valid)
    assert [item.weight for item in read.extremes.most[0].items] == [3, 3]
    assert read.cost.verdicts == 2 * len(run.rollouts)
    assert {one.judge for one in read.explained} == {None}


def test_equal_weights_count_items_alike_in_training_and_measurement(
    tiny: Any, tmp_path: Path
) -> None:
    kept = tiny.keep_rubrics(tmp_path / "kept")  # two items, of weights 2 and 1
    scores = {}
    for weights in ("written", "equal"):
        static = {"rubrics": {"evaluator": "static", "weights": weights}}
        run = tiny.train_policy(tmp_path / weights, generator=kept, **static)
        first = run.rollouts.query("step == 1 and score == score")
        scores[weights] = first["score"].tolist()
        counted = [
            (2 * a + b) / 3 if weights == "written" else (a + b) / 2
            for a, b in ((v[0] == "yes", v[1] == "yes") for v in first["verdicts"])
        ]
        assert scores[weights] == pytest.approx(counted)
        folder = evaluated(tiny, tmp_path / f"{weights}-e", run.out, kept, **static)
        table = pd.read_parquet(folder / "verdicts.parquet")
        assert set(table["weight"]) == ({1, 2} if weights == "written" else {1})
        # What the generator wrote stays what it wrote.
        assert any('"weight":2' in t for t in pd.read_parquet(folder / "rubrics.parquet")["text"])
        read = read_back(tmp_path / f"{weights}-cell", tiny.recipe(**static), run, folder)
        assert read.extremes.n_scored > 0
        counted_by = {item.weight for one in read.explained for item in one.items}
        assert counted_by == ({1, 2} if weights == "written" else {1})
    assert len(scores["written"]) == len(scores["equal"]) > 0


def test_noisy_anchors_change_the_reward_of_anchors_alone(tiny: Any, tmp_path: Path) -> None:
    first = {}
    for rate in (0.0, 1.0):
        training = {"steps": 1, "anchor_swap_rate": rate}
        run = tiny.train_generator(tmp_path / str(rate), generator_training=training)
        first[rate] = run.rollouts
    clean, noisy = first[0.0], first[1.0]
    assert clean["text"].tolist() == noisy["text"].tolist()
    assert clean["r_disc"].tolist() == noisy["r_disc"].tolist()
    assert clean["r_anchor"].tolist() != noisy["r_anchor"].tolist()
