"""One contract for every evaluator: response sets in; scores, breakdown and cost out.

The evaluators of a study's arms, of the benchmark, of the reward function and of the server are all
behind it, so that a baseline is measured exactly as the method is. Rubric evaluators keep their
rubric and verdicts in `judged`; what others have to say beside the scores is their `breakdown`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from dynamicrubric.evaluators.judging import JudgedSet, ResponseSet
from dynamicrubric.types import Score

INCONSISTENT_PAIRS: Final = "inconsistent_pairs"
"""In a breakdown: pairs of places whose comparison said otherwise when they were exchanged."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What scoring took, of the models that were asked; exact zeros where none was.

    Attributes:
        calls: prompts that a model was given (a packed pass is one).
        prompt_tokens: tokens of those prompts, as the engine counts them.
        completion_tokens: tokens that were sampled.
        verdicts: yes/no answers that a verifier gave, a program's included.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    verdicts: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.verdicts + other.verdicts,
        )


@dataclass(frozen=True)
class ScoredSet:
    """What an evaluator says of one response set.

    Attributes:
        scores: shape (K,), each in [0, 1] or unscored with its reason; comparable within the set.
        judged: rubric and verdicts of an evaluator that has them.
        rubric_text: the generator's text as it came, valid or not.
        breakdown: what else it says, JSON values alone (a raw reward, a distribution, both orders).
        cost: what it took.
    """

    scores: tuple[Score, ...]
    judged: JudgedSet | None = None
    rubric_text: str | None = None
    breakdown: Mapping[str, object] = field(default_factory=dict)
    cost: Cost = Cost()


class Evaluator(Protocol):
    """Scores response sets."""

    @property
    def name(self) -> str:
        """Its name in tables ("dynamic", "geval")."""
        ...

    @property
    def sees_set(self) -> bool:
        """Whether a response's score can depend on the others in its set.

        And so on where it stands among them.
        """
        ...

    def score(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[ScoredSet]:
        """Score each set, in order; whatever is random derives from the set's seed.

        A set of any size is scored, or each of its places unscored with a reason: what a model
        writes, and what a row holds, is data.

        Raises:
            InstrumentError: a model or an endpoint is broken.
        """
        ...
