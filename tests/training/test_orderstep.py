"""The order check with a real generator: in this process, and through the command's child."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from dynamicrubric import steps
from dynamicrubric.errors import InstrumentError
from dynamicrubric.honesty.cells import honesty_of
from dynamicrubric.honesty.orderstep import check_orders
from dynamicrubric.honesty_command import _in_child
from dynamicrubric.rubrics import parse_rubric
from dynamicrubric.types import Rubric


@pytest.fixture(scope="module")
def evaluation(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("orders") / "evaluation"
    return measured(tiny, where)


def measured(tiny: Any, where: Path, **changed: Any) -> Path:
    where.mkdir()
    steps.evaluate_round(
        recipe=tiny.recipe(**changed),
        policy_dir=str(tiny.policy),
        generator_dir=str(tiny.generator),
        start_policy_dir=str(tiny.policy),
        prepared_dir=str(tiny.prepared),
        out_dir=str(where),
    )
    return where


def request(tiny: Any, evaluation: Path, **changed: Any) -> dict[str, Any]:
    return {
        "recipe": tiny.recipe(), "evaluation_dir": str(evaluation),
        "generator_dir": str(tiny.generator), "prepared_dir": str(tiny.prepared), "engines": {},
        "orders": 3, "limit": None, **changed,
    }  # fmt: skip


def test_first_order_writes_the_stored_rubrics_again_and_others_are_compared(
    tiny: Any, evaluation: Path
) -> None:
    found = check_orders(**request(tiny, evaluation))
    assert found["sets"] == found["reproduced"] == 8
    assert found["orders"] == 3
    for name in ("permuted", "again"):
        assert found[name]["criteria_kept"]["n_total"] == 2 * 8
        assert 0.0 <= found[name]["criteria_kept"]["value"] <= 1.0
    stored = json.loads((evaluation / "metrics.json").read_text())["metrics"]["delta_gap"]
    assert found["gap"]["value"] == pytest.approx(stored["value"])
    json.dumps(found, allow_nan=False)


def test_figures_of_a_real_evaluation_are_plain_numbers(evaluation: Path) -> None:
    names = ("responses", "rubrics", "verdicts")
    tables = [pq.read_table(evaluation / f"{name}.parquet").to_pandas() for name in names]
    found = honesty_of(*tables)
    assert found.written == 8 and found.rubrics == int(tables[1]["valid"].sum())
    assert json.loads(json.dumps(asdict(found), allow_nan=False))["items"] == found.items


def test_command_runs_it_in_a_child_with_a_log_and_gets_the_same(
    tiny: Any, evaluation: Path, tmp_path: Path
) -> None:
    config: Any = SimpleNamespace(runtime=SimpleNamespace(task_deadline_minutes=10))
    asked = request(tiny, evaluation, orders=2, limit=3)
    found = _in_child(tmp_path, "tiny-s1-r1", config, asked)
    assert found == json.loads(json.dumps(check_orders(**asked)))
    assert found["sets"] == 3
    log = (tmp_path / "work/logs/tiny-s1-r1/orders.log").read_text()
    assert "progress 2 of 3 passes" in log


@pytest.mark.slow
def test_child_that_fails_is_told_with_its_log(tiny: Any, evaluation: Path, tmp_path: Path) -> None:
    config: Any = SimpleNamespace(runtime=SimpleNamespace(task_deadline_minutes=10))
    asked = request(tiny, evaluation, generator_dir=str(tmp_path / "nobody"))
    with pytest.raises(InstrumentError, match=r"ended with \d; all of its log is in .*orders\.log"):
        _in_child(tmp_path, "tiny-s1-r1", config, asked)


def test_child_past_its_deadline_is_ended(tiny: Any, evaluation: Path, tmp_path: Path) -> None:
    config: Any = SimpleNamespace(runtime=SimpleNamespace(task_deadline_minutes=0.0001))
    with pytest.raises(InstrumentError, match=r"ran past runtime\.task_deadline_minutes"):
        _in_child(tmp_path, "tiny-s1-r1", config, request(tiny, evaluation))


def test_order_averaged_evaluator_measures_averaged_rubrics_that_are_valid(
    tiny: Any, evaluation: Path, tmp_path: Path
) -> None:
    averaged = measured(tiny, tmp_path / "averaged", rubrics={"orders": 3})
    plain, several = (pd.read_parquet(one / "rubrics.parquet") for one in (evaluation, averaged))
    assert plain["valid"].all() or several["valid"].sum() >= plain["valid"].sum()
    assert (plain["text"] != several["text"]).any()
    for text in several["text"][several["valid"]]:
        assert isinstance(parse_rubric(text, min_items=1, max_items=2), Rubric)
    responses = [
        pd.read_parquet(one / "responses.parquet")["text"] for one in (evaluation, averaged)
    ]
    assert responses[0].tolist() == responses[1].tolist()


def test_policy_trains_under_rubrics_averaged_over_orders(tiny: Any, tmp_path: Path) -> None:
    run = tiny.train_policy(tmp_path / "run", rubrics={"orders": 3}, policy_training={"steps": 1})
    plain = tiny.train_policy(tmp_path / "plain", policy_training={"steps": 1})
    assert run.rollouts["text"].tolist() == plain.rollouts["text"].tolist()
    assert run.rollouts["rubric"].tolist() != plain.rollouts["rubric"].tolist()
    assert run.rollouts["score"].notna().any()
