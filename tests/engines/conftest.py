"""A small tokenizer and a small random model; nothing here needs TRL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from dynamicrubric.engines.tokenizer import FrameTokenizer, train_tokenizer
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.rubrics import render_rubric
from dynamicrubric.seeds import generator_for
from dynamicrubric.worlds.postcards.prompts import all_prompts
from dynamicrubric.worlds.postcards.rubric_prior import prior_rubric
from dynamicrubric.worlds.postcards.texts import compose

sys.path.insert(0, str(Path(__file__).parent))  # test files find their fakes


@pytest.fixture(scope="session")
def tokenizer() -> FrameTokenizer:
    texts = []
    for prompt in all_prompts()[::6]:
        rng = generator_for("engines", prompt.id)
        texts += [prompt.text, *(compose(prompt, rng) for _ in range(4))]
        texts.append(render_rubric(prior_rubric(prompt, (), (1, 3), rng)))
    return FrameTokenizer(train_tokenizer(texts, 512))


@pytest.fixture(scope="session")
def model(tokenizer: FrameTokenizer) -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer.hf),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=512,
        initializer_range=0.2,  # far from uniform: a wrong mask or position shows
        eos_token_id=tokenizer.eos_id,
        pad_token_id=tokenizer.pad_id,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def engine(model: PreTrainedModel, tokenizer: FrameTokenizer) -> TransformersEngine:
    return TransformersEngine(model, tokenizer)
