"""What the calls of a step to paid endpoints come to, as metrics."""

from __future__ import annotations

from dataclasses import dataclass

from dynamicrubric.engines.access import EndpointPlace
from dynamicrubric.engines.pacing import Cost

_MILLION = 1e6


@dataclass(frozen=True)
class Bill:
    """Calls, tokens and price.

    Attributes:
        calls: HTTP requests, retries included.
        prompt_tokens: as the endpoint counts them.
        completion_tokens: likewise, thinking included.
        price: in the currency of the settings; None where a price, or the count of an answer's
            tokens, is not known.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    price: float | None = 0.0

    def __add__(self, other: Bill) -> Bill:
        return self._with(other, 1)

    def __sub__(self, other: Bill) -> Bill:
        return self._with(other, -1)

    def _with(self, other: Bill, sign: int) -> Bill:
        unknown = self.price is None or other.price is None
        return Bill(
            self.calls + sign * other.calls,
            self.prompt_tokens + sign * other.prompt_tokens,
            self.completion_tokens + sign * other.completion_tokens,
            None if unknown else (self.price or 0.0) + sign * (other.price or 0.0),
        )

    def as_metrics(self) -> dict[str, float]:
        """Return it under the names of `metrics.COST_METRICS`; no price where it is not known."""
        found = {
            "cost/calls": float(self.calls),
            "cost/prompt_tokens": float(self.prompt_tokens),
            "cost/completion_tokens": float(self.completion_tokens),
        }
        return found if self.price is None else {**found, "cost/price": self.price}


def bill_of(cost: Cost, place: EndpointPlace) -> Bill:
    """Return what an endpoint's calls cost at its prices."""
    prompt = place.price_per_million_prompt_tokens
    completion = place.price_per_million_completion_tokens
    price = None
    if prompt is not None and completion is not None and not cost.without_count:
        price = (cost.prompt_tokens * prompt + cost.completion_tokens * completion) / _MILLION
    return Bill(cost.calls, cost.prompt_tokens, cost.completion_tokens, price)
