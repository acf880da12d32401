"""The world as the steps see it: nobody knows true quality, and a language model may verify."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from dynamicrubric.config import VerifierConfig
from dynamicrubric.engines.base import Verifier
from dynamicrubric.engines.programmatic import ProgrammaticVerifier
from dynamicrubric.worlds.base import LANGUAGE
from dynamicrubric.worlds.language.criteria import check

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines


@dataclass(frozen=True)
class Language:
    """Real prompts and pretrained models (a `worlds.base.World`)."""

    name: str = LANGUAGE
    lowest_quality: None = None

    def true_quality(self, prompt_id: str, text: str) -> None:
        """Return None: what good means is in the anchor lists alone."""
        return

    def verifier(self, settings: VerifierConfig, engines: Engines) -> Verifier:
        """Return the language model that judges, or the program that reads checkable criteria."""
        if settings.kind == "programmatic":
            return self.program(settings)
        return engines.verifier(settings)

    def program(self, settings: VerifierConfig) -> ProgrammaticVerifier:
        """Return the program that reads checkable criteria."""
        return ProgrammaticVerifier(check, settings.error_rate, settings.failure_rate)

    def shifted_anchors(self, source: str, anchors: Mapping[str, tuple[str, ...]]) -> NoReturn:
        """Raise: there are no other lists than the prepared ones; the config refuses such arms."""
        raise AssertionError("the world language has no anchors from another distribution")

    def rules(self, max_items: int) -> NoReturn:
        """Raise: no rubric was written by hand for all prompts; the config refuses such arms."""
        raise AssertionError("the world language has no hand-written rules")
