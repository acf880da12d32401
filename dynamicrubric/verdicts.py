"""A verifier's reply, as text or as token log-probabilities, in; a `Verdict` out.

The answer slot is the whole reply. Prose is never searched for "yes" or "no": "No errors found, so
yes" is unscored. What cannot be decided is unscored under a name that can be counted, never a no.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from dynamicrubric.errors import UserError
from dynamicrubric.rubrics import FinishReason
from dynamicrubric.types import Verdict


class UnscoredReason(StrEnum):
    """Why a reply is no verdict. Engines may add names of their own."""

    TRUNCATED = "truncated"
    EMPTY = "empty"
    REFUSAL = "refusal"
    OTHER_LANGUAGE = "other_language"
    """A whole yes or no, but in a language that is not configured."""
    UNREADABLE = "unreadable"
    NO_USABLE_PROBABILITY = "no_usable_probability"
    """No log-probabilities, or masked or impossible ones."""
    LOW_COVERAGE = "low_coverage"
    """Too little probability on yes and no together."""
    UNDECIDED = "undecided"
    """P(yes) inside the band around one half."""
    TOO_LONG = "too_long"
    """The question does not fit into the verifier's context; it is never cut to fit."""


class _Words(NamedTuple):
    yes: frozenset[str]
    no: frozenset[str]


def _words(yes: str, no: str) -> _Words:
    return _Words(frozenset(yes.split()), frozenset(no.split()))


LANGUAGES: Final[Mapping[str, _Words]] = {
    "de": _words("ja", "nein"),
    "en": _words("yes", "no"),
    "es": _words("sí si", "no"),
    "fr": _words("oui", "non"),
    "it": _words("sì si", "no"),
    "ja": _words("はい", "いいえ"),
    "ko": _words("예 네", "아니요 아니오"),
    "pt": _words("sim", "não nao"),
    "ru": _words("да", "нет"),
    "zh": _words("是 是的", "否 不是"),
}
"""Language code -> its words for yes and no, in the normal form of `slot_word`."""

# What may stand around the one word: a list or quote mark in front (with its space), emphasis and
# quotes on either side, sentence marks behind. "!yes", "~~yes~~" and "yes?" say something else.
_LEADING_MARK: Final = re.compile(r"(?:[-*+•>\u2013\u2014]|#{1,6})\s+")
_WRAPPERS: Final = "*_`\"'“”\u2018\u2019«»「」『』()[]"
_FINAL_MARKS: Final = ".,;:!。、"
_OPENING_MARKS: Final = "¡"
_SPACE_MARKERS: Final = "Ġ▁Ċ"
"""How byte-level and sentence-piece vocabularies write a leading space or line break."""

# Only names the reason of what is unscored anyway, so looking into prose is harmless here.
_REFUSAL: Final = re.compile(
    r"(?:i'm|i am|we're|we are) (?:\w+ )?sorry|sorry,? (?:but )?(?:i|we)\b|i apologi[sz]e"
    r"|my apologies|(?:unfortunately,? |but )?(?:i|we) (?:can't|cannot|can not|won't|will not"
    r"|must decline|am unable|are unable|am not able|are not able)"
    r"|(?:i'm|we're) (?:unable|not able)"
    r"|(?:as|i'm|i am) an ai\b|lo siento|je suis désolée?|désolée?\b|es tut mir leid|tut mir leid"
    r"|mi dispiace|desculp|很?抱歉|对不起|申し訳|すみません|죄송|извините|простите|к сожалению"
)
MASS_TOLERANCE: Final = 0.05
"""By how much rounded (bf16, or two-digit) log-probabilities may add up to more than 1."""


def read_verdict_text(
    reply: str, *, finish_reason: FinishReason, languages: Sequence[str] = ("en",)
) -> Verdict:
    """Read a reply that should be one word.

    Args:
        reply: the verifier's text, special tokens already removed.
        finish_reason: "length" is unscored whatever the text is: short words survive a cut and
            long ones do not, so reading cut replies is biased. Leave room for the end token.
        languages: codes from `LANGUAGES`.

    Raises:
        UserError: for an unknown language, or for no language.

    >>> read_verdict_text("**Yes**", finish_reason="stop").value
    'yes'
    >>> read_verdict_text("Yes, but only partly", finish_reason="stop").reason
    'unreadable'
    """
    words = _configured_words(tuple(languages))
    if finish_reason not in ("stop", "length"):
        raise ValueError(f"unknown finish reason {finish_reason!r}")
    if finish_reason == "length":
        return Verdict.unscored(UnscoredReason.TRUNCATED)
    label = _label_of(reply, words)
    if label is not None:
        return Verdict(label)
    return Verdict.unscored(_unreadable_reason(reply))


