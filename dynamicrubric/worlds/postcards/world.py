"""Postcards as the steps see it: true quality, the verifier and the hand-written rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynamicrubric.config import VerifierConfig
from dynamicrubric.engines.programmatic import ProgrammaticVerifier
from dynamicrubric.types import Rubric
from dynamicrubric.worlds.base import POSTCARDS
from dynamicrubric.worlds.postcards import criteria, rules, shifted
from dynamicrubric.worlds.postcards.prompts import prompt_by_id

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines


@dataclass(frozen=True)
class Postcards:
    """The embedded world (a `worlds.base.World`)."""

    name: str = POSTCARDS
    lowest_quality: float = criteria.LOWEST_QUALITY

    def true_quality(self, prompt_id: str, text: str) -> float:
        """Return the true quality of a postcard, in [-1, 1]; KeyError without such a prompt."""
        return criteria.true_quality(prompt_by_id(prompt_id), text)

    def verifier(self, settings: VerifierConfig, engines: Engines) -> ProgrammaticVerifier:
        """Return the program that judges, with its error and failure rates."""
        return self.program(settings)

    def program(self, settings: VerifierConfig) -> ProgrammaticVerifier:
        """Return the same program."""
        return ProgrammaticVerifier(criteria.check, settings.error_rate, settings.failure_rate)

    def shifted_anchors(
        self, source: str, anchors: Mapping[str, tuple[str, ...]]
    ) -> dict[str, tuple[str, ...]]:
        """Return lists of stronger or weaker writers, or of writers in another place."""
        return shifted.shifted_anchors(source, anchors)

    def rules(self, max_items: int) -> Rubric:
        """Return the first items of the hand-written rubric."""
        return rules.rules(max_items)
