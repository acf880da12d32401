"""What a vLLM child has to be started with so that roles can share it: it cannot be added later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dynamicrubric.engines.models import is_adapter
from dynamicrubric.engines.vllm_process import VllmConfig


class Room(NamedTuple):
    """What a child can do beside serving the base.

    Attributes:
        rank: largest rank of an adapter that it takes; 0: none.
        constrained: whether completions can be kept to a schema.

    >>> Room(8).union(Room(4, constrained=True))
    Room(rank=8, constrained=True)
    """

    rank: int = 0
    constrained: bool = False

    @classmethod
    def of(cls, config: VllmConfig) -> Room:
        """Return the room of a child."""
        return cls(config.lora_rank, config.constrained)

    def union(self, other: Room) -> Room:
        """Return what serves both."""
        return Room(max(self.rank, other.rank), self.constrained or other.constrained)

    def holds(self, other: Room) -> bool:
        """Say whether a child with this room serves what asks for the other."""
        return self.union(other) == self


def rank_of(checkpoint: Path) -> int:
    """Return the rank of an adapter."""
    assert is_adapter(checkpoint), f"{checkpoint}: the config lets vLLM serve adapters alone"
    config: Mapping[str, Any] = json.loads(
        (checkpoint / "adapter_config.json").read_text(encoding="utf-8")
    )
    return int(config["r"])
