"""Counting on the meta device against what is known and against real models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from dynamicrubric.config import AdapterConfig, PretrainedConfig, load_config
from dynamicrubric.engines.meta import measure_model
from dynamicrubric.engines.models import lora_config
from dynamicrubric.errors import UserError

PROFILES = Path(__file__).resolve().parents[2] / "profiles"
LORA = AdapterConfig(rank=4, alpha=8, dropout=0.0, target_modules=("q_proj", "down_proj"))
TINY = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
    "max_position_embeddings": 256, "tie_word_embeddings": True,
}  # fmt: skip


def backbone(profile: str) -> PretrainedConfig:
    found = load_config(PROFILES / f"{profile}.yaml").backbone
    assert isinstance(found, PretrainedConfig)
    return found


def config_of(shape: dict[str, Any] | None) -> Any:
    assert shape is not None
    return AutoConfig.for_model(**shape)


@pytest.mark.parametrize(
    ("profile", "params"),
    [
        ("qwen3-8b", 8_190_735_360),  # the hub's count of Qwen/Qwen3-8B
        ("llama-3.1-8b", 8_030_261_248),  # of meta-llama/Llama-3.1-8B-Instruct
        ("smollm2", 134_515_008),  # of HuggingFaceTB/SmolLM2-135M-Instruct
    ],
)
def test_count_of_a_profiles_model_is_that_of_its_checkpoint(profile: str, params: int) -> None:
    one = backbone(profile)
    size = measure_model(config_of(one.shape), torch.bfloat16, one.lora)
    assert size.num_params == params
    # An adapter of a linear layer: rank x (inputs + outputs).
    shape = one.shape or {}
    wide, inner, layers = (
        int(shape[key]) for key in ("hidden_size", "intermediate_size", "num_hidden_layers")
    )
    head = int(shape.get("head_dim", wide // int(shape["num_attention_heads"])))
    heads, few = (int(shape[key]) * head for key in ("num_attention_heads", "num_key_value_heads"))
    a_layer = (wide + heads) * 2 + (wide + few) * 2 + (wide + inner) * 3
    assert size.num_adapter_params == layers * one.lora.rank * a_layer


def test_cache_of_llama_8b_at_8k_tokens_in_bfloat16_is_one_gib() -> None:
    size = measure_model(config_of(backbone("llama-3.1-8b").shape), torch.bfloat16)
    assert size.cache_bytes * 8192 == 2**30


def test_count_of_a_tiny_model_is_that_of_the_real_one() -> None:
    size = measure_model(config_of(TINY), torch.float32, LORA)
    real = AutoModelForCausalLM.from_config(config_of(TINY))
    assert size.num_params == sum(p.numel() for p in real.parameters())
    cache = real(input_ids=torch.zeros((1, 10), dtype=torch.long), use_cache=True).cache
    held = sum(p.nbytes for layer in cache.layers for p in (layer.keys, layer.values))
    assert size.cache_bytes == held / 10
    adapted = get_peft_model(real, lora_config(LORA))
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert size.num_adapter_params == trained
    assert (size.num_layers, size.vocab_size, size.context) == (3, 300, 256)


@pytest.mark.parametrize("lora", [None, LORA])
def test_kept_bytes_are_those_of_a_real_pass_with_pytorchs_attention(
    lora: AdapterConfig | None,
) -> None:
    size = measure_model(config_of(TINY), torch.float32, lora)
    real = AutoModelForCausalLM.from_config(config_of(TINY), attn_implementation="sdpa").train()
    if lora is not None:
        get_peft_model(real, lora_config(lora))
    tokens = 128
    kept: dict[int, torch.Tensor] = {}
    weights = {p.untyped_storage().data_ptr() for p in (*real.parameters(), *real.buffers())}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    inputs = torch.zeros((1, tokens, 64), requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        real.get_decoder()(inputs_embeds=inputs, use_cache=False)
    real_bytes = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    said = tokens * (size.num_layers * size.layer_bytes + size.outer_bytes)
    # Real attention without padding shares keys among the query heads of a group; rows with padding
    # repeat them, which is what is counted: two more heads of keys and of values a layer.
    repeated = size.num_layers * tokens * 2 * 2 * 16 * 4
    a_hidden_state = tokens * 64 * 4  # every layer counts as the one that keeps most
    assert said - repeated - 2 * a_hidden_state <= real_bytes <= said


def test_measuring_names_target_modules_that_the_model_does_not_have() -> None:
    lora = LORA.model_copy(update={"target_modules": ("no_such_layer",)})
    with pytest.raises(UserError, match="target_modules"):
        measure_model(config_of(TINY), torch.float32, lora)


def test_measuring_half_precision_takes_half_the_bytes_of_cache_and_weights() -> None:
    whole, half = (measure_model(config_of(TINY), d) for d in (torch.float32, torch.bfloat16))
    assert whole.cache_bytes == 2 * half.cache_bytes
    assert (whole.dtype_bytes, half.dtype_bytes) == (4, 2)
    assert half.layer_bytes < whole.layer_bytes
