"""A tiny cell's trajectory against golden.json: what a step computes and its version go together.

A step's version (dynamicrubric/versions.py) is part of its identity, so a change of behaviour under
an old number would mix results of two kinds in one study. If a test here fails and the change is
meant, raise the number of the step it names, and write the trajectory anew:

    GOLDEN=write python -m pytest tests/training/test_golden.py

Texts are compared exactly, numbers with a tolerance: processors round differently. So that this
holds on any of them, the cell starts from models that are written and not trained: they know which
token follows which. A hundred steps of training would blow a rounding up into other texts.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from dynamicrubric import steps
from dynamicrubric.engines.tokenizer import FrameTokenizer
from dynamicrubric.prompts.frames import ANSWER
from dynamicrubric.versions import STEP_VERSIONS
from dynamicrubric.worlds.prepared import read_jsonl

GOLDEN: Final = Path(__file__).with_name("golden.json")
ARMS: Final = Path(__file__).with_name("golden_arms.json")
"""The same of arms whose evaluator gives scores without verdicts: it came later."""
COMMAND: Final = "GOLDEN=write python -m pytest tests/training/test_golden.py"
ORDER: Final = (
    "prepare", "warm_start", "sample_responses", "train_generator", "train_policy",
    "evaluate_round", "evaluate_grid", "audit_checkpoints",
)  # fmt: skip
"""Each step after the ones it builds on: the first that differs is the one that changed."""
AUDITED: Final = ("delta_gap", "r_disc", "r_dir", "anchor_r_anchor")
TOLERANCE: Final = 0.01
SMALL: Final = 1e-4
HIDDEN_SIZE: Final = 192
UNSEEN: Final = -14.0
"""Log-probability of a pair of tokens that no text has."""
SHORT_WARM_START: Final = {"steps": 10, "batch_size": 8, "learning_rate": 1e-3}
DATA_FILES: Final = (
    "prompts.jsonl", "anchors.jsonl", "sft_policy.jsonl", "sft_generator.jsonl",
    "tokenizer/tokenizer.json",
)  # fmt: skip


def pairs_model(tokenizer: FrameTokenizer, texts: Sequence[str]) -> LlamaForCausalLM:
    """Write a model that draws each token from what follows the one before it in `texts`.

    Its only layer adds nothing, and each token of the texts has a dimension of its own.
    """
    rows = [[tokenizer.control(ANSWER), *tokenizer.content(t), tokenizer.eos_id] for t in texts]
    follows = Counter(pair for row in rows for pair in pairwise(row))
    starts = Counter(token for row in rows for token in row[:-1])
    assert len(starts) <= HIDDEN_SIZE, "too many different tokens for the golden models"
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer.hf), hidden_size=HIDDEN_SIZE, intermediate_size=32,
            num_hidden_layers=1, num_attention_heads=4, max_position_embeddings=1024,
            tie_word_embeddings=False, bos_token_id=tokenizer.hf.bos_token_id,
            eos_token_id=tokenizer.eos_id, pad_token_id=tokenizer.pad_id, dtype="float32",
        )
    )  # fmt: skip
    place = {token: dimension for dimension, token in enumerate(sorted(starts))}
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        head = torch.full_like(model.lm_head.weight, UNSEEN)
        for token, dimension in place.items():
            model.model.embed_tokens.weight[token] = torch.eye(HIDDEN_SIZE)[dimension]
        for (token, after), count in follows.items():
            head[after, place[token]] = math.log(count / starts[token])
        model.lm_head.weight.copy_(head / math.sqrt(HIDDEN_SIZE))  # the norm scales by the root
    return model


def written_world(tiny: Any, root: Path) -> Any:
    """Return the tiny world with written models in the place of the trained ones."""
    root.mkdir()
    shutil.copytree(tiny.prepared, root / "prepared")
    tokenizer = FrameTokenizer.load(root / "prepared" / "tokenizer")
    for role, field in (("policy", "response"), ("generator", "rubric")):
        rows = read_jsonl(root / "prepared" / f"sft_{role}.jsonl")
        pairs_model(tokenizer, [row[field] for row in rows]).save_pretrained(str(root / role))
        tokenizer.hf.save_pretrained(str(root / role))
    (root / "responses").mkdir()
    world = type(tiny)(root)
    steps.sample_responses(
        recipe=world.recipe(),
        policy_dir=str(world.policy),
        prepared_dir=str(world.prepared),
        out_dir=str(world.responses),
    )
    return world


def warm_losses(world: Any, role: str, where: Path) -> list[float]:
    """Train a short warm start; return its losses."""
    where.mkdir()
    steps.warm_start(
        role=role,
        prepared_dir=str(world.prepared),
        backbone={"hidden_size": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 1024},
        settings=SHORT_WARM_START,
        seed=1,
        out_dir=str(where),
        work_dir=str(where.with_name(f"work-{role}")),
    )
    return [line["metrics"]["loss"] for line in read_jsonl(where / "training_log.jsonl")]


def trajectory(tiny: Any, where: Path) -> dict[str, dict[str, Any]]:
    """Run every step of a tiny cell; return what each computed, by step."""
    where.mkdir()
    world = written_world(tiny, where / "world")
    slowly = {"learning_rate": 1e-4}  # so that a rounding is no other text at the end
    generator = world.train_generator(where / "trained", generator_training=slowly)
    static = world.train_generator(
        where / "static",
        rubrics={"evaluator": "static"},
        generator_training={"responses": "anchors", "steps": 1, **slowly},
    )
    policy = world.train_policy(where / "policy", generator=generator.out, policy_training=slowly)
    measured = {"start_policy_dir": str(world.policy), "prepared_dir": str(world.prepared)}
    for name in ("start", "evaluation"):
        (where / name).mkdir()
    steps.evaluate_round(
        recipe=world.recipe(round=0),
        policy_dir=str(world.policy),
        generator_dir=str(world.generator),
        out_dir=str(where / "start"),
        **measured,
    )
    steps.evaluate_round(
        recipe=world.recipe(),
        policy_dir=str(policy.out),
        generator_dir=str(generator.out),
        out_dir=str(where / "evaluation"),
        before_dir=str(where / "start"),
        **measured,
    )
    figures = json.loads((where / "evaluation" / "metrics.json").read_text())["metrics"]
    (where / "grid").mkdir()
    steps.evaluate_grid(
        recipe=world.recipe(),
        rounds={"P_1": 1},
        evaluation_dirs={"P_1": str(where / "evaluation")},
        generator_dirs={"G_0": str(world.generator)},
        out_dir=str(where / "grid"),
    )
    grid = json.loads((where / "grid" / "metrics.json").read_text())["metrics"]["G_0"]["P_1"]
    audit = audited(world, generator.out, where)
    return {
        "prepare": {name: digest(tiny.root / "whole" / name) for name in DATA_FILES},
        "warm_start": {
            role: warm_losses(world, role, where / f"warm-{role}")
            for role in ("policy", "generator")
        },
        "sample_responses": {"texts": column(world.responses / "responses.parquet", "text")},
        "train_generator": {
            "metrics": metrics(generator.log),
            "texts": generator.rollouts["text"].tolist(),
            "kept": [row["text"] for row in read_jsonl(static.out / "rubrics.jsonl")],
        },
        "train_policy": {
            "metrics": metrics(policy.log),
            "texts": policy.rollouts["text"].tolist(),
            "rubrics": policy.rollouts["rubric"].tolist()[:: world.recipe()["responses_per_set"]],
            "verdicts": [",".join(row) for row in policy.rollouts["verdicts"]],
        },
        "evaluate_round": {
            "figures": {name: found["value"] for name, found in figures.items()},
            "texts": column(where / "evaluation" / "responses.parquet", "text"),
            "rubrics": column(where / "evaluation" / "rubrics.parquet", "text"),
            "before": column(where / "evaluation" / "before.parquet", "text"),
        },
        "evaluate_grid": {
            "figures": {name: found["value"] for name, found in grid.items()},
            "rubrics": column(where / "grid" / "rubrics.parquet", "text"),
        },
        "audit_checkpoints": {
            "figures": {
                name: {figure: float(rows[figure].dropna().mean()) for figure in AUDITED}
                for name, rows in audit.groupby("checkpoint")
            },
            "rubrics": audit["text"].tolist(),
        },
    }


def arms_trajectory(tiny: Any, where: Path) -> dict[str, dict[str, Any]]:
    """Run a tiny round of each arm that is scored without verdicts; return what it computed."""
    where.mkdir()
    world = written_world(tiny, where / "world")
    found: dict[str, dict[str, Any]] = {}
    for kind in ("scalar", "scalar_set", "length", "random"):
        recipe: dict[str, Any] = {"rubrics": {"evaluator": kind}, "generator_training": None}
        generator, log = world.generator, []
        if kind.startswith("scalar"):
            recipe["reward_training"] = {"steps": 2, "batch_size": 4, "learning_rate": 1e-4}
            model = world.train_generator(where / f"{kind}-model", **recipe)
            generator, log = model.out, metrics(model.log)
        slowly = {"policy_training": {"learning_rate": 1e-4, "steps": 2}}
        policy = world.train_policy(where / kind, generator=generator, **recipe, **slowly)
        (where / f"{kind}-round").mkdir()
        steps.evaluate_round(
            recipe=world.recipe(**recipe),
            policy_dir=str(policy.out),
            generator_dir=str(generator),
            start_policy_dir=str(world.policy),
            prepared_dir=str(world.prepared),
            out_dir=str(where / f"{kind}-round"),
        )
        figures = json.loads((where / f"{kind}-round" / "metrics.json").read_text())["metrics"]
        found[kind] = {
            "reward_model": log,
            "policy": metrics(policy.log),
            "texts": policy.rollouts["text"].tolist(),
            "scores": policy.rollouts["score"].tolist(),
            "figures": {name: one["value"] for name, one in figures.items()},
        }
    return found


def audited(world: Any, trained: Path, where: Path) -> pd.DataFrame:
    """Audit the generator before and after its training on the start policy's responses."""
    (where / "audit").mkdir()
    steps.audit_checkpoints(
        policies=[{"name": "start", "round": 1, "sets": str(where / "start")}],
        checkpoints=[
            {"name": f"G_{step}", "policy": "start", "cell": "cell", "step": step, "steps": 1,
             "directory": str(folder), "trained": str(trained), "recipe": world.recipe()}
            for step, folder in enumerate((world.generator, trained))
        ],
        world={"name": "postcards", "seed": 3, "num_heldout_prompts": 8, "num_anchors": 5},
        prepared_dir=str(world.prepared),
        out_dir=str(where / "audit"),
    )  # fmt: skip
    return pd.read_parquet(where / "audit" / "measurements.parquet")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def column(table: Path, name: str) -> list[str]:
    return pd.read_parquet(table)[name].tolist()


