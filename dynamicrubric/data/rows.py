"""The one schema of an anchor row, and every way in which a row of a file fails to be one.

A row keeps what a generator or a policy may see (prompt, responses) and the order. Scores, model
names and the like are dropped where a file is read, so that nothing later can show them to a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from itertools import combinations
from typing import Final

from dynamicrubric.data.normalise import prompt_key

HASH_BYTES: Final = 16
"""Of prompt and content hashes: 128 bits, so that two of a billion rows never meet by chance."""


class RowFault(StrEnum):
    """Every way in which one row of a file is unusable. Data, counted; never an exception."""

    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    NO_PROMPT = "no_prompt"
    """No field with the prompt, or one that is not text."""
    EMPTY_PROMPT = "empty_prompt"
    NOT_A_CONVERSATION = "not_a_conversation"
    """Turns that do not alternate, or do not end where an answer is due."""
    NO_RESPONSES = "no_responses"
    """No list of responses, or one of fewer than two."""
    RESPONSE_NOT_TEXT = "response_not_text"
    NO_RANK = "no_rank"
    """Neither ranking nor tiers, or an answer without its rank."""
    RANK_NOT_A_NUMBER = "rank_not_a_number"
    NOT_A_PERMUTATION = "not_a_permutation"
    """A ranking that names a response twice, leaves one out, or names one that is not there."""
    TIERS_DISAGREE = "tiers_disagree"
    """Tiers that order two responses otherwise than the ranking does."""
    LONE_SURROGATE = "lone_surrogate"
    """Half a character, which no file in UTF-8 can hold."""

    @property
    def words(self) -> str:
        """The fault as a sentence names it."""
        return self.value.replace("_", " ").replace("json", "JSON").replace("utf8", "UTF-8")


@dataclass(frozen=True)
class AnchorRow:
    """A prompt with a ranked list of responses.

    Attributes:
        id: name of the row in its source.
        turns: user, assistant, ..., user: an odd number of texts, the last one to be answered.
        responses: texts, best first; the order inside a tier is the source's and means nothing.
        tiers: sizes of the groups of tied responses, best first; they add up to len(responses).
        source: where the row is from, in words.
        license: as the source states it.
    """

    id: str
    turns: tuple[str, ...]
    responses: tuple[str, ...]
    tiers: tuple[int, ...]
    source: str
    license: str

    def __post_init__(self) -> None:
        if not len(self.turns) % 2:
            raise ValueError(f"{len(self.turns)} turns: a prompt ends with the user's")
        if min(self.tiers, default=0) < 1 or sum(self.tiers) != len(self.responses):
            raise ValueError(f"tiers {self.tiers} of {len(self.responses)} responses")

    @property
    def prompt(self) -> str:
        r"""What is answered: the one turn, or the conversation with its speakers named.

        >>> AnchorRow("a", ("Hi", "Hello!", "Why?"), ("x", "y"), (1, 1), "", "").prompt
        'Human: Hi\n\nAssistant: Hello!\n\nHuman: Why?'
        """
        return joined(self.turns)

    @property
    def user_turns(self) -> tuple[str, ...]:
        """What the user said, first to last."""
        return self.turns[::2]

    @property
    def best(self) -> tuple[str, ...]:
        """Responses of the best tier."""
        return self.responses[: self.tiers[0]]

    @cached_property
    def tier_of(self) -> tuple[int, ...]:
        """Tier of each response, 0 for the best."""
        return tuple(tier for tier, size in enumerate(self.tiers) for _ in range(size))

    @cached_property
    def response_keys(self) -> tuple[str, ...]:
        """What identifies each response; equal for texts that differ in dressing alone."""
        return tuple(prompt_key(text) for text in self.responses)

    @cached_property
    def prompt_hash(self) -> bytes:
        """Hash of the normalised prompt, `HASH_BYTES` long: what makes two rows duplicates."""
        return text_hash(prompt_key(self.prompt))

    @cached_property
    def content_hash(self) -> bytes:
        """Hash of prompt, responses and order; not of id, source and licence."""
        return text_hash(repr((self.turns, self.responses, self.tiers)))

    def orders(self) -> dict[tuple[bytes, bytes], int]:
        """Say of each decided pair which is better: +1 for the one of the smaller hash, -1 else.

        Responses are known by the hash of their normalised text; of equal ones there is no order.
        """
        hashes = [text_hash(key) for key in self.response_keys]
        found: dict[tuple[bytes, bytes], int] = {}
        for first, second in combinations(range(len(hashes)), 2):
            better, worse = hashes[first], hashes[second]
            if self.tier_of[first] == self.tier_of[second] or better == worse:
                continue
            if better < worse:
                found[better, worse] = 1
            else:
                found[worse, better] = -1
        return found


def joined(turns: Sequence[str]) -> str:
    """Return the one turn, or the conversation with its speakers named."""
    if len(turns) == 1:
        return turns[0]
    speakers = ("Human", "Assistant")
    return "\n\n".join(f"{speakers[n % 2]}: {text}" for n, text in enumerate(turns))


def text_hash(text: str) -> bytes:
    """Return the hash of a text, `HASH_BYTES` long, the same in every process."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()
