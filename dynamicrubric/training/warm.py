"""Which model a role's warm start trains, and on what: a random backbone, or a new adapter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from dynamicrubric.config import BackboneConfig, PretrainedConfig, SupervisedConfig
from dynamicrubric.engines.models import Models
from dynamicrubric.engines.tokenizer import FrameTokenizer, load_tokenizer
from dynamicrubric.training import sft
from dynamicrubric.worlds.prepared import PreparedData


def train_warm_start(
    role: Literal["policy", "generator"],
    prepared: PreparedData,
    backbone: Mapping[str, Any],
    settings: SupervisedConfig,
    *,
    seed: int,
    prepared_dir: Path,
    out_dir: Path,
    work_dir: Path,
    recompute_activations: bool = False,
) -> None:
    """Make P_0 or G_0.

    Over a pretrained base it is a new adapter, which without steps is saved untrained: the base as
    it is.
    """
    examples = sft.policy_examples if role == "policy" else sft.generator_examples
    if prepared.base is not None:
        lora = PretrainedConfig.model_validate(dict(backbone)).lora
        tokenizer = load_tokenizer(prepared.base.folder)
        rows = examples(prepared_dir, tokenizer) if settings.steps else []
        adapter = Models(prepared.base).new_adapter(lora, seed)
        sft.train_supervised(
            rows,
            adapter,
            settings,
            tokenizer,
            seed=seed,
            out_dir=out_dir,
            work_dir=work_dir,
            recompute_activations=recompute_activations,
        )
        return
    frames = FrameTokenizer.load(prepared_dir / "tokenizer")
    rows = examples(prepared_dir, frames)
    model = sft.new_backbone(BackboneConfig.model_validate(dict(backbone)), frames, rows, seed)
    sft.train_supervised(
        rows, model, settings, frames, seed=seed, out_dir=out_dir, work_dir=work_dir
    )
