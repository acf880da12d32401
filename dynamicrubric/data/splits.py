"""Which prompts are held out: a hash of the prompt decides, and nothing else.

Adding, removing or reordering rows moves no other row. The hash is of the first turn, not of the
whole conversation: data sets cut one conversation at several places, and the pieces have to stay on
one side.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

from dynamicrubric.data.normalise import prompt_key
from dynamicrubric.data.rows import AnchorRow
from dynamicrubric.data.settings import SplitSettings

Split = Literal["train", "heldout"]


def split_of(row: AnchorRow, settings: SplitSettings) -> Split:
    """Return the split of a row's prompt."""
    return split_of_prompt(row.turns[0], settings)


def split_of_prompt(prompt: str, settings: SplitSettings) -> Split:
    """Return the split of a prompt, of a conversation's first turn.

    >>> split_of_prompt("Why?", SplitSettings(heldout_share=1.0))
    'heldout'
    """
    salted = f"{settings.seed}\0{prompt_key(prompt)}".encode("utf-8", "surrogatepass")
    number = int.from_bytes(blake2b(salted, digest_size=8).digest(), "big")
    return "heldout" if number < settings.heldout_share * 2**64 else "train"
