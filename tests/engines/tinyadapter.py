"""An adapter over a small chat model that changes what it says, as a trained one does."""

from __future__ import annotations

from pathlib import Path

import torch

from dynamicrubric.config import AdapterConfig
from dynamicrubric.engines.chattokenizer import ChatTokenizer
from dynamicrubric.engines.models import Models, save_checkpoint

LORA = AdapterConfig(
    rank=4, alpha=8, dropout=0.0, target_modules=("q_proj", "k_proj", "o_proj", "down_proj")
)


def save_adapter(models: Models, folder: Path, seed: int, size: float = 0.5) -> Path:
    """Save an adapter with random weights of this size; a new one's would change nothing."""
    model = models.new_adapter(LORA, seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=size)
    folder.mkdir(parents=True)
    save_checkpoint(model, ChatTokenizer.load(models.base_folder), folder)
    return folder
