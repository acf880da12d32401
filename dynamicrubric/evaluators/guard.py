"""What every evaluator does alike with what cannot be scored at all: a reason, and no model asked.

A set without responses, a place that an engine left empty, a text that is no text (half of a
surrogate pair, which no tokenizer encodes): each place gets its reason here, so that no evaluator
meets one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dynamicrubric.evaluators.base import Evaluator, ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.types import Score

BAD_CHARACTER: Final = "bad_character"
"""Why a response is not judged, or none of a prompt's is: half of a surrogate pair in the text."""


@dataclass(frozen=True)
class Guarded:
    """Scores what can be scored with an evaluator (an `evaluators.base.Evaluator` itself)."""

    inner: Evaluator

    @property
    def name(self) -> str:
        """The evaluator's name."""
        return self.inner.name

    @property
    def sees_set(self) -> bool:
        """Whether a score can depend on the set."""
        return self.inner.sees_set

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        """Score each set, in order; sets without one readable response cost nothing."""
        readable = [_readable(one) for one in sets]
        asked = [(one, seed) for one, seed in zip(readable, seeds, strict=True) if one.shown]
        found = iter(
            self.inner.score([one for one, _ in asked], [seed for _, seed in asked])
            if asked
            else ()
        )
        scored = [next(found) if one.shown else _without(one) for one in readable]
        for one, result in zip(readable, scored, strict=True):
            assert len(result.scores) == len(one.responses), f"{self.name} lost a response"
        return scored


def _readable(one: ResponseSet) -> ResponseSet:
    """Mark what is no text as what an engine did not give: it is never shown and never judged."""
    prompt_is_text = _is_text(one.prompt)
    failures = one.failures or (None,) * len(one.responses)
    marked = tuple(
        failure or (None if prompt_is_text and _is_text(text) else BAD_CHARACTER)
        for text, failure in zip(one.responses, failures, strict=True)
    )
    return replace(one, failures=marked) if any(marked) else one


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _without(one: ResponseSet) -> ScoredSet:
    return ScoredSet(tuple(Score.unscored(str(reason)) for reason in one.reasons))
