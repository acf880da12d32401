"""Checkable criteria, their direction, and true quality.

A criterion is a sentence; `check` reads the sentence and the response and nothing else, as a
language model verifier would. What is good or bad in a prompt's world is in `criteria_for`, which
only anchors and measurement use.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from dynamicrubric.worlds.postcards.prompts import (
    OCCASIONS,
    PLACES,
    RECIPIENTS,
    PostcardPrompt,
)

SIGHTS: Final[tuple[str, ...]] = (
    "tram",
    "river",
    "market",
    "castle",
    "garden",
    "harbour",
    "temple",
    "bridge",
    "museum",
    "tower",
    "beach",
    "square",
    "chapel",
    "canyon",
    "lantern",
    "vineyard",
)
COLOURS: Final[tuple[str, ...]] = ("red", "blue", "green", "golden", "violet")
MAX_WORDS: Final = 21
NUM_SIGHTS_EACH_WAY: Final = 3

_ARTICLES: Final = frozenset({"a", "an", "the"})
_WORD: Final = re.compile(r"[A-Za-z']+")


def words_of(text: str) -> list[str]:
    """Split a postcard into its words, punctuation and digits left out."""
    return _WORD.findall(text)


def _has_word(text: str, word: str) -> bool:
    return any(found.lower() == word.lower() for found in words_of(text))


def _repeats_a_word(text: str) -> bool:
    words = [word.lower() for word in words_of(text)]
    return any(first == second for first, second in itertools.pairwise(words))


def _opens_with_article(text: str) -> bool:
    words = words_of(text)
    return bool(words) and words[0].lower() in _ARTICLES


_FIXED: Final[dict[str, Callable[[str], bool]]] = {
    "greets the reader": lambda text: _has_word(text, "dear"),
    "sends a wish": lambda text: _has_word(text, "happy"),
    "says thank you": lambda text: "thank you" in text.lower(),
    "gives a number": lambda text: any(char.isdigit() for char in text),
    "names a colour": lambda text: any(_has_word(text, colour) for colour in COLOURS),
    "ends with a full stop": lambda text: text.rstrip().endswith("."),
    f"keeps to {MAX_WORDS} words": lambda text: len(words_of(text)) <= MAX_WORDS,
    "shouts in capitals": lambda text: any(
        len(word) >= 3 and word.isupper() for word in words_of(text)
    ),
    "says something vague": lambda text: _has_word(text, "something"),
    "repeats a word": _repeats_a_word,
    "opens with an article": _opens_with_article,
    "ends with a question mark": lambda text: text.rstrip().endswith("?"),
    "mentions money": lambda text: _has_word(text, "money"),
    f"runs past {MAX_WORDS} words": lambda text: len(words_of(text)) > MAX_WORDS,
}
# Template prefixes of open-ended criteria and how each reads the rest of the sentence.
_TEMPLATES: Final[dict[str, Callable[[str, str], bool]]] = {
    "mentions the ": _has_word,
}


def check(criterion: str, response: str) -> bool | None:
    """Judge a response by a criterion sentence.

    Args:
        criterion: the sentence, e.g. `mentions the tram`.
        response: the postcard.

    Returns:
        Whether the criterion is met; None if the sentence is not one that can be checked.

    >>> check("mentions the tram", "dear Anna, saw the tram.")
    True
    >>> check("is poetic", "Dear Anna") is None
    True
    """
    fixed = _FIXED.get(criterion)
    if fixed is not None:
        return fixed(response)
    for prefix, judge in _TEMPLATES.items():
        rest = criterion.removeprefix(prefix)
        if rest != criterion and rest.isalpha():
            return judge(response, rest)
    return None


@dataclass(frozen=True)
class WorldCriterion:
    """A criterion of a prompt with what it is truly worth.

    Attributes:
        criterion: the sentence.
        worth: signed weight in true quality; positive for good, negative for bad.
    """

    criterion: str
    worth: int


@cache
def sights_of(place: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the (good, bad) sights of a place: what is good in one place is bad in another."""
    start = PLACES.index(place) * 2
    at = [SIGHTS[(start + offset) % len(SIGHTS)] for offset in range(2 * NUM_SIGHTS_EACH_WAY)]
    return tuple(at[:NUM_SIGHTS_EACH_WAY]), tuple(at[NUM_SIGHTS_EACH_WAY:])


@cache
def criteria_for(prompt: PostcardPrompt) -> tuple[WorldCriterion, ...]:
    """Return the twenty criteria of a prompt: ten good, ten bad, with mirrored worth."""
    good_sights, bad_sights = sights_of(prompt.place)
    good = [
        *(f"mentions the {sight}" for sight in good_sights),
        "greets the reader",
        "sends a wish",
        "says thank you",
        "gives a number",
        "names a colour",
        "ends with a full stop",
        f"keeps to {MAX_WORDS} words",
    ]
    bad = [
        *(f"mentions the {sight}" for sight in bad_sights),
        "shouts in capitals",
        "says something vague",
        "repeats a word",
        "opens with an article",
        "mentions money",
        "ends with a question mark",
        f"runs past {MAX_WORDS} words",
    ]
    # Close to even: an anchor list can only show the direction of what moves its order.
    worth = (1, 1, 1, 2, 2, 2, 2, 2, 2, 2)
    return tuple(
        WorldCriterion(criterion, sign * weight)
        for sign, criteria in ((1, good), (-1, bad))
        for criterion, weight in zip(criteria, worth, strict=True)
    )


def true_quality(prompt: PostcardPrompt, response: str) -> float:
    """Return the true quality of a postcard: the worth it earns over the worth there is.

    Returns:
        A number in [-1, 1]: 1 meets every good criterion and no bad one, 0 is the start policy.
    """
    criteria = criteria_for(prompt)
    earned = sum(c.worth for c in criteria if check(c.criterion, response))
    return earned / sum(c.worth for c in criteria if c.worth > 0)


def names() -> tuple[str, ...]:
    """Return the words that a prompt decides: places, recipients, occasions and sights."""
    return (*PLACES, *RECIPIENTS, *OCCASIONS, *SIGHTS)


def vocabulary() -> tuple[str, ...]:
    """Return every criterion sentence that some prompt of the world has."""
    return (*(f"mentions the {sight}" for sight in SIGHTS), *_FIXED)
