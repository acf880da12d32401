r"""What makes two texts the same text: letters and digits count, dressing does not.

Case, white space, punctuation, Unicode forms (full width, ligatures, soft hyphens) and Markdown
marks are dressing. What changes a question is kept: signs between operands ("3 - 2" is not
"3 + 2"), currency signs and emoji, the signs of "C++", "C#" and "10%", vowel signs of Indic
scripts. CJK characters are words of their own, since their texts have no spaces.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2212"
_CJK: Final = re.compile(
    "[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_SENTENCE_END: Final = re.compile(r"[.!?\n\u3002\uff01\uff1f]+")
_OPERATORS: Final = "+=<>\xd7\xf7\xb1\u2264\u2265\u2260-*/^%#"
_STAND_INS: Final = {ord(sign): chr(0xE000 + n) for n, sign in enumerate(_OPERATORS)}
"""Signs that count are private characters while the others are swept away."""
_SIGNS: Final = {ord(private): chr(sign) for sign, private in _STAND_INS.items()}
_BETWEEN_OPERANDS: Final = re.compile(
    r"(?<=\w)[ \t]*[+=<>\xd7\xf7\xb1\u2264\u2265\u2260][ \t]*(?=\w)"
    r"|(?<=[0-9])[ \t]*[-*/^%][ \t]*(?=[0-9])"
)
_OF_A_WORD: Final = re.compile(r"(?<=\w)(?:\+\+|#)(?!\w)|(?<=[0-9])[ \t]*%")


def words(text: str) -> list[str]:
    """Return the words of a text as they are compared.

    >>> words("**What** is 3-2, in C++?")
    ['what', 'is', '3', '-', '2', 'in', 'c++']
    """
    return normalise(text).split()


def normalise(text: str) -> str:
    """Return a text without its dressing; normalising that changes nothing more.

    >>> normalise("  The cat's HAT -- really?") == normalise("the cat s hat really")
    True
    """
    folded = _folded(text)
    folded = _BETWEEN_OPERANDS.sub(_set_apart, folded)
    folded = _OF_A_WORD.sub(_keep, folded)
    return " ".join(folded.translate(_SWEEP).split()).translate(_SIGNS)


def prompt_key(text: str) -> str:
    """Return what identifies a prompt: normalised, or as it is if it has no word at all."""
    return normalise(text) or text.strip()


def sentences(text: str) -> list[str]:
    """Return the normalised sentences and lines of a text that have words."""
    return [found for part in _SENTENCE_END.split(text) if (found := normalise(part))]


class _Dressing(dict[int, str | None]):
    """First pass: hidden characters go, dashes are one, private characters cannot come in."""

    def __missing__(self, code: int) -> str | None:
        char = chr(code)
        hidden = unicodedata.category(char) == "Cf" or 0xFE00 <= code <= 0xFE0F or code > 0xE0000
        known = "-" if char in _DASHES else None if hidden else char
        self[code] = " " if char == "_" or unicodedata.category(char) == "Co" else known
        return self[code]


class _Sweep(dict[int, str]):
    """Last pass: what is neither letter, digit nor mark separates; symbols and CJK stand alone."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if category in ("Sc", "So") or _CJK.match(char):
            self[code] = f" {char} "
        else:
            kept = category[0] in "LNM" and category != "Me"
            self[code] = char if kept or category == "Co" else " "
        return self[code]


_DRESSING: Final = _Dressing()
_SWEEP: Final = _Sweep()


def _folded(text: str) -> str:
    """Fold case and compatibility forms until folding again changes nothing."""
    text = text.translate(_DRESSING)
    if text.isascii():
        return text.lower()
    for _ in range(4):  # two are enough for every character there is
        folded = unicodedata.normalize("NFKC", text).casefold().translate(_DRESSING)
        if folded == text:
            break
        text = folded
    return text


def _set_apart(match: re.Match[str]) -> str:
    return f" {match.group().strip().translate(_STAND_INS)} "


def _keep(match: re.Match[str]) -> str:
    return match.group().strip().translate(_STAND_INS)
