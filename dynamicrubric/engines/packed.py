"""Attention for packed passes, and the pass itself.

Not FlexAttention and not one dense mask over the row. A mask of L x L would do L^2 work where a
block needs prefix^2 / 2 + questions x (prefix + question); FlexAttention would skip what is masked,
but in tiles of 128 tokens where a question has about 20, and it compiles anew for shapes that no
two passes share. Here each block costs two calls of `scaled_dot_product_attention`: one causal over
its prefix, and one in which the questions are the rows of a batch over the prefix and themselves.
Those have kernels on CPU and GPU alike. All else (projections, MLP) runs over the row as a whole.

The function is handed to the model through transformers' interface for attention functions, so it
serves every architecture that asks that interface and whose layers are full or sliding attention;
`can_pack` says whether one is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from dynamicrubric.engines.packing import Block, Layout

NAME: Final = "dynamicrubric_packed"
_KNOWN_LAYERS: Final = frozenset({"full_attention", "sliding_attention"})


@dataclass(frozen=True)
class BlockIndex:
    """Where a block's tokens are, as tensors.

    Attributes:
        prefix: slice of the prefix in the row.
        gather: place of each question's tokens, shape (n, longest); padding repeats its first.
        real: which of them are no padding, shape (n, longest).
        own: which of its question's tokens each may look at, shape (n, longest, longest).
    """

    prefix: slice
    gather: torch.Tensor
    real: torch.Tensor
    own: torch.Tensor

    @classmethod
    def of(cls, block: Block, device: torch.device) -> BlockIndex:
        """Make the tensors of a block."""
        starts = torch.tensor(block.starts, device=device)[:, None]
        lengths = torch.tensor(block.lengths, device=device)[:, None]
        steps = torch.arange(max(block.lengths), device=device)
        real = steps < lengths
        causal = steps[:, None] >= steps
        # Padding looks where any token does: a row of nothing but -inf would be NaN.
        own = causal & (real[:, None, :] | ~real[:, :, None])
        return cls(
            slice(block.start, block.start + block.prefix),
            starts + steps * real,
            real,
            own,
        )

    def masks(self, window: int | None) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return the masks of the prefix (None: causal) and of the questions; True: may look.

        Shapes (prefix, prefix) and (n, longest, prefix + longest).
        """
        device = self.own.device
        length = self.prefix.stop - self.prefix.start
        shared = torch.ones((*self.own.shape[:2], length), dtype=torch.bool, device=device)
        mask = torch.cat([shared, self.own], dim=2)
        before = torch.arange(length, device=device)
        if window is None or window >= length + self.own.shape[1]:
            return None, mask
        inside = torch.arange(length, length + self.own.shape[1], device=device)
        everything = torch.cat([before, inside])
        mask &= inside[:, None] - everything < window
        distance = before[:, None] - before
        return (distance >= 0) & (distance < window), mask


class PackedIndex:
    """A layout's blocks as tensors, with their masks by window: every layer asks for the same."""

    def __init__(self, layout: Layout, device: torch.device, queries_a_key: int) -> None:
        """Index the blocks of a layout, for heads of which so many share a key head."""
        self.blocks = [BlockIndex.of(block, device) for block in layout.blocks]
        self._queries_a_key = queries_a_key
        self._masks: dict[tuple[int, int | None], tuple[torch.Tensor | None, torch.Tensor]] = {}

    def masks(self, place: int, window: int | None) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return `BlockIndex.masks` of one block, the second one for all queries of a key head."""
        key = (place, window)
        if key not in self._masks:
            causal, mask = self.blocks[place].masks(window)
            self._masks[key] = causal, mask.repeat(1, self._queries_a_key, 1)[:, None]
        return self._masks[key]


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    packed: PackedIndex | None = None,
    **kwargs: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, None]:
    """Attend within a packed row; without `packed`, as transformers' own "sdpa" does.

    Args:
        module: the attention layer.
        query: shape (1, heads, L, width).
        key: shape (1, key heads, L, width).
        value: shape (1, key heads, L, width).
        attention_mask: not looked at in a packed pass.
        scaling: factor of the scores.
        sliding_window: how many positions back this layer sees, itself counted.
        packed: the row's blocks.
        kwargs: whatever else a model passes on.

    Returns:
        Shape (1, L, heads, width), and no weights.
    """
    if packed is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    if kwargs.get("softcap") is not None or kwargs.get("s_aux") is not None:
        raise NotImplementedError("capped scores and attention sinks; see can_pack")
    output = torch.empty_like(query)
    for place, block in enumerate(packed.blocks):
        causal, mask = packed.masks(place, sliding_window)
        q, k, v = (tensor[:, :, block.prefix] for tensor in (query, key, value))
        groups = q.shape[1] // k.shape[1]
        output[:, :, block.prefix] = scaled_dot_product_attention(
            q,
            k.repeat_interleave(groups, dim=1),
            v.repeat_interleave(groups, dim=1),
            attn_mask=causal,
            is_causal=causal is None,
            scale=scaling,
        )
        output[0, :, block.gather[block.real]] = _attend_questions(
            query[0], key[0], value[0], block, mask, scaling
        )
    return output.transpose(1, 2), None


def _attend_questions(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    block: BlockIndex,
    mask: torch.Tensor,
    scaling: float | None,
) -> torch.Tensor:
    """Attend from each question to its prefix and itself; shape (heads, question tokens, width).

    Query heads that share a key head become further queries of it, so keys are not repeated.
    """
    (num, longest), (heads, _, width), key_heads = block.real.shape, query.shape, key.shape[0]
    q = query[:, block.gather].view(key_heads, -1, num, longest, width)
    q = q.permute(2, 0, 1, 3, 4).reshape(num, key_heads, -1, width)
    k, v = (
        torch.cat(
            [
                tensor[None, :, block.prefix].expand(num, -1, -1, -1),
                tensor[:, block.gather].transpose(0, 1),
            ],
            dim=2,
        )
        for tensor in (key, value)
    )
    answers = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scaling)
    answers = answers.view(num, heads, longest, width).transpose(0, 1)
    return answers[:, block.real]


def can_pack(model: PreTrainedModel) -> bool:
    """Whether a model's attention is all of a kind that `packed_attention` computes."""
    config = model.config.get_text_config()
    layers = getattr(config, "layer_types", None) or ()
    return bool(
        model._supports_sdpa
        and model._supports_attention_backend
        and set(layers) <= _KNOWN_LAYERS
        and getattr(config, "attn_logit_softcapping", None) is None
        and getattr(config, "attention_chunk_size", None) is None
    )


@torch.inference_mode()
def run_packed(model: PreTrainedModel, layout: Layout) -> torch.Tensor:
    """Return the logits at the layout's read places, shape (questions, vocabulary)."""
    device = model.device
    config = model.config.get_text_config()
    queries_a_key = config.num_attention_heads // config.num_key_value_heads
    with _packed_attention_of(model):
        output = model(
            input_ids=torch.tensor([layout.ids], device=device),
            position_ids=torch.tensor([layout.positions], device=device),
            # Four dimensions: transformers takes it for ready-made and builds no mask of its own.
            attention_mask=torch.ones((1, 1, 1, 1), dtype=torch.bool, device=device),
            logits_to_keep=torch.tensor([place for _, place in layout.reads], device=device),
            packed=PackedIndex(layout, device, queries_a_key),
            use_cache=False,
        )
    logits: torch.Tensor = output.logits[0]
    return logits


@contextmanager
def _packed_attention_of(model: PreTrainedModel) -> Iterator[None]:
    """Let a model use `packed_attention` in the body; it may be another's model as well."""
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
