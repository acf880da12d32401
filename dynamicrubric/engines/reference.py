"""What a checkpoint answers to a probe, by transformers: the yardstick of other engines."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import PreTrainedModel

from dynamicrubric.engines.identity import Probe
from dynamicrubric.engines.transformers import load_model

_TOP = 20


def reference_probe(checkpoint: Path, prompt_ids: tuple[int, ...]) -> Probe:
    """Return what a checkpoint answers, computed once in float32."""
    return probe_of(load_model(checkpoint), prompt_ids)


@torch.no_grad()
def probe_of(model: PreTrainedModel, prompt_ids: tuple[int, ...]) -> Probe:
    """Return the 20 likeliest next tokens after a prompt, by a model that is loaded."""
    ids = torch.tensor([prompt_ids], device=model.device)
    logprobs = torch.log_softmax(model(input_ids=ids).logits[0, -1].float(), dim=-1)
    values, tokens = logprobs.topk(min(_TOP, logprobs.shape[0]))
    return Probe(prompt_ids, dict(zip(tokens.tolist(), values.tolist(), strict=True)))
