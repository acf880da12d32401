"""Where a backbone's config is from, with local folders in the hub's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.config import AdapterConfig, PretrainedConfig
from dynamicrubric.engines.modelconfig import find_config
from dynamicrubric.errors import UserError

LORA = AdapterConfig(rank=4, alpha=8, dropout=0.0, target_modules=("q_proj",))
SHAPE = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
}  # fmt: skip


def folder(path: Path, **changes: Any) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({**SHAPE, **changes}))
    return path


def backbone(name: str | Path, shape: dict[str, Any] | None = None) -> PretrainedConfig:
    return PretrainedConfig(checkpoint=str(name), dtype="float32", lora=LORA, shape=shape)


def test_config_of_a_folder_is_read_with_the_size_in_its_index(tmp_path: Path) -> None:
    path = folder(tmp_path / "model")
    index = {"metadata": {"total_size": 12345}, "weight_map": {}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    found = find_config(backbone(path), ask_hub=False)
    assert found.config.hidden_size == 64
    assert (found.stored_bytes, found.wrong) == (12345, ())


def test_config_without_an_index_has_the_size_of_its_files_or_none(tmp_path: Path) -> None:
    path = folder(tmp_path / "model")
    assert find_config(backbone(path), ask_hub=False).stored_bytes is None
    (path / "model.safetensors").write_bytes(b"x" * 77)
    assert find_config(backbone(path), ask_hub=False).stored_bytes == 77


def test_config_of_a_checkpoint_with_code_is_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "model", auto_map={"AutoModel": "evil.Evil"})
    with pytest.raises(UserError, match="runs code"):
        find_config(backbone(path), ask_hub=False)


def test_config_that_nobody_has_is_that_of_the_shape() -> None:
    found = find_config(backbone("somebody/something", SHAPE), ask_hub=False)
    assert (found.source, found.config.num_hidden_layers) == ("backbone.shape", 2)
    with pytest.raises(UserError, match="no backbone"):
        find_config(backbone("somebody/something"), ask_hub=False)


def test_shape_of_a_model_that_nobody_knows_is_refused() -> None:
    for shape in ({**SHAPE, "model_type": "no_such"}, {"hidden_size": 64}):
        with pytest.raises(UserError, match=r"backbone\.shape"):
            find_config(backbone("somebody/something", shape), ask_hub=False)


def test_config_that_differs_from_the_shape_names_the_key(tmp_path: Path) -> None:
    path = folder(tmp_path / "model", hidden_size=128)
    found = find_config(backbone(path, SHAPE), ask_hub=False)
    assert len(found.wrong) == 1
    assert found.wrong[0].startswith("backbone.shape.hidden_size is 64;")
    assert found.wrong[0].endswith("says 128")


@pytest.mark.parametrize("text", ["{", "[]", '{"hidden_size": 3}', '{"model_type": "no_such"}'])
def test_config_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    path = folder(tmp_path / "model")
    (path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config\.json"):
        find_config(backbone(path), ask_hub=False)
