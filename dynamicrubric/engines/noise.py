"""How much an engine's own answer varies, where its logits are out of reach (case 28)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dynamicrubric.engines.base import JudgeRequest, Verifier
from dynamicrubric.engines.verifier import PROBES

_WIDEST: Final = 0.49
_SURE: Final = 1e-6
"""Shares closer to 0 or 1 than this are all the same: endpoints round them there."""


def undecided_band(verifier: Verifier) -> float:
    """Measure the half-width of the band around P(yes) = 1/2 in which a verdict is noise.

    As `verifier.noise_floor` does: the same questions alone and together, the largest difference
    in log-odds, carried over to 1/2, twice over. Questions without a probability of yes (an
    endpoint that is read by its text) say nothing; without any, the band is 0.

    Args:
        verifier: an engine whose own band and coverage floor are 0: the probes ask for a number,
            not for a verdict, and one under the floor would have none.
    """
    singles = [
        replace(request, criteria=(criterion,))
        for request in PROBES
        for criterion in request.criteria
    ]
    alone = [_odds(verifier, [single]) for single in singles]
    together = _odds(verifier, PROBES)
    found = [(a, b) for (a,), b in zip(alone, together, strict=True) if a is not None]
    spread = max((abs(a - b) for a, b in found if b is not None), default=0.0)
    return min(2 * spread / 4, _WIDEST)


def _odds(verifier: Verifier, requests: Sequence[JudgeRequest]) -> list[float | None]:
    shares = [verdict.p_yes for row in verifier.judge(requests) for verdict in row]
    return [None if share is None else _log_odds(share) for share in shares]


def _log_odds(share: float) -> float:
    kept = min(max(share, _SURE), 1.0 - _SURE)
    return math.log(kept / (1.0 - kept))
