"""A round over a pretrained base: adapters, the KL's reference, resuming, and what is measured."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from dynamicrubric import steps
from dynamicrubric.engines.identity import checkpoint_hash
from dynamicrubric.engines.models import Models
from dynamicrubric.engines.transformers import sequence_logprobs
from dynamicrubric.errors import UserError
from dynamicrubric.evaluationfiles import read_sets
from dynamicrubric.metrics import ANCHOR_METRICS, DERIVED_METRICS, ROUND_METRICS
from dynamicrubric.training import grpo
from dynamicrubric.worlds.prepared import load_prepared

sys.path.insert(0, str(Path(__file__).parent))
from languageworld import LanguageWorld, shared_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> LanguageWorld:
    """A world whose first round is trained; made once a test run."""
    return shared_world(tmp_path_factory.getbasetemp())


def adapter_of(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(folder / "adapter_model.safetensors")
    return found


def test_artefact_of_a_trained_role_is_an_adapter_with_its_tokenizer(world: LanguageWorld) -> None:
    for name in ("policy", "generator", "generator_1", "policy_1"):
        names = {path.name for path in world.folder(name).iterdir()}
        assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= names
        assert not names & {"model.safetensors", "README.md"}
        config = json.loads((world.folder(name) / "adapter_config.json").read_text("utf-8"))
        assert config["base_model_name_or_path"] == "data/prepared/base"
        assert str(world.root) not in json.dumps(config)


def test_every_rollout_records_its_engines_by_role_and_checkpoint(world: LanguageWorld) -> None:
    base = checkpoint_hash(world.folder("prepared") / "base")

    def own(name: str) -> str:
        return f"{base}+{checkpoint_hash(world.folder(name))}"

    judge = ("verifier", "named:language")  # a program: there are no weights to hash
    expected = {
        "responses": [("policy", own("policy"))],
        "generator_1": [judge, ("generator", own("generator"))],
        "policy_1": [("generator", own("generator_1")), judge, ("policy", own("policy"))],
    }
    for name, engines in expected.items():
        document = json.loads((world.folder(name) / "engines.json").read_text("utf-8"))
        assert [(one["role"], one["checkpoint"]) for one in document["engines"]] == engines
        if name != "responses":  # a training's own rollouts: each step has other weights
            assert "`step` - 1 updates" in document["engines"][-1]["settings"]["weights"]
    assert own("policy_1") != own("policy")


def test_roles_of_a_step_share_the_bases_weights_and_not_their_adapters(
    world: LanguageWorld,
) -> None:
    models = Models(load_prepared(world.folder("prepared")).base)
    policy, generator = (models.load(world.folder(name)) for name in ("policy_1", "generator_1"))
    base = {parameter.data_ptr() for parameter in models.base().parameters()}
    for model in (policy, generator):
        own = {p.data_ptr() for name, p in model.named_parameters() if "lora_" not in name}
        assert own == base
    first, second = (
        {p.data_ptr() for name, p in model.named_parameters() if "lora_" in name}
        for model in (policy, generator)
    )
    assert first
    assert not first & second


def test_start_policy_is_the_base_itself(world: LanguageWorld) -> None:
    models = Models(load_prepared(world.folder("prepared")).base)
    engine = models.engine(world.folder("policy"))
    prompts = [engine.tokenizer.policy_prompt("How many?")]
    completions = [[*engine.tokenizer.content("It may be 12."), engine.tokenizer.eos_id]]
    pad_id = engine.tokenizer.pad_id
    start, base, trained = (
        sequence_logprobs(model, prompts, completions, pad_id, 1.0)
        for model in (engine.model, models.base(), models.load(world.folder("policy_1")))
    )
    assert start == base
    assert trained != base


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("init_lora_weights", "pissa"),
        ("megatron_config", {"a": 1}),
        ("bias", "all"),
        ("peft_type", "IA3"),
    ],
)
def test_adapter_that_could_change_the_shared_base_or_run_code_is_refused(
    world: LanguageWorld, tmp_path: Path, key: str, value: object
) -> None:
    folder = shutil.copytree(world.folder("policy_1"), tmp_path / "adapter")
    config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    (folder / "adapter_config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(UserError, match=key):
        Models(load_prepared(world.folder("prepared")).base).load(folder)


def test_adapter_without_safetensors_is_refused(world: LanguageWorld, tmp_path: Path) -> None:
    folder = shutil.copytree(world.folder("policy_1"), tmp_path / "adapter")
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(UserError, match=r"no adapter_model\.safetensors"):
        Models(load_prepared(world.folder("prepared")).base).load(folder)


def test_role_ends_its_completions_where_its_base_does(world: LanguageWorld) -> None:
    base = world.folder("prepared") / "base" / "generation_config.json"
    ends = json.loads(base.read_text("utf-8"))["eos_token_id"]
    for name in ("policy", "generator_1"):
        found = json.loads((world.folder(name) / "generation_config.json").read_text("utf-8"))
        assert found == {"eos_token_id": ends if isinstance(ends, list) else [ends]}


def test_kl_reference_is_the_adapter_that_the_round_started_from(
    world: LanguageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    class Watched(grpo.GRPOTrainer):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            seen.append(self)

    monkeypatch.setattr(grpo, "GRPOTrainer", Watched)
    out = world.train("generator", "generator_2", start="generator_1")
    model = seen[0].accelerator.unwrap_model(seen[0].model)
    reference = {
        name.replace(".ref.", "."): parameter.detach()
        for name, parameter in model.named_parameters()
        if ".ref." in name
    }
    started = adapter_of(world.folder("generator_1"))
    assert reference.keys() == started.keys()
    assert all(torch.equal(reference[name], started[name]) for name in started)
    ended = adapter_of(out)
    assert any(not torch.equal(ended[name], started[name]) for name in started)


@pytest.mark.parametrize("role", ["policy", "generator"])
def test_resumed_training_of_an_adapter_ends_with_the_same_bytes(
    world: LanguageWorld, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (world.folder(f"{role}_1") / "adapter_model.safetensors").read_bytes()
    rollout = grpo._rollout_function
    rolled: list[int] = []

    def killed(*arguments: Any) -> Any:
        inner = rollout(*arguments)

        def roll_out(prompts: list[str], trainer: Any) -> dict[str, Any]:
            step = trainer.state.global_step + 1
            rolled.append(step)
            if rolled.count(3) == 1 and step == 3:
                raise KeyboardInterrupt
            return inner(prompts, trainer)

        return roll_out

    monkeypatch.setattr(grpo, "_rollout_function", killed)
    name = f"{role}_resumed"
    with pytest.raises(KeyboardInterrupt):
        world.train(role, name, start=role, every=1)
    out = world.train(role, name, start=role, every=1)
    assert rolled == [1, 2, 3, 3]
    assert (out / "adapter_model.safetensors").read_bytes() == whole


@pytest.mark.parametrize("role", ["policy", "generator"])
def test_training_in_small_passes_is_the_same_but_for_rounding(
    world: LanguageWorld, role: str
) -> None:
    out = world.train(
        role, f"{role}_in_passes", start=role, rows_per_pass=2, recompute_activations=True
    )
    whole, start = (adapter_of(world.folder(name)) for name in (f"{role}_1", role))
    passes = adapter_of(out)
    moved = sum(float((whole[name] - start[name]).abs().sum()) for name in whole)
    apart = sum(float((whole[name] - passes[name]).abs().sum()) for name in whole)
    assert moved > 0
    assert apart < 0.01 * moved
    texts, alike = (
        pd.read_parquet(folder / "rollouts.parquet")["text"].tolist()
        for folder in (world.folder(f"{role}_1"), out)
    )
    assert texts == alike


def test_evaluation_leaves_true_quality_unscored_and_measures_the_anchors(
    world: LanguageWorld,
) -> None:
    out = world.folder("evaluation")
    out.mkdir()
    steps.evaluate_round(
        recipe=world.recipe(), policy_dir=str(world.folder("policy_1")),
        generator_dir=str(world.folder("generator_1")),
        start_policy_dir=str(world.folder("policy")),
        prepared_dir=str(world.folder("prepared")), out_dir=str(out),
    )  # fmt: skip
    found = json.loads((out / "metrics.json").read_text("utf-8"))["metrics"]
    assert (
        found.keys()
        == (ROUND_METRICS.keys() - {"seconds", *DERIVED_METRICS}) | ANCHOR_METRICS.keys()
    )
    for name in ("true_quality", "delta_gap", "rank_accuracy", "tie_rate"):
        assert (found[name]["value"], found[name]["n_scored"]) == (None, 0)
    assert found["true_quality"]["n_total"] == 32
    assert found["kl"]["value"] != 0.0
    table = pd.read_parquet(out / "responses.parquet")
    assert table["true_quality"].isna().all()
    sets, quality = read_sets(out)
    assert len(sets) == 8
    found_of = {quality(one.responses.prompt_id, one.responses.responses[0]) for one in sets}
    assert found_of == {None}
    rubrics = pd.read_parquet(out / "rubrics.parquet")
    assert rubrics["valid"].any(), "a tiny base that writes no rubric tests nothing"
    assert found["anchor_rank_accuracy"]["n_total"] == 8
    assert found["anchor_rank_accuracy"]["n_scored"] == int(rubrics["valid"].sum())
    for name, metric in ANCHOR_METRICS.items():
        value = found[name]["value"]
        assert value is not None
        assert metric.admits(value)


def test_generator_is_rewarded_on_sets_and_on_its_prompts_anchors(world: LanguageWorld) -> None:
    rows = pd.read_parquet(world.folder("generator_1") / "rollouts.parquet")
    valid = rows[rows["invalid_reason"].isna()]
    assert len(valid) > 0
    assert valid["r_disc"].between(0.0, 0.25).all()
    assert (valid["r_anchor"] < 0).all()
    assert valid["r_anchor"].nunique() > 1
