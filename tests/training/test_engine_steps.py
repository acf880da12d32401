"""Steps whose roles are served by other engines than their own process."""

from __future__ import annotations

import json
import math
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("openai", reason="the optional extra `openai` is not installed")

from dynamicrubric import steps
from dynamicrubric.engines import vllm_child
from dynamicrubric.engines.identity import checkpoint_hash
from dynamicrubric.errors import InstrumentError
from dynamicrubric.worlds.prepared import read_jsonl

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "engines"))
from fakeendpoint import Answer, Asked, FakeEndpoint, chat, serving
from languageworld import LanguageWorld, shared_world
from ourchildren import children_running

ENGINES = Path(__file__).resolve().parents[1] / "engines"
VLLM = {"kind": "vllm", "dtype": "float32", "max_model_len": 1024}
JUDGE = {"kind": "openai", "model": "judge-1"}
CHOSEN = {
    "rubrics": {"engine": VLLM}, "policy_engine": VLLM,
    "verifier": {"kind": "language_model", "engine": JUDGE, "undecided_band": 0.0},
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> LanguageWorld:
    return shared_world(tmp_path_factory.getbasetemp())


class Judge:
    """P(yes) is 0.9 or 0.2, by the length of the question."""

    is_down = False

    def __call__(self, asked: Asked, _: int) -> Answer:
        if self.is_down:
            return Answer("no", 503)
        yes = 0.9 if len(asked.body["messages"][-1]["content"]) % 2 else 0.2
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
def places(
    endpoint: FakeEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Transformers stands for vLLM in its process, and a server of the test's for the endpoint."""
    monkeypatch.setenv("FAKE_CHILD_PROTOCOL", vllm_child.__file__)
    python = tmp_path / "python"
    program = f'exec "{sys.executable}" "{ENGINES / "hfchild.py"}" "$3" "$4" "$5"'
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    place = {
        "base_url": endpoint.url, "max_attempts": 1, "price_per_million_prompt_tokens": 1.0,
        "price_per_million_completion_tokens": 2.0,
    }  # fmt: skip
    return {
        "vllm": {"python": str(python)},
        "endpoints": {"judge-1": place},
        "log_dir": str(tmp_path / "logs"),
    }


def out_dir(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


@pytest.mark.slow
def test_round_is_sampled_and_written_by_vllm_and_judged_by_an_endpoint(
    world: LanguageWorld, places: dict[str, Any], judge: Judge, tmp_path: Path
) -> None:
    recipe = world.recipe(**CHOSEN, policy_training={"steps": 2})
    prepared = str(world.folder("prepared"))
    sampled = out_dir(tmp_path, "responses")
    steps.sample_responses(
        recipe=recipe, policy_dir=str(world.folder("policy_1")), prepared_dir=prepared,
        out_dir=str(sampled), engines=places,
    )  # fmt: skip
    base, adapter = (
        checkpoint_hash(folder)
        for folder in (world.folder("prepared") / "base", world.folder("policy_1"))
    )
    (by,) = json.loads((sampled / "engines.json").read_text("utf-8"))["engines"]
    assert (by["role"], by["checkpoint"]) == ("policy", f"{base}+{adapter}")
    assert len(pd.read_parquet(sampled / "responses.parquet")) == 16

    trained = out_dir(tmp_path, "policy")
    asked = {
        "recipe": recipe, "cell_hash": "c", "policy_dir": str(world.folder("policy_1")),
        "generator_dir": str(world.folder("generator_1")), "prepared_dir": prepared,
        "out_dir": str(trained), "work_dir": str(tmp_path / "work"),
        "checkpoint_every_steps": 1, "engines": places,
    }  # fmt: skip
    judge.is_down = True
    with pytest.raises(InstrumentError, match=r"gave no answer.*HTTP 503"):
        steps.train_policy(**asked)
    assert children_running("hfchild.py") == []
    judge.is_down = False
    steps.train_policy(**asked)
    log = read_jsonl(trained / "training_log.jsonl")
    rows = pd.read_parquet(trained / "rollouts.parquet")
    for line in log:
        judged = rows[rows["step"] == line["step"]]["verdicts"].map(len).sum()
        assert line["metrics"]["cost/calls"] == judged
        assert line["metrics"]["cost/price"] == pytest.approx(judged * (10 + 2 * 2) * 1e-6)
    assert set(rows["verdicts"].explode().dropna()) <= {"yes", "no"}
    roles = [
        one["role"] for one in json.loads((trained / "engines.json").read_text("utf-8"))["engines"]
    ]
    assert roles == ["generator", "verifier", "policy"]

    measured = out_dir(tmp_path, "evaluation")
    steps.evaluate_round(
        recipe=recipe, policy_dir=str(trained), generator_dir=str(world.folder("generator_1")),
        start_policy_dir=str(world.folder("policy")), prepared_dir=prepared,
        out_dir=str(measured), engines=places,
    )  # fmt: skip
    verdicts = pd.read_parquet(measured / "verdicts.parquet")
    assert len(verdicts) > 0, "a tiny base that writes no rubric tests nothing"
    assert set(verdicts["p_yes"].round(3)) == {0.9, 0.2}
    figures = json.loads((measured / "metrics.json").read_text("utf-8"))["metrics"]
    assert figures["kl"]["n_scored"] == figures["kl"]["n_total"] > 0
    assert list((tmp_path / "logs").glob("vllm-base-*.log"))


def counted_starts(places: dict[str, Any], tmp_path: Path) -> Path:
    """Have each start of a child leave a line in a file."""
    python, starts = Path(places["vllm"]["python"]), tmp_path / "starts"
    shebang, program = python.read_text().splitlines()
    python.write_text(f'{shebang}\necho started >> "{starts}"\n{program}\n')
    return starts


def test_policy_is_trained_beside_one_child_of_generator_and_verifier(
    world: LanguageWorld, places: dict[str, Any], tmp_path: Path
) -> None:
    starts, trained = counted_starts(places, tmp_path), out_dir(tmp_path, "policy")
    steps.train_policy(
        recipe=world.recipe(
            rubrics={"engine": VLLM, "constrained": True},
            verifier={"kind": "language_model", "engine": VLLM, "coverage_floor": 0.0},
            policy_training={"steps": 1},
        ),
        cell_hash="c", policy_dir=str(world.folder("policy_1")),
        generator_dir=str(world.folder("generator_1")),
        prepared_dir=str(world.folder("prepared")), out_dir=str(trained),
        work_dir=str(tmp_path / "work"), checkpoint_every_steps=1, engines=places,
    )  # fmt: skip
    assert starts.read_text().split() == ["started"]


@pytest.mark.slow
def test_static_generator_is_trained_and_writes_beside_one_child(
    world: LanguageWorld, places: dict[str, Any], tmp_path: Path
) -> None:
    starts = counted_starts(places, tmp_path)
    trained = out_dir(tmp_path, "generator")
    recipe = world.recipe(
        rubrics={"evaluator": "static", "engine": VLLM},
        verifier={"kind": "language_model", "engine": VLLM, "coverage_floor": 0.0},
        generator_training={"responses": "anchors", "steps": 1},
    )
    steps.train_generator(
        recipe=recipe, generator_dir=str(world.folder("generator")),
        responses_dir=str(world.folder("responses")),
        prepared_dir=str(world.folder("prepared")), out_dir=str(trained),
        work_dir=str(tmp_path / "work"), checkpoint_every_steps=1, engines=places,
    )  # fmt: skip
    engines = json.loads((trained / "engines.json").read_text("utf-8"))["engines"]
    # The verifier, the trainer's own model, and what wrote the kept rubrics after the training.
    assert [one["role"] for one in engines] == ["verifier", "generator", "generator"]
    start, written = (
        f"{engines[0]['checkpoint']}+{checkpoint_hash(folder)}"
        for folder in (world.folder("generator"), trained)
    )
    assert [one["checkpoint"] for one in engines[1:]] == [start, written]
    assert starts.read_text().split() == ["started"]


def evaluate(
    world: LanguageWorld, recipe: dict[str, Any], generator: Path, out: Path, places: dict[str, Any]
) -> list[dict[str, Any]]:
    """Measure a round; return the engines that answered."""
    steps.evaluate_round(
        recipe=recipe, policy_dir=str(world.folder("policy")), generator_dir=str(generator),
        start_policy_dir=str(world.folder("policy")),
        prepared_dir=str(world.folder("prepared")), out_dir=str(out), engines=places,
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads((out / "engines.json").read_text("utf-8"))["engines"]
    return found


@pytest.mark.slow
def test_rubrics_that_were_kept_to_a_form_are_measured_without_a_generator(
    world: LanguageWorld, places: dict[str, Any], tmp_path: Path
) -> None:
    arm: dict[str, Any] = {
        "rubrics": {"evaluator": "static", "engine": VLLM, "constrained": True},
        "verifier": {"kind": "language_model", "coverage_floor": 0.0, "max_unscored_rate": 1.0},
        "generator_training": None,
    }
    kept = out_dir(tmp_path, "kept")
    steps.train_generator(
        recipe=world.recipe(**arm), generator_dir=str(world.folder("generator")),
        responses_dir=str(world.folder("responses")),
        prepared_dir=str(world.folder("prepared")), out_dir=str(kept),
        work_dir=str(tmp_path / "work"), checkpoint_every_steps=1, engines=places,
    )  # fmt: skip
    assert not (kept / "adapter_config.json").exists(), "rubrics alone"
    recipe = world.recipe(**arm, policy_engine=VLLM)
    engines = evaluate(world, recipe, kept, out_dir(tmp_path, "evaluation"), places)
    assert {one["role"] for one in engines} == {"policy", "verifier"}


@pytest.mark.slow
def test_judge_that_rates_by_rubrics_shares_the_child_that_writes_them(
    world: LanguageWorld, places: dict[str, Any], tmp_path: Path
) -> None:
    starts = counted_starts(places, tmp_path)
    recipe = world.recipe(
        rubrics={"evaluator": "static_implicit", "engine": VLLM, "constrained": True},
        verifier={
            "kind": "language_model", "engine": VLLM, "coverage_floor": 0.0,
            "max_unscored_rate": 1.0,
        },
        generator_training=None, policy_training=None, round=0,
    )  # fmt: skip
    out = out_dir(tmp_path, "evaluation")
    engines = evaluate(world, recipe, world.folder("generator"), out, places)
    assert {one["role"] for one in engines} == {"policy", "generator", "verifier"}
    assert starts.read_text().split() == ["started"]
