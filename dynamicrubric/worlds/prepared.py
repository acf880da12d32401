"""Reads a prepared data folder: the one schema that worlds and real data share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dynamicrubric.worlds.base import World, world_of

Split = Literal["train", "heldout"]


@dataclass(frozen=True)
class PreparedData:
    """Prompts and anchors.

    Attributes:
        prompts: text of each prompt by id, in file order, for each split.
        anchors: ranked texts, best first, by training prompt id.
        world: the world it is of.
    """

    prompts: dict[Split, dict[str, str]]
    anchors: dict[str, tuple[str, ...]]
    world: World

    @property
    def all_prompts(self) -> dict[str, str]:
        """Texts of both splits by id."""
        return {**self.prompts["train"], **self.prompts["heldout"]}


def load_prepared(directory: Path) -> PreparedData:
    """Read prompts.jsonl and anchors.jsonl of a prepared folder."""
    prompts: dict[Split, dict[str, str]] = {"train": {}, "heldout": {}}
    for row in read_jsonl(directory / "prompts.jsonl"):
        prompts[row["split"]][row["id"]] = row["text"]
    anchors = {
        row["prompt_id"]: tuple(row["responses"]) for row in read_jsonl(directory / "anchors.jsonl")
    }
    leaked = anchors.keys() & prompts["heldout"].keys()
    assert not leaked, f"anchors of held-out prompts: {sorted(leaked)[:3]}"
    return PreparedData(prompts, anchors, world_of(directory))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
