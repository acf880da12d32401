"""What the generator is paid for: its rewards, their weights, and what orders a gap's pairs.

The paper's objective is `J_disc + lambda J_anchor`. The third reward, R_gap, is an extension: the
gap itself, estimated on ordered pairs. A recipe without it computes what it always did.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from dynamicrubric.settings import Grown

GapOrder = Literal["anchors", "reference"]
Weight = Annotated[float, Field(ge=0.0, le=100.0)]


class ObjectiveConfig(Grown):
    """Weights of the generator's rewards, applied to advantages; `anchor` is lambda."""

    later: ClassVar = frozenset({"gap", "gap_order", "gap_noise", "single_penalty"})

    disc: Weight
    anchor: Weight
    gap: Weight = 0.0
    """Weight of R_gap, the mean score gap over ordered pairs."""
    gap_order: GapOrder = "anchors"
    """Which pairs: `anchors`, those of the prompt's anchor list, in its order; `reference`, those
    of the response set, as a held-in judge orders them. In the embedded world that judge is the
    true quality of training responses, which no other arm's training ever sees."""
    gap_noise: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0
    """Standard deviation of what that judge errs by, in units of true quality; it errs once a
    response. At 0.1 it puts 90 % of the pairs of warm-start postcards in order, at 0.2 79 %."""
    single_penalty: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Taken off R_disc for a rubric whose items all single out one response by its own words, and
    as much less as fewer do; R_disc never falls below an invalid rubric's 0."""

    @model_validator(mode="after")
    def _one_weight_is_positive(self) -> Self:
        if self.disc == 0.0 and self.anchor == 0.0 and self.gap == 0.0:
            words = "disc and anchor are both 0"
            raise ValueError(f"{words}: the generator would learn nothing")
        return self

    @model_validator(mode="after")
    def _what_is_set_is_read(self) -> Self:
        if self.gap_order != "anchors" and not self.gap:
            raise ValueError(
                f"gap_order is {self.gap_order!r} with gap 0, which orders no pairs: leave it out"
            )
        if self.gap_noise and self.gap_order != "reference":
            raise ValueError(
                f"gap_noise is {self.gap_noise} with gap_order {self.gap_order!r}, which asks no "
                "judge: it can only be 0 (noise of the anchors is anchor_swap_rate)"
            )
        if self.single_penalty and not self.disc:
            raise ValueError(
                f"single_penalty is {self.single_penalty} with disc 0: there is nothing to take it "
                "off, so it can only be 0"
            )
        return self

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each reward by its name in training; R_gap is there only where it is paid."""
        paid = {"r_disc": self.disc, "r_anchor": self.anchor}
        return paid | ({"r_gap": self.gap} if self.gap else {})
