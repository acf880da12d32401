"""Models with random weights and the shape of a known one, and what a benchmark runs on them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config
from verdicts import drawn_pairs, make_criteria

from dynamicrubric.engines.models import Models
from dynamicrubric.worlds.base import BaseModelFiles

ShapeName = Literal["qwen3-8b", "tiny"]
CONTROL = ("<|pad|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Load:
    """What runs: numbers of prompts, responses, rubrics and tokens."""

    prompts: int
    responses: int
    rubrics: int
    items: int
    response_tokens: int
    rubric_tokens: int


SHAPES: dict[ShapeName, tuple[dict[str, Any], Load]] = {
    # config.json of Qwen/Qwen3-8B.
    "qwen3-8b": (
        {
            "vocab_size": 151_936,
            "hidden_size": 4096,
            "intermediate_size": 12_288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 40_960,
        },
        Load(prompts=4, responses=8, rubrics=8, items=8, response_tokens=256, rubric_tokens=256),
    ),
    "tiny": (
        {
            "vocab_size": 1024,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 4096,
        },
        Load(prompts=2, responses=2, rubrics=2, items=2, response_tokens=8, rubric_tokens=8),
    ),
}


def random_models(config: Qwen3Config, dtype: torch.dtype, folder: Path) -> Models:
    """Make a base with random weights, its config and tokenizer in a folder."""
    tokenizer = chat_tokenizer()
    config.pad_token_id, config.bos_token_id, config.eos_token_id = (
        tokenizer.convert_tokens_to_ids(token) for token in CONTROL
    )
    config.save_pretrained(folder)
    tokenizer.save_pretrained(str(folder))
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    base = model.eval().requires_grad_(False)
    return Models.over(base, BaseModelFiles(folder, str(dtype).removeprefix("torch.")))


def chat_tokenizer() -> PreTrainedTokenizerFast:
    """Train a small byte-level BPE with a chat template on texts like those that are judged."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=list(CONTROL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [text for pair in islice(drawn_pairs(60), 200) for text in pair]
    tokenizer.train_from_iterator([*texts, *make_criteria(100), *["yes no Yes No"] * 9], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=CONTROL[0],
        bos_token=CONTROL[1],
        eos_token=CONTROL[2],
        padding_side="left",
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
