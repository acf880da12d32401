"""What the steps ask of a world, and which world a prepared folder is of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from dynamicrubric.errors import UserError
from dynamicrubric.types import Rubric

if TYPE_CHECKING:
    from dynamicrubric.config import VerifierConfig
    from dynamicrubric.engines.base import Verifier
    from dynamicrubric.engines.choice import Engines

WORLD_FILE: Final = "world.json"
"""In a prepared folder: which world it is of. Without it, it is of the embedded one."""
POSTCARDS: Final = "postcards"
LANGUAGE: Final = "language"
BASE_FOLDER: Final = "base"
"""In a prepared folder: the pretrained base, where the world has one."""


@dataclass(frozen=True)
class BaseModelFiles:
    """A pretrained base, part of the prepared data: every step that loads it depends on it.

    Attributes:
        folder: safetensors, config and tokenizer.
        dtype: number format in memory.
    """

    folder: Path
    dtype: str


class World(Protocol):
    """What a world knows.

    Attributes:
        name: as in params.yaml and world.json.
        lowest_quality: the least true quality there is, an oracle's reward for a cut response;
            None where nobody knows true quality.
    """

    @property
    def name(self) -> str:
        """Its name in params.yaml."""
        ...

    @property
    def lowest_quality(self) -> float | None:
        """The least true quality there is; None where nobody knows it."""
        ...

    def true_quality(self, prompt_id: str, text: str) -> float | None:
        """Return the true quality of a response; None where nobody knows it.

        Raises:
            KeyError: the world has no such prompt.
        """
        ...

    def verifier(self, settings: VerifierConfig, engines: Engines) -> Verifier:
        """Return the frozen verifier; one that is a language model is one of the step's engines."""
        ...

    def program(self, settings: VerifierConfig) -> Verifier:
        """Return the program that reads the world's checkable criteria."""
        ...

    def shifted_anchors(
        self, source: str, anchors: Mapping[str, tuple[str, ...]]
    ) -> dict[str, tuple[str, ...]]:
        """Return lists from another distribution for the same prompts, the same for every run.

        Args:
            source: which one (`anchor_source` of a recipe).
            anchors: the prepared lists by prompt id, best first.
        """
        ...

    def rules(self, max_items: int) -> Rubric:
        """Return the first items of the rubric that a person wrote for every prompt."""
        ...


def world_named(name: str) -> World:
    """Return the world of a name.

    Raises:
        UserError: there is none.
    """
    from dynamicrubric.worlds.language.world import Language
    from dynamicrubric.worlds.postcards.world import Postcards

    worlds: dict[str, World] = {POSTCARDS: Postcards(), LANGUAGE: Language()}
    if name in worlds:
        return worlds[name]
    raise UserError(
        doing="choosing a world", got=repr(name), expected=f"one of {', '.join(worlds)}"
    )


def world_of(prepared_dir: Path) -> World:
    """Return the world that a prepared folder is of: its own file says so.

    Raises:
        UserError: the file is broken or names no world.
    """
    return world_named(str(_facts(prepared_dir).get("name", POSTCARDS)))


def base_of(prepared_dir: Path) -> BaseModelFiles | None:
    """Return the pretrained base in a prepared folder, if its world has one."""
    dtype = _facts(prepared_dir).get("dtype")
    return None if dtype is None else BaseModelFiles(prepared_dir / BASE_FOLDER, str(dtype))


def _facts(prepared_dir: Path) -> dict[str, Any]:
    path = prepared_dir / WORLD_FILE
    if not path.is_file():
        return {}
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return {"name": facts["name"], "dtype": facts.get("dtype")}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            doing=f"reading {path}",
            got=f"no name of a world ({error})",
            remedy="make the prepared data anew",
        ) from None
