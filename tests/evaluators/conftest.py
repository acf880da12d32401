"""Tiny random models for evaluators: a chat model, and a reward model of its size."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamicrubric.engines.choice import Engines
from dynamicrubric.engines.models import Models
from dynamicrubric.worlds.base import BaseModelFiles

CONTEXT = 2048
"""Of its tokens, hardly more than bytes: some rows fit, and some do not."""
HELPERS = str(Path(__file__).parents[1] / "engines")


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chat model with random weights, and digits and letters as tokens."""
    sys.path.insert(0, HELPERS)
    from chatmodel import save_chat_model

    sys.path.remove(HELPERS)
    folder = save_chat_model(tmp_path_factory.mktemp("chat-model"), seed=1)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = CONTEXT
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def reward_model(chat_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with one label below a random head, with the chat model's tokenizer."""
    import torch

    from dynamicrubric.engines.chattokenizer import ChatTokenizer
    from dynamicrubric.engines.reward import new_classifier, settle_pad

    folder = tmp_path_factory.mktemp("reward-model")
    torch.manual_seed(2)
    tokenizer = ChatTokenizer.load(chat_model)
    model = new_classifier(chat_model, torch.float32)
    settle_pad(model, tokenizer)
    model.save_pretrained(str(folder))
    tokenizer.hf.save_pretrained(str(folder))
    assert json.loads((folder / "config.json").read_text())["architectures"]
    return folder


@pytest.fixture
def engines(chat_model: Path) -> Iterator[Engines]:
    """Engines over the chat model."""
    with Engines(Models(BaseModelFiles(chat_model, "float32"))) as opened:
        yield opened
