"""The embedded world's models: small Llamas with tied embeddings, in float32."""

from __future__ import annotations

from transformers import LlamaConfig

from dynamicrubric.config import BackboneConfig


def small_config(
    backbone: BackboneConfig,
    *,
    vocab_size: int,
    longest: int,
    bos_id: int | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
) -> LlamaConfig:
    """Return the configuration of a small model.

    Args:
        backbone: its shape.
        vocab_size: tokens of the tokenizer as it is; `backbone.vocab_size` is what was asked for.
        longest: tokens of the longest text that it will read.
        bos_id: id of the token that begins a text.
        eos_id: id of the token that ends one.
        pad_id: id that pads.
    """
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=backbone.hidden_size,
        intermediate_size=backbone.hidden_size * 8 // 3 // 8 * 8,
        num_hidden_layers=backbone.num_layers,
        num_attention_heads=backbone.num_heads,
        num_key_value_heads=backbone.num_heads,
        max_position_embeddings=max(1024, 2 * longest),
        tie_word_embeddings=True,
        attention_dropout=0.0,
        bos_token_id=bos_id,
        eos_token_id=eos_id,
        pad_token_id=pad_id,
        dtype="float32",
    )