def metrics(log: list[dict[str, Any]]) -> list[dict[str, float]]:
    return [line["metrics"] for line in log]


def difference(old: Any, new: Any, place: str = "") -> str | None:
    """Return the first place where two trajectories differ, with both values, or None."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        if old.keys() != new.keys():
            return f"{place}: {sorted(old)} before, {sorted(new)} now"
        pairs = [(f"{place}.{key}", old[key], new[key]) for key in old]
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            return f"{place}: {len(old)} entries before, {len(new)} now"
        pairs = [(f"{place}[{n}]", a, b) for n, (a, b) in enumerate(zip(old, new, strict=True))]
    elif isinstance(old, float | int) and isinstance(new, float | int):
        same = new == pytest.approx(old, rel=TOLERANCE, abs=SMALL)
        return None if same else f"{place}: {old} before, {new} now"
    else:
        return None if old == new else f"{place}: {old!r} before, {new!r} now"
    return next((found for pair in pairs if (found := difference(pair[1], pair[2], pair[0]))), None)


@pytest.fixture(scope="module")
def now(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = {
        "versions": STEP_VERSIONS,
        "steps": trajectory(tiny, tmp_path_factory.mktemp("golden") / "cell"),
    }
    if os.environ.get("GOLDEN") == "write":
        text = json.dumps(found, indent=1, ensure_ascii=False)
        GOLDEN.write_text(text + "\n", encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def arms_now(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = arms_trajectory(tiny, tmp_path_factory.mktemp("golden-arms") / "cells")
    if os.environ.get("GOLDEN") == "write":
        text = json.dumps(found, indent=1, ensure_ascii=False)
        ARMS.write_text(text + "\n", encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


def test_golden_trajectory_is_of_the_versions_there_are(
    now: dict[str, Any], golden: dict[str, Any]
) -> None:
    assert golden["versions"] == STEP_VERSIONS, f"a version was raised; write it anew: {COMMAND}"


def test_every_step_computes_what_its_version_computed(
    now: dict[str, Any], golden: dict[str, Any]
) -> None:
    assert golden["steps"].keys() == now["steps"].keys() == set(ORDER)
    for step in ORDER:
        found = difference(golden["steps"][step], now["steps"][step], step)
        assert found is None, (
            f"step {step!r} (version {STEP_VERSIONS[step]}) computes something else than when "
            f"golden.json was written: {found}. If that is meant, raise STEP_VERSIONS[{step!r}] in "
            f"dynamicrubric/versions.py, run `dynamicrubric plan`, and then: {COMMAND}"
        )


def test_arms_scored_without_verdicts_compute_what_they_computed(
    arms_now: dict[str, Any],
) -> None:
    golden = json.loads(ARMS.read_text(encoding="utf-8"))
    for kind, now in arms_now.items():
        found = difference(golden[kind], now, kind)
        assert found is None, (
            f"the arm {kind!r} computes something else than when golden_arms.json was written: "
            f"{found}. If that is meant, raise the version of the step that changed "
            f"(train_generator trains reward models), run `dynamicrubric plan`, and then: {COMMAND}"
        )
    assert golden.keys() == arms_now.keys()


def test_every_step_that_computes_is_in_the_trajectory() -> None:
    carried = {"keep_generator"}  # links what an earlier round made
    assert set(ORDER) == STEP_VERSIONS.keys() - carried


def test_difference_names_the_place_and_both_values() -> None:
    old = {"texts": ["a", "b"], "loss": [0.5]}
    assert difference(old, {"texts": ["a", "b"], "loss": [0.5001]}, "s") is None
    assert difference(old, {"texts": ["a", "c"], "loss": [0.5]}, "s") == (
        "s.texts[1]: 'b' before, 'c' now"
    )
    assert difference(old, {"texts": ["a", "b"], "loss": [0.9]}, "s") == (
        "s.loss[0]: 0.5 before, 0.9 now"
    )
    assert difference(old, {"texts": ["a"], "loss": [0.5]}, "s") == (
        "s.texts: 2 entries before, 1 now"
    )
    assert difference({"a": 1}, {"b": 1}, "s") == "s: ['a'] before, ['b'] now"
    assert difference(None, None) is None
