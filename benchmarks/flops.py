"""How many floating-point operations a language model's passes need, and how many a GPU can do.

Counted are the matrix products of the model itself: a product that runs again (gradient
checkpointing) and those of adapters are left out, so a share of the peak is "model FLOPs
utilisation".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PEAKS = {
    "NVIDIA B200": 2250e12,  # NVIDIA HGX B200 datasheet
    "NVIDIA H200": 989e12,  # NVIDIA H200 datasheet, SXM
    "NVIDIA H100 80GB HBM3": 989e12,  # NVIDIA H100 datasheet, SXM
    "NVIDIA H100 PCIe": 756e12,  # NVIDIA H100 datasheet, PCIe
    "NVIDIA A100": 312e12,  # NVIDIA A100 datasheet, PCIe and SXM
    "NVIDIA L40S": 362e12,  # NVIDIA L40S datasheet
    "NVIDIA L4": 121e12,  # NVIDIA L4 datasheet
    "NVIDIA A10": 125e12,  # NVIDIA A10 datasheet
    "NVIDIA GeForce RTX 4090": 165e12,  # NVIDIA Ada architecture whitepaper, float32 sums
}
"""Dense bfloat16 FLOP/s by the name that the driver gives: half of what a datasheet says "with
sparsity". A name has to be one of these, or one of these with a memory size or form behind it."""


def peak_flops(device: str, dtype: str) -> float | None:
    """Return a device's dense FLOP/s in bfloat16; None for other formats and unknown devices.

    >>> peak_flops("NVIDIA A100-SXM4-80GB", "bfloat16")
    312000000000000.0
    >>> peak_flops("NVIDIA H200 MIG 1g.18gb", "bfloat16") is None  # a slice of one
    True
    """
    if dtype != "bfloat16" or "MIG" in device.split():
        return None
    known = [
        name for name in PEAKS if device == name or device.startswith((f"{name} ", f"{name}-"))
    ]
    return PEAKS[max(known, key=len)] if known else None


@dataclass(frozen=True)
class Work:
    """What one pass runs.

    Attributes:
        tokens: tokens that go through the layers.
        contexts: summed over those tokens, how many tokens each one looks at.
        logits: tokens whose logits are computed.
    """

    tokens: int
    contexts: int
    logits: int

    @classmethod
    def sampling(cls, rows: Sequence[tuple[int, int]]) -> Work:
        """Return the work of sampling (prompt, completion) lengths with a cache of keys."""
        # The last token sampled goes through no layer.
        ends = [prompt + completion - 1 for prompt, completion in rows]
        return cls(
            sum(ends), sum(end * (end + 1) // 2 for end in ends), sum(made for _, made in rows)
        )

    @classmethod
    def scoring(cls, rows: Sequence[tuple[int, int]]) -> Work:
        """Return the work of one forward pass that scores the completions."""
        ends = [prompt + completion for prompt, completion in rows]
        return cls(
            sum(ends), sum(end * (end + 1) // 2 for end in ends), sum(made for _, made in rows)
        )


def forward_flops(config: Any, work: Work) -> float:  # noqa: ANN401 - any decoder's config
    """Return the operations of a forward pass; a product of a x b by b x c has 2abc."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    queries = config.num_attention_heads * head_dim
    keys = config.num_key_value_heads * head_dim
    layer = config.hidden_size * (2 * queries + 2 * keys + 3 * config.intermediate_size)
    linear = config.num_hidden_layers * layer * work.tokens
    attention = config.num_hidden_layers * 2 * queries * work.contexts
    return 2.0 * (linear + attention + config.hidden_size * config.vocab_size * work.logits)


def lora_step_flops(config: Any, work: Work) -> float:  # noqa: ANN401 - any decoder's config
    """Return the operations of a GRPO step with an adapter, sampling left out.

    The KL's reference is one forward pass, the training another; the backward pass goes through
    frozen weights, so each linear layer costs it one product and not two, but attention two.
    """
    forward = forward_flops(config, work)
    attention = forward_flops(config, Work(0, work.contexts, 0))
    return 3 * forward + attention
