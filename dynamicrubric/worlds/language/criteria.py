"""Criteria for answers to any prompt, in pairs: a sentence and the one that asks for its opposite.

They are the words of the generator's warm start, whose rubrics shall have the right form and no
direction: a good answer meets as many of the bank as a bad one, since it meets one of each pair.
Those that a program can read have a check, by which the warm start tells which criteria
discriminate, and which the programmatic verifier asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

Check = Callable[[str], bool]


def _finds(pattern: str) -> Check:
    compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    return lambda text: compiled.search(text) is not None


def _opposite(judge: Check) -> Check:
    return lambda text: not judge(text)


def _has_fewer_words(count: int) -> Check:
    return lambda text: len(text.split()) < count


def _has_paragraphs(text: str) -> bool:
    return "\n\n" in text.strip()


PAIRS: Final[tuple[tuple[str, str, Check | None], ...]] = (
    ("answers in its first sentence", "leads up to its answer slowly", None),
    ("gives an example", "gives no example", _finds(r"\b(for example|for instance|such as)\b")),
    ("gives a reason", "gives no reason", _finds(r"\b(because|since|therefore|due to)\b")),
    ("uses a bullet list", "uses no bullet list", _finds(r"^\s*[-*•] ")),
    ("numbers its points", "numbers no points", _finds(r"^\s*\d+[.)] ")),
    ("has a heading", "has no heading", _finds(r"^(#+ |\*\*[^*]+\*\*:?$)")),
    ("has several paragraphs", "is a single paragraph", _has_paragraphs),
    ("has fewer than 30 words", "has 30 words or more", _has_fewer_words(30)),
    ("has fewer than 60 words", "has 60 words or more", _has_fewer_words(60)),
    ("has fewer than 120 words", "has 120 words or more", _has_fewer_words(120)),
    ("gives a number", "gives no number", _finds(r"\d")),
    ("asks a question", "asks no question", _finds(r"\?")),
    ("hedges its claims", "makes its claims flatly", _finds(r"\b(may|might|could|perhaps)\b")),
    ("apologises", "does not apologise", _finds(r"\b(sorry|apolog)")),
    ("opens with a pleasantry", "opens without pleasantries",
     _finds(r"\A\s*(sure|certainly|of course|great|hello|hi|thank)\b")),
    ("addresses the reader", "never addresses the reader", _finds(r"\byou(r|rself)?\b")),
    ("speaks of itself", "never speaks of itself", _finds(r"\b(I|I'm|my)\b")),
    ("mentions a drawback", "mentions no drawback", _finds(r"\b(however|but|although|drawback)\b")),
    ("warns of a risk", "warns of nothing", _finds(r"\b(risk|danger|careful|warn|avoid)")),
    ("ends with a summary", "ends without a summary",
     _finds(r"\b(in summary|in conclusion|overall|in short)\b")),
    ("offers further help", "offers no further help",
     _finds(r"\b(let me know|feel free|hope this helps)\b")),
    ("uses an exclamation mark", "uses no exclamation mark", _finds(r"!")),
    ("quotes something", "quotes nothing", _finds(r"[\"“”]")),
    ("has code", "has no code", _finds(r"```|^ {4}\S")),
    ("ends with a whole sentence", "breaks off", _finds(r"[.!?:)\"”`*]\s*\Z")),
    ("is polite", "is blunt", None),
    ("is friendly", "is formal", None),
    ("uses everyday words", "uses technical words", None),
    ("compares several ways", "shows one way only", None),
    ("says what it is unsure of", "shows no doubt", None),
    ("goes into detail", "keeps to the main point", None),
    ("follows the format that was asked for", "chooses a format of its own", None),
)  # fmt: skip
"""(sentence, its opposite, whether a text meets the first; None where only a reader can say)."""
MENTIONS: Final = "mentions "
LEAVES_OUT: Final = "leaves out "
_CHECKS: Final[dict[str, Check | None]] = {
    **{asked: check for asked, _, check in PAIRS},
    **{opposite: None if check is None else _opposite(check) for _, opposite, check in PAIRS},
}
BANK: Final = tuple(_CHECKS)
"""Every sentence of the pairs."""


@lru_cache(maxsize=1 << 16)
def check(criterion: str, response: str) -> bool | None:
    """Judge a response by a criterion, where a program can.

    Args:
        criterion: a sentence of the bank, or `mentions WORD` or `leaves out WORD`.
        response: the text.

    Returns:
        Whether it is met; None for what a program cannot read.

    >>> check("asks a question", "Why not?"), check("leaves out tea", "Tea."), check("is kind", "")
    (True, False, None)
    """
    known = _CHECKS.get(criterion)
    if known is not None:
        return known(response)
    for prefix, wanted in ((MENTIONS, True), (LEAVES_OUT, False)):
        word = criterion.removeprefix(prefix)
        if word != criterion and word.isalpha():
            return (word.lower() in words_of(response)) is wanted
    return None


@lru_cache(maxsize=1 << 12)
def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, in lower case."""
    return frozenset(re.findall(r"[^\W\d_]+", text.lower()))
