"""Prompts: every combination of a place, a recipient and an occasion.

Held-out prompts are combinations that no training step sees; their words are all known from other
combinations. The split is stratified so that every word stays in training.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from dynamicrubric.seeds import derive_seed

PLACES: Final[tuple[str, ...]] = (
    "Lisbon",
    "Oslo",
    "Kyoto",
    "Cairo",
    "Lima",
    "Naples",
    "Quebec",
    "Nairobi",
)
RECIPIENTS: Final[tuple[str, ...]] = ("Anna", "Ben", "Clara", "David", "Emma", "Felix")
OCCASIONS: Final[tuple[str, ...]] = (
    "birthday",
    "wedding",
    "graduation",
    "retirement",
    "holiday",
)


@dataclass(frozen=True)
class PostcardPrompt:
    """One writing task.

    Attributes:
        place: where the postcard is sent from; decides which sights are good or bad to mention.
        recipient: whom it is written to.
        occasion: what it is written for.
    """

    place: str
    recipient: str
    occasion: str

    @property
    def id(self) -> str:
        """Readable identifier, e.g. `lisbon-anna-birthday`."""
        return f"{self.place}-{self.recipient}-{self.occasion}".lower()

    @property
    def text(self) -> str:
        """The prompt as the policy and the generator read it."""
        return f"Write to {self.recipient}, from {self.place}, for the {self.occasion}"


def all_prompts() -> tuple[PostcardPrompt, ...]:
    """Return the 240 combinations in a fixed order."""
    return tuple(
        PostcardPrompt(*parts) for parts in itertools.product(PLACES, RECIPIENTS, OCCASIONS)
    )


def prompt_by_id(prompt_id: str) -> PostcardPrompt:
    """Return the prompt with an id; KeyError if there is none."""
    return _BY_ID[prompt_id]


_BY_ID: Final = {prompt.id: prompt for prompt in all_prompts()}


def split_prompts(
    num_heldout: int, seed: int
) -> tuple[tuple[PostcardPrompt, ...], tuple[PostcardPrompt, ...]]:
    """Split the combinations into training and held-out prompts by a hash of their ids.

    Places take turns in giving up a prompt, so that held-out prompts cover all places evenly.

    Returns:
        (training, held-out), each in the fixed order of `all_prompts`.

    Raises:
        ValueError: fewer than half of the combinations would be left for training.
    """
    prompts = all_prompts()
    if not 0 < num_heldout <= len(prompts) // 2:
        raise ValueError(
            f"num_heldout_prompts is {num_heldout}; the postcards world has {len(prompts)} "
            f"prompts and keeps at least half for training, so at most {len(prompts) // 2}"
        )
    queues = {
        place: sorted(
            (prompt for prompt in prompts if prompt.place == place),
            key=lambda prompt: derive_seed(seed, "split", prompt.id),
        )
        for place in PLACES
    }
    turns = itertools.cycle(PLACES)
    heldout = {queues[next(turns)].pop().id for _ in range(num_heldout)}
    training = tuple(prompt for prompt in prompts if prompt.id not in heldout)
    return training, tuple(prompt for prompt in prompts if prompt.id in heldout)
