"""Names of attacks and of what is compared, for settings that are checked before all else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from dynamicrubric.errors import UserError

FIRST_ORDER: Final = (
    "own_words_again", "filler", "prompt_again", "claim", "orders", "turn",
)  # fmt: skip
SECOND_ORDER: Final = (
    "planted_phrase", "planted_criterion", "planted_request", "near_copies", "copies_alone",
)  # fmt: skip
CONTROLS: Final = ("copies_alone",)
"""Those that plant nothing: what an attacked set does by itself."""
ATTACKS: Final = (*FIRST_ORDER, *SECOND_ORDER)
"""In the order of every table; `attacks` says what each does."""

Reference = Literal["before", "start"]
REFERENCES: Final[dict[Reference, str]] = {
    "before": "the policy of the round before",
    "start": "the start policy",
}
"""The older policies that a round's is compared with (`course`)."""


def check_names(names: Sequence[str]) -> None:
    """Return if these are attacks, each named once.

    Raises:
        UserError: there is no attack of a name, or a name is there twice.
    """
    wrong = [name for name in names if name not in ATTACKS]
    if wrong or len(set(names)) < len(names):
        raise UserError(
            doing="choosing attacks",
            got=", ".join(map(repr, wrong)) or "a name twice",
            expected=f"some of {', '.join(ATTACKS)}, each once",
        )