def verdict_from_logprobs(
    top: Mapping[str, float],
    *,
    languages: Sequence[str] = ("en",),
    coverage_floor: float = 0.5,
    undecided_band: float = 0.0,
) -> Verdict:
    """Decide by the probability of the reply's first token.

    P(yes) = mass(yes) / (mass(yes) + mass(no)), each mass summed over all tokens that normalise to
    a configured word. A label that is absent from `top` counts as the smallest probability seen
    (or what is left of 1, if that is less): absent means "below the smallest", not zero.

    Args:
        top: token text -> natural-log probability, raw: before any grammar or label mask. A -inf
            entry betrays a mask, under which any label looks certain, and is not used.
        languages: codes from `LANGUAGES`.
        coverage_floor: least mass(yes) + mass(no) for a verdict, in [0, 1].
        undecided_band: half-width of the band around P(yes) = 1/2 that stays undecided, in
            [0, 0.5); exactly 1/2 is undecided even at 0.

    Returns:
        yes or no with `p_yes`, or unscored (an undecided one keeps its `p_yes`).

    Raises:
        UserError: for an unknown language, or for no language.
        ValueError: for a floor or band out of range.

    >>> verdict = verdict_from_logprobs({" Yes": -1.2, "yes": -1.3, "No": -1.1, "**": -2.0})
    >>> verdict.value, round(verdict.p_yes, 3)
    ('yes', 0.633)
    >>> verdict_from_logprobs({"The": -0.01, "A": -5.0}).reason
    'low_coverage'
    """
    _check_limits(coverage_floor, undecided_band)
    words = _configured_words(tuple(languages))
    if not is_usable(top):
        return Verdict.unscored(UnscoredReason.NO_USABLE_PROBABILITY)
    masses = _label_masses(top, words)
    covered = math.fsum(masses.values())
    if not masses or covered < coverage_floor:
        return Verdict.unscored(UnscoredReason.LOW_COVERAGE)
    unseen = _bound_on_unseen(top)
    return _decide(masses.get("yes", unseen), masses.get("no", unseen), undecided_band)


class LabelIds(NamedTuple):
    """The ids of a vocabulary that mean yes and those that mean no, each in ascending order."""

    yes: tuple[int, ...]
    no: tuple[int, ...]


def label_ids(tokens: Mapping[int, str], *, languages: Sequence[str] = ("en",)) -> LabelIds:
    """Return which ids of a vocabulary normalise to a configured yes or no.

    A word that no single token spells has no id: its mass is that of none, and the coverage floor
    shows it.

    Args:
        tokens: id -> the token's text as it decodes; control tokens left out.
        languages: codes from `LANGUAGES`.

    Raises:
        UserError: an unknown language, no language, or a vocabulary without yes or without no.

    >>> label_ids({3: " Yes", 4: "no", 5: "nope", 7: "YES"})
    LabelIds(yes=(3, 7), no=(4,))
    """
    words = _configured_words(tuple(languages))
    labels = {id: _label_of(text.lstrip(_SPACE_MARKERS), words) for id, text in tokens.items()}
    yes, no = (
        tuple(sorted(id for id, label in labels.items() if label == wanted))
        for wanted in ("yes", "no")
    )
    if not yes or not no:
        raise UserError(
            doing=f"looking for yes and no in {', '.join(languages)} in a vocabulary",
            got=f"{len(yes)} tokens for yes and {len(no)} for no",
            expected="at least one of each",
            remedy="configure a language that this model has the words of",
        )
    return LabelIds(yes, no)


def verdict_from_masses(
    yes: float, no: float, *, coverage_floor: float = 0.5, undecided_band: float = 0.0
) -> Verdict:
    """Decide by the probability of yes and of no, each summed over the whole vocabulary.

    Args:
        yes: mass of the ids that mean yes.
        no: mass of the ids that mean no.
        coverage_floor: least yes + no for a verdict, in [0, 1].
        undecided_band: half-width of the band around P(yes) = 1/2, in [0, 0.5).

    Returns:
        As `verdict_from_logprobs`.

    Raises:
        ValueError: for a floor or band out of range.

    >>> verdict_from_masses(0.75, 0.25).p_yes
    0.75
    """
    _check_limits(coverage_floor, undecided_band)
    covered = yes + no
    if not 0.0 < covered <= 1.0 + MASS_TOLERANCE or min(yes, no) < 0.0:  # NaN fails this as well
        return Verdict.unscored(UnscoredReason.NO_USABLE_PROBABILITY)
    if covered < coverage_floor:
        return Verdict.unscored(UnscoredReason.LOW_COVERAGE)
    return _decide(yes, no, undecided_band)


