"""What the steps ask of a world, and which world a prepared folder is of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from dynamicrubric.errors import UserError
from dynamicrubric.types import Rubric

if TYPE_CHECKING:
    from dynamicrubric.config import VerifierConfig
    from dynamicrubric.engines.base import Verifier

WORLD_FILE: Final = "world.json"
"""In a prepared folder: which world it is of. Without it, it is of the embedded one."""
POSTCARDS: Final = "postcards"


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

    def verifier(self, settings: VerifierConfig) -> Verifier:
        """Return the frozen verifier."""
        ...

    def rules(self, max_items: int) -> Rubric:
        """Return the first items of the rubric that a person wrote for every prompt."""
        ...


def world_named(name: str) -> World:
    """Return the world of a name.

    Raises:
        UserError: there is none.
    """
    from dynamicrubric.worlds.postcards.world import Postcards

    if name == POSTCARDS:
        return Postcards()
    raise UserError(doing="choosing a world", got=repr(name), expected=repr(POSTCARDS))


def world_of(prepared_dir: Path) -> World:
    """Return the world that a prepared folder is of: its own file says so.

    Raises:
        UserError: the file is broken or names no world.
    """
    path = prepared_dir / WORLD_FILE
    if not path.is_file():
        return world_named(POSTCARDS)
    try:
        name = str(json.loads(path.read_text(encoding="utf-8"))["name"])
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            doing=f"reading {path}",
            got=f"no name of a world ({error})",
            remedy="make the prepared data anew",
        ) from None
    return world_named(name)
