"""Which anchor rows are worth training on: the paper's filters, each with a name to be counted by.

The paper names most of them without a number or a rule; ours are in `FilterSettings` and here. They
look at the prompt and the best tier, except for what makes a list unusable as a list. The order is
fixed: a row counts for the first filter that removes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from dynamicrubric.data.grams import repeated_share
from dynamicrubric.data.normalise import words
from dynamicrubric.data.rows import AnchorRow
from dynamicrubric.data.settings import FilterSettings

LOOP_NGRAM: Final = 8
LOOP_WORDS: Final = 64
"""A text with fewer words cannot loop enough to tell it from a refrain."""
BARE_CHARS: Final = 300
"""A refusal, greeting or question that goes on for longer has more in it than that."""
_ONE_CHAR_RUN: Final = re.compile(r"([^\W_])\1{63,}")
_BROKEN: Final = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ufffd\ufffe\uffff]"  # controls, replacement marks
    "|\xc3[\x82\x83][\xa0-\xbf\xc2]|\xe2\u20ac[\u2122\u0153\x9d\u201c\u201d\u02dc\xa6]"
    "|\xc3[\xa0-\xbf\u0192]\xc2|\xef\xbf\xbd"  # UTF-8 that was read as something else
)
_REFUSAL: Final = re.compile(
    r"^\W*(?:i'?m|i am|i)?\W*(?:very |so |really )?(?:sorry|apologi[sz]e|afraid)\b.*"
    r"\b(?:can'?t|cannot|can not|unable|not able|won'?t|not allowed|not comfortable"
    r"|not appropriate)"
    r"|^\W*(?:i|as an? ai\b.{0,60}?\bi)\W*(?:'m| am)? ?"
    r"(?:can'?t|cannot|can not|won'?t|will not|unable to|not able to|must decline)\b",
    re.IGNORECASE | re.DOTALL,
)
_GREETING: Final = re.compile(
    r"^\W*(?:hi|hello|hey|greetings|good (?:morning|afternoon|evening))\b.*"
    r"\b(?:help|assist|do for) you\b[^.!?]*[.!?]?\W*$",
    re.IGNORECASE | re.DOTALL,
)
_ASKING: Final = re.compile(
    r"\b(?:(?:could|can|would) you|please) (?:please )?"
    r"(?:provide|specify|clarify|share|give|tell|explain|be more specific|elaborate)"
    r"|\bmore (?:information|details?|context|specific)\b|\b(?:do|did) you mean\b"
    r"|\bwhat (?:kind|type|sort|exactly|specific)\b|\bwhich (?:one|of)\b",
    re.IGNORECASE,
)


class FilterName(StrEnum):
    """Why a row that could be read is left out."""

    FEW_RESPONSES = "few_responses"
    ALL_TIED = "all_tied"
    """Nothing is better than anything else."""
    EMPTY_RESPONSE = "empty_response"
    SELF_CONTRADICTORY = "self_contradictory"
    """One text, equal after normalising, ranks above itself."""
    REPEATED_RESPONSE = "repeated_response"
    """Two responses of one tier are equal after normalising."""
    SHORT_PROMPT = "short_prompt"
    LONG_PROMPT = "long_prompt"
    SHORT_BEST = "short_best"
    LONG_RESPONSE = "long_response"
    BROKEN_TEXT = "broken_text"
    """Control characters, replacement marks, UTF-8 that was read as another encoding."""
    REPETITION_LOOP = "repetition_loop"
    REFUSAL = "refusal"
    """A best response that only declines."""
    GREETING = "greeting"
    """A best response that only greets and offers help."""
    CLARIFYING_QUESTION = "clarifying_question"
    """A best response that only asks for more."""
    OTHER_SCRIPT = "other_script"


def filter_of(row: AnchorRow, settings: FilterSettings) -> FilterName | None:
    """Return the first filter that removes a row, None if it is kept."""
    return next((name for name, removes in _FILTERS.items() if removes(row, settings)), None)


def _has_equal(row: AnchorRow, *, in_one_tier: bool) -> bool:
    seen: dict[str, int] = {}
    for key, tier in zip(row.response_keys, row.tier_of, strict=True):
        known = seen.setdefault(key, tier)
        if known != tier and not in_one_tier:
            return True
    return in_one_tier and len(seen) < len(row.responses)


def _shown(row: AnchorRow) -> tuple[str, ...]:
    return (*row.turns, *row.best)


def _loops(text: str, limit: float) -> bool:
    if _ONE_CHAR_RUN.search(text):
        return True
    found = words(text)
    return len(found) >= LOOP_WORDS and repeated_share(found, LOOP_NGRAM) > limit


def _is_bare(text: str, pattern: re.Pattern[str]) -> bool:
    text = text.strip().replace("\u2019", "'")
    return len(text) <= BARE_CHARS and pattern.search(text) is not None


def _only_asks(text: str) -> bool:
    return text.rstrip().endswith("?") and _is_bare(text, _ASKING)


def _latin_share(texts: tuple[str, ...]) -> float:
    letters = [char for text in texts for char in text if char.isalpha()]
    latin = sum(char.isascii() or "LATIN" in unicodedata.name(char, "") for char in letters)
    return latin / len(letters) if letters else 1.0


_FILTERS: Final[Mapping[FilterName, Callable[[AnchorRow, FilterSettings], bool]]] = {
    FilterName.FEW_RESPONSES: lambda row, s: len(row.responses) < s.min_responses,
    FilterName.ALL_TIED: lambda row, _: len(row.tiers) < 2,
    FilterName.EMPTY_RESPONSE: lambda row, _: not all(text.strip() for text in row.responses),
    FilterName.SELF_CONTRADICTORY: lambda row, _: _has_equal(row, in_one_tier=False),
    FilterName.REPEATED_RESPONSE: lambda row, _: _has_equal(row, in_one_tier=True),
    FilterName.SHORT_PROMPT: lambda row, s: len(row.prompt.strip()) < s.min_prompt_chars,
    FilterName.LONG_PROMPT: lambda row, s: len(row.prompt) > s.max_prompt_chars,
    FilterName.SHORT_BEST: lambda row, s: (
        min(len(text.strip()) for text in row.best) < s.min_best_chars
    ),
    FilterName.LONG_RESPONSE: lambda row, s: max(map(len, row.responses)) > s.max_response_chars,
    FilterName.BROKEN_TEXT: lambda row, _: any(map(_BROKEN.search, _shown(row))),
    FilterName.REPETITION_LOOP: lambda row, s: any(
        _loops(text, s.max_repeated_share) for text in _shown(row)
    ),
    FilterName.REFUSAL: lambda row, _: any(_is_bare(text, _REFUSAL) for text in row.best),
    FilterName.GREETING: lambda row, _: any(_is_bare(text, _GREETING) for text in row.best),
    FilterName.CLARIFYING_QUESTION: lambda row, _: any(map(_only_asks, row.best)),
    FilterName.OTHER_SCRIPT: lambda row, s: (
        s.min_latin_share > 0 and _latin_share(_shown(row)) < s.min_latin_share
    ),
}
