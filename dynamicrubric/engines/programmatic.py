"""The embedded world's verifier: a program that reads the criterion and the response.

Its errors and failures are settable, so that noisy and failing verifiers can be studied, and
drawn from the request's seed, so that a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dynamicrubric.engines.base import JudgeRequest
from dynamicrubric.seeds import generator_for
from dynamicrubric.types import Verdict


@dataclass(frozen=True)
class ProgrammaticVerifier:
    """Verdicts from a check function.

    Attributes:
        check: (criterion, response) to met, not met, or None for a criterion it cannot read.
        error_rate: share of verdicts that are flipped.
        failure_rate: share of verdicts that come back unscored.
    """

    check: Callable[[str, str], bool | None]
    error_rate: float = 0.0
    failure_rate: float = 0.0

    def accepts(self, criterion: str) -> bool:
        """Return whether the check function can read the criterion."""
        return self.check(criterion, "") is not None

    def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        """Return verdicts of shape (requests, criteria of each)."""
        return [
            [self._verdict(criterion, request) for criterion in request.criteria]
            for request in requests
        ]

    def _verdict(self, criterion: str, request: JudgeRequest) -> Verdict:
        met = self.check(criterion, request.response)
        if met is None:
            return Verdict.unscored("uncheckable_criterion")
        if self.error_rate or self.failure_rate:
            rng = generator_for(request.seed, criterion)
            if rng.random() < self.failure_rate:
                return Verdict.unscored("verifier_failure")
            if rng.random() < self.error_rate:
                met = not met
        return Verdict.yes() if met else Verdict.no()
