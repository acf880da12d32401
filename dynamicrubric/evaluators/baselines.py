"""Evaluators without a model: length, chance, true quality.

They are the floors and the ceiling that a table of evaluators needs beside its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dynamicrubric.evaluators.base import ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet, text_hash
from dynamicrubric.seeds import derive_seed
from dynamicrubric.types import Score

HALF_LENGTH: Final = 1000
"""Characters that score one half under `length`: the scale alone, no order depends on it."""
_SEED_RANGE: Final = 1 << 63
UNKNOWN_PROMPT: Final = "unknown_prompt"


@dataclass(frozen=True)
class LengthEvaluator:
    """The longer response is the better one: n / (n + 1000) of its n characters.

    The baseline of judges' length bias (Dubois et al., "Length-Controlled AlpacaEval", 2024,
    arXiv 2404.04475). Blanks at both ends do not count.
    """

    name: str = "length"
    sees_set: bool = False

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        """Score each set; the seeds change nothing."""
        return [self._score(one) for one in sets]

    def _score(self, one: ResponseSet) -> ScoredSet:
        lengths = [len(text.strip()) for text in one.responses]
        scores = [Score.of(n / (n + HALF_LENGTH)) for n in lengths]
        return ScoredSet(left_out(one, scores), breakdown={"characters": lengths})


@dataclass(frozen=True)
class RandomEvaluator:
    """A uniform number for each text of a set, drawn from the set's seed: what says nothing.

    Equal texts of a set have equal scores, as under every evaluator.
    """

    name: str = "random"
    sees_set: bool = False

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        """Score each set with its own seed."""
        return [
            ScoredSet(
                left_out(
                    one,
                    [
                        Score.of(derive_seed(seed, "random", text_hash(text)) / _SEED_RANGE)
                        for text in one.responses
                    ],
                )
            )
            for one, seed in zip(sets, seeds, strict=True)
        ]


@dataclass(frozen=True)
class OracleEvaluator:
    """A world's true quality, from [-1, 1] to [0, 1]: the ceiling of what an evaluator can say.

    Attributes:
        quality: true quality of (prompt id, text), None where nobody knows it; KeyError where the
            world has no such prompt.
    """

    quality: Callable[[str, str], float | None]
    name: str = "oracle"
    sees_set: bool = False

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        """Score each set; the seeds change nothing."""
        return [self._score(one) for one in sets]

    def _score(self, one: ResponseSet) -> ScoredSet:
        known = [self._known(one.prompt_id, text) for text in one.responses]
        scores = [
            Score.unscored(UNKNOWN_PROMPT) if quality is None else Score.of((quality + 1) / 2)
            for quality in known
        ]
        return ScoredSet(left_out(one, scores), breakdown={"true_quality": known})

    def _known(self, prompt_id: str, text: str) -> float | None:
        try:
            return self.quality(prompt_id, text)
        except KeyError:
            return None


def left_out(one: ResponseSet, scores: Sequence[Score]) -> tuple[Score, ...]:
    """Return the scores of a set, those of places without a response unscored for their reason."""
    return tuple(
        score if reason is None else Score.unscored(reason)
        for score, reason in zip(scores, one.reasons, strict=True)
    )
