"""What a model takes in memory, told by its own code on PyTorch's meta device, without weights.

Tensors on that device have shapes and no content. So a model of any size is built in a second from
its config, PEFT puts its adapters in, and one pass over a few tokens shows what the backward pass
will want: the tensors that autograd keeps. That pass is linear in tokens, since the attention that
stands in here keeps what PyTorch's fused kernels keep (queries, keys, values, output and one number
a row), never a matrix of scores.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Final, cast

import torch
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedModel
from transformers import PretrainedConfig as ModelConfig
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.modeling_layers import GradientCheckpointingLayer

from dynamicrubric.engines.models import lora_config
from dynamicrubric.errors import UserError
from dynamicrubric.settings import AdapterConfig

NAME: Final = "dynamicrubric_meta"
_NUM_TOKENS: Final = 64


@dataclass(frozen=True)
class ModelSize:
    """Numbers of a model; bytes are those of its number format, `dtype_bytes` a number.

    Attributes:
        architecture: name of its class.
        num_params: parameters, those of adapters not counted; tied ones count once.
        num_adapter_params: parameters of one role's adapter; 0 without one.
        dtype_bytes: bytes of a parameter of the model itself; adapters are float32.
        num_layers: decoder layers.
        num_heads: query heads.
        hidden_size: width of the residual stream.
        vocab_size: logits of a position.
        context: most positions that it was made for; None where its config does not say.
        cache_bytes: keys and values of one token in all layers.
        layer_bytes: what one layer keeps of a token for the backward pass.
        outer_bytes: what is kept of a token outside the layers; the head is not in it.
    """

    architecture: str
    num_params: int
    num_adapter_params: int
    dtype_bytes: int
    num_layers: int
    num_heads: int
    hidden_size: int
    vocab_size: int
    context: int | None
    cache_bytes: float
    layer_bytes: float
    outer_bytes: float


def measure_model(
    config: ModelConfig, dtype: torch.dtype, lora: AdapterConfig | None = None
) -> ModelSize:
    """Build a model on the meta device and count.

    Args:
        config: its config.
        dtype: number format of its weights.
        lora: the adapter that is trained; None where the model itself is.

    Raises:
        UserError: transformers cannot build it, or it has none of the layers that `lora` names.
    """
    model = _build(config, dtype)
    own = {p.untyped_storage()._cdata: p.numel() for p in model.parameters()}
    text = config.get_text_config()
    cache = _cache_bytes(model)
    adapter = _adapt(model, lora) if lora else 0
    layer, outer = _kept_bytes(model)
    return ModelSize(
        architecture=type(model).__name__,
        num_params=sum(own.values()),
        num_adapter_params=adapter,
        dtype_bytes=dtype.itemsize,
        num_layers=int(text.num_hidden_layers),
        num_heads=int(text.num_attention_heads),
        hidden_size=int(text.hidden_size),
        vocab_size=int(text.vocab_size),
        context=getattr(text, "max_position_embeddings", None),
        cache_bytes=cache,
        layer_bytes=layer,
        outer_bytes=outer,
    )


def _build(config: ModelConfig, dtype: torch.dtype) -> PreTrainedModel:
    AttentionInterface.register(NAME, _fused_attention)
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                config, dtype=dtype, attn_implementation=NAME, trust_remote_code=False
            )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            doing=f"building a {config.model_type} model to count its parameters",
            got=" ".join(str(error).split())[:200],
            expected="a causal language model that transformers knows",
            remedy="name another checkpoint",
        ) from None
    return cast("PreTrainedModel", model.train())


def _adapt(model: PreTrainedModel, lora: AdapterConfig) -> int:
    """Put an adapter into the model, which alone is trained then; return its parameters."""
    from peft import get_peft_model

    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of transformers, about PEFT
            adapted = get_peft_model(model, lora_config(lora))
    except ValueError as error:
        raise UserError(
            doing="putting an adapter into the backbone",
            got=" ".join(str(error).split())[:200],
            expected="backbone.lora.target_modules to name its linear layers",
            remedy="change backbone.lora",
        ) from None
    return sum(p.numel() for p in adapted.parameters() if p.requires_grad)


def _cache_bytes(model: PreTrainedModel) -> float:
    """Return the bytes of keys and values that the model's own cache holds of one token."""
    with torch.no_grad():
        cache = cast("Any", model)(input_ids=_ids(), use_cache=True).cache
    kept = [part for layer in cache.layers for part in (layer.keys, layer.values)]
    total: int = sum(part.numel() * part.element_size() for part in kept)
    return total / _NUM_TOKENS


def _kept_bytes(model: PreTrainedModel) -> tuple[float, float]:
    """Return the bytes a token that a layer, and all outside the layers, keep for backward."""
    # By storage: views of a tensor are kept once. The tensors stay alive, so that none is reused.
    kept: dict[int, tuple[torch.Tensor, int]] = {}
    weights = {p.untyped_storage()._cdata for p in (*model.parameters(), *model.buffers())}
    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    place = [-1]

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()._cdata
        if storage not in weights:
            kept.setdefault(storage, (tensor, place[0]))
        return tensor

    def enter(number: int) -> Any:  # noqa: ANN401 - a hook
        return lambda *_: place.__setitem__(0, number)

    for number, layer in enumerate(layers):
        layer.register_forward_pre_hook(enter(number))
        layer.register_forward_hook(enter(-1))
    embeddings = cast("Any", model.get_input_embeddings())(_ids()).detach().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        cast("Any", model.get_decoder())(inputs_embeds=embeddings, use_cache=False)
    by_place = dict.fromkeys(range(-1, len(layers)), 0)
    for tensor, number in kept.values():
        by_place[number] += tensor.untyped_storage().nbytes()
    outer = by_place.pop(-1)
    return max(by_place.values(), default=0) / _NUM_TOKENS, outer / _NUM_TOKENS


def _ids() -> torch.Tensor:
    return torch.zeros((1, _NUM_TOKENS), dtype=torch.long, device="meta")


class _Fused(torch.autograd.Function):
    """Attention that computes nothing and keeps what a fused kernel keeps for its backward pass."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> torch.Tensor:
        rows, heads, length, _ = query.shape
        # In the kernels' own layout, so that the projection after it reads the same tensor.
        output = query.new_empty((rows, length, heads, value.shape[-1])).transpose(1, 2)
        row_sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, row_sums)
        return output


def _fused_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,  # noqa: ANN401 - whatever a model passes on
) -> tuple[torch.Tensor, None]:
    """Stand in for "sdpa", which repeats keys and values for rows with a mask, as padded ones."""
    groups = query.shape[1] // key.shape[1]
    keys, values = repeat_kv(key, groups), repeat_kv(value, groups)
    output: torch.Tensor = cast("Any", _Fused).apply(query, keys, values)
    return output.transpose(1, 2).contiguous(), None
