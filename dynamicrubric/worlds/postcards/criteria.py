"""Checkable criteria, their direction, and true quality.

A criterion is a sentence; `check` reads the sentence and the response and nothing else, as a
language model verifier would. Each feature of a postcard has two sentences, one that asks for it
and one that asks for its opposite. Which of the two is good is in `criteria_for`, which only
anchors and measurement use. Half of the features are good to have and half are good to leave out,
so that neither writing more nor writing less is a short cut to quality.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
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
COLOURS: Final = ("red", "blue", "green", "golden", "violet")
WEEKDAYS: Final = ("Monday", "Tuesday", "Friday", "Sunday")
NUM_SIGHTS_EACH_WAY: Final = 2

_ARTICLES: Final = frozenset({"a", "an", "the"})
_WORD: Final = re.compile(r"[A-Za-z']+")


def words_of(text: str) -> list[str]:
    """Split a postcard into its words, punctuation and digits left out."""
    return _WORD.findall(text)


@lru_cache(maxsize=1 << 14)  # some forty criteria ask one response for its words
def _lowered_words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in words_of(text))


def _has_word(text: str, *words: str) -> bool:
    found = _lowered_words(text)
    return any(word.lower() in found for word in words)


def _repeats_a_word(text: str) -> bool:
    words = [word.lower() for word in words_of(text)]
    return any(first == second for first, second in itertools.pairwise(words))


def _opens_with_article(text: str) -> bool:
    words = words_of(text)
    return bool(words) and words[0].lower() in _ARTICLES


def _shouts(text: str) -> bool:
    return any(len(word) >= 3 and word.isupper() for word in words_of(text))


def _ends_with(text: str, mark: str) -> bool:
    return text.rstrip().endswith(mark)


def _opposite(judge: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda text: not judge(text)


_PAIRS: Final[tuple[tuple[str, str, Callable[[str], bool]], ...]] = (
    ("greets the reader", "gives no greeting", lambda text: _has_word(text, "dear")),
    ("sends a wish", "sends no wish", lambda text: _has_word(text, "happy")),
    ("says thank you", "gives no thanks", lambda text: "thank you" in text.lower()),
    ("gives a number", "gives no number", lambda text: any(c.isdigit() for c in text)),
    ("names a colour", "names no colour", lambda text: _has_word(text, *COLOURS)),
    ("names a weekday", "names no weekday", lambda text: _has_word(text, *WEEKDAYS)),
    ("sends a hug", "sends no hug", lambda text: _has_word(text, "hug")),
    ("does not shout", "shouts in capitals", lambda text: not _shouts(text)),
    ("is never vague", "says something vague", lambda text: not _has_word(text, "something")),
    ("repeats no word", "repeats a word", lambda text: not _repeats_a_word(text)),
    ("opens without an article", "opens with an article", lambda t: not _opens_with_article(t)),
    ("keeps off money", "mentions money", lambda text: not _has_word(text, "money")),
    ("keeps off work", "mentions work", lambda text: not _has_word(text, "work")),
    ("keeps off illness", "tells of a headache", lambda text: not _has_word(text, "headache")),
    ("uses no slang", "uses slang", lambda text: not _has_word(text, "gonna")),
)
"""(good sentence, bad sentence, whether a text meets the good one); the bad one is its opposite."""
_FULL_STOP: Final = "ends with a full stop"
_QUESTION_MARK: Final = "ends with a question mark"
_FIXED: Final[dict[str, Callable[[str], bool]]] = {
    **{good: judge for good, _, judge in _PAIRS},
    **{bad: _opposite(judge) for _, bad, judge in _PAIRS},
    _FULL_STOP: lambda text: _ends_with(text, "."),
    _QUESTION_MARK: lambda text: _ends_with(text, "?"),
}
# Template prefixes of open-ended criteria and how each reads the rest of the sentence.
_TEMPLATES: Final[dict[str, Callable[[str, str], bool]]] = {
    "mentions the ": _has_word,
    "leaves out the ": lambda text, sight: not _has_word(text, sight),
}


@lru_cache(maxsize=1 << 16)  # a group's rubrics ask the same of the same responses
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
    """Return the forty criteria of a prompt: twenty good, twenty bad, a pair for each feature.

    There are four times as many good ones as a rubric of the default study has items, so that
    later rounds still have something to teach: with seven of them, a policy met all within two
    rounds, and what then discriminated was bad.
    """
    good_sights, bad_sights = sights_of(prompt.place)
    pairs = [
        *((f"mentions the {sight}", f"leaves out the {sight}", 1) for sight in good_sights),
        *((f"leaves out the {sight}", f"mentions the {sight}", 1) for sight in bad_sights),
        *((good, bad, 2) for good, bad, _ in _PAIRS),
        (_FULL_STOP, _QUESTION_MARK, 2),
    ]
    # Close to even: an anchor list can only show the direction of what moves its order.
    return (
        *(WorldCriterion(good, worth) for good, _, worth in pairs),
        *(WorldCriterion(bad, -worth) for _, bad, worth in pairs),
    )


LOWEST_QUALITY: Final = -1.0
"""The least that a postcard's true quality can be: every bad criterion met and no good one."""


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
    sights = [f"{verb} the {sight}" for verb in ("mentions", "leaves out") for sight in SIGHTS]
    return (*sights, *_FIXED)
