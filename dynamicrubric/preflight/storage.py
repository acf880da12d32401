"""What a plan puts on the disk, in bytes, at most."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Final

from dynamicrubric.config import Config, PretrainedConfig
from dynamicrubric.engines.meta import ModelSize
from dynamicrubric.engines.modelconfig import cached_weights, hub_checkpoint
from dynamicrubric.plan import Plan
from dynamicrubric.preflight.facts import Work
from dynamicrubric.preflight.memory import ADAM_BYTES, FLOAT32

TOKENIZER_BYTES: Final = {True: 20e6, False: 0.2e6}
"""A checkpoint's tokenizer: of a pretrained model (Llama 3's tokenizer.json has 17 MB), and of the
embedded world."""
BYTES_PER_TOKEN: Final = 4
"""Of English text; what is sampled is stored."""
TEXTS: Final = "texts"
"""The part that is a bound: what is sampled may be shorter."""
KEPT_CHECKPOINTS: Final = 3
"""Of a training under way: the two that are kept, and the one that is being written."""


def shown_gb(size: float) -> float:
    """Return bytes as GB, rounded up to what is shown, so that parts add up.

    >>> shown_gb(0.0), shown_gb(1.0), shown_gb(1.5e9)
    (0.0, 0.1, 1.5)
    """
    return ceil(size / 1e8) / 10


def planned_storage(
    config: Config, plan: Plan, size: ModelSize, work: tuple[Work, ...], stored_base: int | None
) -> Mapping[str, float]:
    """Return the bytes on disk by what for.

    DVC's cache links files to the workspace where the file system can, so it counts as no copy.

    Args:
        config: all settings.
        plan: the lattice of cells.
        size: the backbone.
        work: all that is sampled.
        stored_base: bytes of the backbone's weights as they are stored; None: as in memory.
    """
    pretrained = isinstance(config.backbone, PretrainedConfig)
    trained = size.num_adapter_params if pretrained else size.num_params
    checkpoint = trained * FLOAT32 + TOKENIZER_BYTES[pretrained]
    recipes = [cell.recipe for cell in plan.cells.values()]
    checkpoints = 2 + sum(
        1 + (recipe.generator_training is not None) + (recipe.reward_training is not None)
        for recipe in recipes
    )
    found = {
        "checkpoints": checkpoints * checkpoint,
        "checkpoints in the making": config.runtime.slots
        * KEPT_CHECKPOINTS
        * (checkpoint + trained * ADAM_BYTES),
        TEXTS: float(sum(one.tokens_written for one in work) * BYTES_PER_TOKEN),
    }
    if isinstance(config.backbone, PretrainedConfig):
        in_memory = size.num_params * size.dtype_bytes
        found["base, copied into the prepared data"] = float(stored_base or in_memory)
        if _is_to_be_fetched(config.backbone):
            found["base, in the hub's cache"] = float(stored_base or in_memory)
    return found


def _is_to_be_fetched(backbone: PretrainedConfig) -> bool:
    """Say whether a base has yet to come from the hub, whose cache keeps it beside the copy."""
    name = hub_checkpoint(backbone.checkpoint)
    return name is not None and not name.folder and cached_weights(name) is None
