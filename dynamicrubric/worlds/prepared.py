"""Reads a prepared data folder: the one schema that worlds and real data share."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from dynamicrubric.worlds.base import BaseModelFiles, World, base_of, world_of

Split = Literal["train", "heldout"]
HELDOUT_ANCHORS: Final = "heldout_anchors.jsonl"


@dataclass(frozen=True)
class PreparedData:
    """Prompts and anchors.

    Attributes:
        prompts: text of each prompt by id, in file order, for each split.
        anchors: ranked texts, best first, by training prompt id.
        world: the world it is of.
        base: the pretrained base of its models; None where checkpoints are whole models.
        heldout_anchors: ranked texts, best first, by held-out prompt id: they measure, and are
            never trained on.
    """

    prompts: dict[Split, dict[str, str]]
    anchors: dict[str, tuple[str, ...]]
    world: World
    base: BaseModelFiles | None = None
    heldout_anchors: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def all_prompts(self) -> dict[str, str]:
        """Texts of both splits by id."""
        return {**self.prompts["train"], **self.prompts["heldout"]}


def load_prepared(directory: Path) -> PreparedData:
    """Read prompts.jsonl and anchors.jsonl of a prepared folder."""
    prompts: dict[Split, dict[str, str]] = {"train": {}, "heldout": {}}
    for row in read_jsonl(directory / "prompts.jsonl"):
        prompts[row["split"]][row["id"]] = row["text"]
    anchors = _anchors(directory / "anchors.jsonl")
    leaked = anchors.keys() & prompts["heldout"].keys()
    assert not leaked, f"anchors of held-out prompts: {sorted(leaked)[:3]}"
    heldout = directory / HELDOUT_ANCHORS
    return PreparedData(
        prompts,
        anchors,
        world_of(directory),
        base_of(directory),
        _anchors(heldout) if heldout.is_file() else {},
    )


def _anchors(path: Path) -> dict[str, tuple[str, ...]]:
    return {row["prompt_id"]: tuple(row["responses"]) for row in read_jsonl(path)}


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    r"""Read a JSON Lines file: lines end with \n alone, texts may hold other line separators."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