def _check_limits(coverage_floor: float, undecided_band: float) -> None:
    if not 0.0 <= coverage_floor <= 1.0 or not 0.0 <= undecided_band < 0.5:
        raise ValueError(f"coverage floor {coverage_floor} or band {undecided_band} out of range")


def _decide(yes: float, no: float, undecided_band: float) -> Verdict:
    p_yes = yes / (yes + no)
    if abs(p_yes - 0.5) <= undecided_band:
        return Verdict.unscored(UnscoredReason.UNDECIDED, p_yes)
    return Verdict.yes(p_yes) if p_yes > 0.5 else Verdict.no(p_yes)


def is_usable(top: Mapping[str, float]) -> bool:
    """Say whether these are log-probabilities as a model gives them, and none of a mask's."""
    if not top or not all(-math.inf < logprob <= MASS_TOLERANCE for logprob in top.values()):
        return False
    # exp underflows to 0 for labels so improbable that their ratio would be 0 / 0.
    return 0.0 < math.fsum(map(math.exp, top.values())) <= 1.0 + MASS_TOLERANCE


def _label_masses(top: Mapping[str, float], words: _Words) -> dict[Literal["yes", "no"], float]:
    masses: dict[Literal["yes", "no"], float] = {}
    for token, logprob in sorted(top.items()):  # one order of summing: equal tables, equal bits
        label = _label_of(token.lstrip(_SPACE_MARKERS), words)
        if label is not None:
            masses[label] = masses.get(label, 0.0) + math.exp(logprob)
    return masses


def _bound_on_unseen(top: Mapping[str, float]) -> float:
    probabilities = [math.exp(logprob) for logprob in top.values()]
    return min(min(probabilities), max(0.0, 1.0 - math.fsum(probabilities)))


@lru_cache(maxsize=64)
def _configured_words(languages: tuple[str, ...]) -> _Words:
    unknown = [code for code in languages if code not in LANGUAGES]
    if unknown or not languages:
        raise UserError(
            doing="choosing the verifier's languages",
            got=", ".join(map(repr, unknown)) or "no language",
            expected=f"one or more of {', '.join(sorted(LANGUAGES))}",
            remedy="name the languages in which the verifier answers yes or no",
        )
    yes = frozenset[str]().union(*(LANGUAGES[code].yes for code in languages))
    no = frozenset[str]().union(*(LANGUAGES[code].no for code in languages))
    assert not yes & no, f"both yes and no: {yes & no}"
    return _Words(yes, no)


def _label_of(text: str, words: _Words) -> Literal["yes", "no"] | None:
    word = slot_word(text)
    if word in words.yes:
        return "yes"
    return "no" if word in words.no else None


def token_word(token: str) -> str:
    """Return the word that one token of a vocabulary says; see `slot_word`."""
    return slot_word(token.lstrip(_SPACE_MARKERS))


def slot_word(text: str) -> str:
    """Text without case, compatibility forms and the marks that may stand around one word."""
    word = unicodedata.normalize("NFKC", text).casefold().strip()
    word = _LEADING_MARK.sub("", word, count=1) if _LEADING_MARK.match(word) else word
    # With the space: French sets one inside its quotes and before its marks.
    word = word.lstrip(_WRAPPERS + _OPENING_MARKS + " ")
    return word.rstrip(_WRAPPERS + _FINAL_MARKS + " ")


def _unreadable_reason(reply: str) -> UnscoredReason:
    text = unicodedata.normalize("NFKC", reply).casefold().replace("\u2019", "'").strip()
    if not text:
        return UnscoredReason.EMPTY
    word = slot_word(reply)
    if any(word in known.yes | known.no for known in LANGUAGES.values()):
        return UnscoredReason.OTHER_LANGUAGE
    return UnscoredReason.REFUSAL if _REFUSAL.match(text) else UnscoredReason.UNREADABLE
