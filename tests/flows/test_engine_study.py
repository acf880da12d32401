"""A round of the language world in which an endpoint on loopback gives the verdicts."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("openai", reason="the optional extra `openai` is not installed")

from dynamicrubric.yamlio import dump_yaml, load_yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "training"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "engines"))
from fakeendpoint import Answer, Asked, FakeEndpoint, chat, serving
from languageworld import LORA, WORLD, write_anchors, write_base

pytestmark = pytest.mark.slow
KEY = "sk-of-this-test"


class Judge:
    """Says yes to every second length of a question; P(yes) is 0.9 or 0.2."""

    def __init__(self) -> None:
        self.is_down = False

    def __call__(self, asked: Asked, _: int) -> Answer:
        if self.is_down:
            return Answer("no", 503)
        question = asked.body["messages"][-1]["content"]
        yes = 0.9 if len(question) % 2 else 0.2
        top = {"yes": math.log(yes), "no": math.log(1.0 - yes)}
        return Answer(chat("yes" if yes > 0.5 else "no", tokens=[("yes", top)]))


@pytest.fixture
def judge() -> Judge:
    return Judge()


@pytest.fixture
def endpoint(judge: Judge) -> Iterator[FakeEndpoint]:
    with serving(judge) as found:
        yield found


@pytest.fixture
def judged_study(project, endpoint: FakeEndpoint, tmp_path: Path, monkeypatch):
    """A project of the world "language" whose verifier is the endpoint's model."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect-home"))
    monkeypatch.setenv("JUDGE_KEY", KEY)
    write_base(project.root / "checkpoint")
    write_anchors(project.root / "anchors.jsonl")
    params: dict[str, Any] = load_yaml(project.root / "params.yaml")
    params["world"] = {**WORLD, "anchors": ["anchors.jsonl"]}
    params["backbone"] = {"checkpoint": "checkpoint", "dtype": "float32", "lora": LORA}
    params["warm_start"]["policy"] = {"steps": 0, "batch_size": 1, "learning_rate": 1e-3}
    params["warm_start"]["generator"] = {"steps": 2, "batch_size": 4, "learning_rate": 1e-2}
    params["recipe"]["policy"] |= {"steps": 2, "truncated": "scored"}
    params["recipe"]["generator"] |= {"first_steps": 2, "max_tokens": 48}
    params["evaluation"]["sets_per_prompt"] = 6  # a quarter of the base's rubrics is valid
    params["recipe"]["verifier"] |= {
        "max_unscored_rate": 1.0, "kind": "language_model",
        "engine": {"kind": "openai", "model": "judge-1"},
    }  # fmt: skip
    params["runtime"]["endpoints"] = {
        "judge-1": {
            "base_url": endpoint.url, "key_variable": "JUDGE_KEY", "max_attempts": 2,
            "price_per_million_prompt_tokens": 1.0, "price_per_million_completion_tokens": 2.0,
        }
    }  # fmt: skip
    params["study"]["arms"] = {"coevolved": params["study"]["arms"]["coevolved"]}
    dump_yaml(params, project.root / "params.yaml")
    return project


def test_round_is_judged_and_billed_by_the_endpoint(
    judged_study, endpoint: FakeEndpoint, judge: Judge
) -> None:
    judge.is_down = True
    said = judged_study.flow("ablation", fails=True)
    assert "gave no answer" in said
    assert "HTTP 503" in said
    assert "Traceback" not in said
    judge.is_down = False
    judged_study.flow("ablation")
    root = judged_study.root
    cell = root / "data" / "runs" / "coevolved-s1-r1"
    verdicts = pd.read_parquet(cell / "evaluation" / "verdicts.parquet")
    assert len(verdicts) > 0, "a tiny base that writes no rubric tests nothing"
    assert set(verdicts["p_yes"].round(3)) <= {0.9, 0.2}
    assert set(verdicts["value" if "value" in verdicts else "verdict"]) == {"yes", "no"}
    paid = json.loads((cell / "evaluation" / "engines.json").read_text("utf-8"))
    answered = {one["role"]: one["checkpoint"] for one in paid["engines"]}
    assert answered["verifier"] == "named:judge-1"
    assert answered.keys() == {"policy", "generator", "verifier"}
    cost = paid["cost"]
    assert cost["cost/calls"] >= len(verdicts)
    assert cost["cost/price"] == pytest.approx(
        cost["cost/prompt_tokens"] * 1e-6 + cost["cost/completion_tokens"] * 2e-6
    )
    for role in ("generator", "policy"):
        lines = (cell / role / "training_log.jsonl").read_text("utf-8").splitlines()
        assert all("cost/price" in json.loads(line)["metrics"] for line in lines)
        assert "cost" not in json.loads((cell / role / "engines.json").read_text("utf-8"))
    files = [path for path in root.rglob("*") if path.is_file() and path.stat().st_size < 1 << 24]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]

    asked = len(endpoint.asked)
    moved = {"base_url": "https://moved.example/v1", "key_variable": "JUDGE_KEY"}
    judged_study.change(runtime__endpoints={"judge-1": moved})
    judged_study.flow("ablation")  # DVC reads params.yaml again, and no cell is of another identity
    assert "Everything is up to date" in judged_study.flow("ablation")
    assert len(endpoint.asked) == asked
