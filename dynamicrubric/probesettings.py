"""Settings of probes: which arms are attacked, how, and who knows what is good (`probe`)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from dynamicrubric.recipe import VerifierConfig
from dynamicrubric.settings import Listed, Section, Slug
from dynamicrubric.types import MAX_WEIGHT, MIN_WEIGHT


class GoldItem(Section):
    """An item of the held-out rubric."""

    criterion: Annotated[str, Field(min_length=1, max_length=500)]
    weight: Annotated[int, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT)]


class GoldJudge(Section):
    """Who says what is good where nobody knows true quality; nothing is ever trained on it."""

    verifier: VerifierConfig
    """Another verifier than any probed arm's."""
    rubric: Annotated[tuple[GoldItem, ...], Listed, Field(min_length=1, max_length=64)]
    """One rubric for all prompts, written by a person."""

    @model_validator(mode="after")
    def _criteria_differ(self) -> Self:
        criteria = [item.criterion for item in self.rubric]
        twice = sorted({one for one in criteria if criteria.count(one) > 1})
        if twice:
            raise ValueError(f"rubric has {twice[0]!r} twice; each criterion can be there once")
        return self


class ProbeConfig(Section):
    """Attempts to hack the evaluators of some arms, once the study's rounds are done."""

    arms: Annotated[tuple[Slug, ...], Listed, Field(min_length=1)]
    """Arms of the study; those that are not run are passed over."""
    sets_per_prompt: Annotated[int, Field(ge=1, le=64)] = 1
    """Held-out response sets that are attacked for each prompt; at most as many as there are."""
    attacks: Annotated[tuple[str, ...], Listed] = ()
    """Names of the attacks; none: all of them."""
    gold_judge: GoldJudge | None = None
    """Only where nobody knows true quality."""
