"""The fixed list of metric names: unit, direction, bounds and one line of meaning for each.

Nothing in the project invents a metric name: a name that is not listed here is refused wherever
figures are read or shipped, so that generated text can never become a metric key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Direction = Literal["higher", "lower", "neither"]
GAP_PAIRS: Final = "uniform over the pairs of a set that true quality orders, ties left out"
"""P of every gap: what `theory.pairs_text()` says, here without numpy."""
NONFINITE_SUFFIX: Final = "_nonfinite"
ROLES: Final = ("generator", "policy")


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes:
        name: the key in every file, table and tracker.
        label: what a person reads in a table's head or beside an axis.
        unit: unit of the value.
        direction: which way is better.
        meaning: one line.
        low: smallest possible value.
        high: largest possible value.
        digits: digits after the point in tables.
    """

    name: str
    label: str
    unit: str
    direction: Direction
    meaning: str
    low: float = -math.inf
    high: float = math.inf
    digits: int = 3

    def admits(self, value: float) -> bool:
        """Say whether the value is finite and within the bounds (to rounding)."""
        return math.isfinite(value) and self.low - 1e-9 <= value <= self.high + 1e-9

    def show(self, value: float | None) -> str:
        """Return the value as text, or a dash where nothing was scored."""
        return "–" if value is None else f"{value:.{self.digits}f}"  # noqa: RUF001 - a dash


def _by_name(*metrics: Metric) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


ROUND_METRICS: Final[Mapping[str, Metric]] = _by_name(
    Metric(
        "true_quality", "true quality", "score", "higher",
        "mean true quality of the policy's held-out responses, hidden from training",
    ),
    Metric(
        "delta_gap", "Δ gap", "score", "higher",
        "mean score of the truly better minus the truly worse response of a pair; P is "
        f"{GAP_PAIRS}", -1.0, 1.0,
    ),
    Metric(
        "r_disc", "R_disc", "score", "higher",
        "discriminability: weighted mean of p(1 - p), p the share of yes in the set", 0.0, 0.25,
    ),
    Metric(
        "r_dir", "R_dir", "score", "lower",
        "misdirected mass: weighted share of pairs whose worse response alone gets a yes", 0.0, 1.0,
    ),
    Metric(
        "r_cov", "R_cov", "score", "neither",
        "coverage residual: 0 when true quality orders every pair of a set", -1.0, 1.0,
    ),
    Metric(
        "gap_disc", "c_K R_disc", "score", "neither",
        "R_disc by c_K = 2K / (K - 1): what Δ gap would be if no item pointed the wrong way and "
        "every pair were ordered", 0.0, 1.0,
    ),
    Metric(
        "gap_wrong", "2 R_dir", "score", "lower",
        "what Δ gap loses by items that prefer the worse response: "
        "Δ gap = c_K R_disc - 2 R_dir - R_cov", 0.0, 2.0,
    ),
    Metric(
        "wrong_way_share", "wrong way", "share", "lower",
        "share of what tells ordered pairs apart that prefers the worse response: "
        "R_dir / (c_K R_disc - R_cov), of the means; 1/2 without any sense of direction", 0.0, 1.0,
    ),
    Metric(
        "rank_accuracy", "rank acc.", "share", "higher",
        "share of ordered pairs that the scores put in the order of true quality", 0.0, 1.0,
    ),
    Metric(
        "tie_rate", "ties", "share", "lower",
        "share of ordered pairs with equal scores", 0.0, 1.0,
    ),
    Metric(
        "valid_rubric_rate", "valid", "share", "higher",
        "share of rubrics that parse and obey the contract", 0.0, 1.0,
    ),
    Metric(
        "items_per_rubric", "items", "items", "neither", "mean number of items of a valid rubric",
        0.0, digits=2,
    ),
    Metric(
        "response_length", "length", "tokens", "neither", "mean length of a response", 0.0,
        digits=1,
    ),
    Metric(
        "kl", "KL", "nats a response", "neither",
        "divergence of the policy from the start policy on its own responses",
    ),
    Metric(
        "seconds", "seconds", "s", "lower",
        "wall time of the cell's steps, all attempts; a cell that arms share was paid once", 0.0,
        digits=0,
    ),
)  # fmt: skip
"""What is measured once a round, on held-out prompts, in the order of every table."""

DERIVED_METRICS: Final = ("gap_disc", "gap_wrong", "wrong_way_share")
"""Round metrics that follow from the others: computed where they are read, and stored nowhere."""

ANCHOR_METRICS: Final[Mapping[str, Metric]] = _by_name(
    Metric(
        "anchor_rank_accuracy", "anchor acc.", "share", "higher",
        "share of pairs of held-out anchors that the scores put in their order, ties half",
        0.0, 1.0,
    ),
    Metric(
        "anchor_delta_gap", "anchor Δ gap", "score", "higher",
        "mean score of the better minus the worse anchor of a pair, on held-out prompts",
        -1.0, 1.0,
    ),
    Metric(
        "anchor_r_anchor", "R_anchor", "nats", "higher",
        "mean anchor ranking reward on the anchor lists of held-out prompts", high=0.0,
    ),
    Metric(
        "anchor_unscored_rate", "anchors unscored", "share", "lower",
        "share of verdicts on held-out anchors that came back unscored", 0.0, 1.0,
    ),
)  # fmt: skip
"""What is measured once a round besides, where held-out prompts have anchor lists."""
ALL_ROUND_METRICS: Final[Mapping[str, Metric]] = {**ROUND_METRICS, **ANCHOR_METRICS}

COST_METRICS: Final[Mapping[str, Metric]] = _by_name(
    Metric("cost/calls", "calls", "calls", "lower",
           "calls to endpoints, retries included", 0.0, digits=0),
    Metric("cost/prompt_tokens", "prompt tokens", "tokens", "lower",
           "tokens of the prompts, as endpoints count them", 0.0, digits=0),
    Metric("cost/completion_tokens", "completion tokens", "tokens", "lower",
           "tokens that endpoints wrote, thinking included", 0.0, digits=0),
    Metric("cost/price", "price", "money", "lower",
           "what they cost, where all prices are known", 0.0, digits=4),
)  # fmt: skip
"""What calls to endpoints came to, in a training step or a whole step; none without endpoints."""

_LOSSES_AND_RATES: Final[Mapping[str, Metric]] = _by_name(
    Metric("loss", "loss", "", "neither", "value of the optimised objective"),
    Metric("grad_norm", "gradient", "", "neither", "norm of the gradient before clipping", 0.0),
    Metric("reward", "reward", "score", "higher", "weighted sum of the step's mean rewards"),
    Metric("reward_std", "reward std", "score", "neither", "spread of the reward in a group", 0.0),
    Metric("zero_std_rate", "no spread", "share", "lower",
           "share of groups whose rewards are all equal: they teach nothing", 0.0, 1.0),
    Metric("r_disc", "R_disc", "score", "higher", "mean discriminability reward", 0.0, 0.25),
    Metric("r_anchor", "R_anchor", "nats", "higher", "mean anchor ranking reward"),
    Metric("r_gap", "R_gap", "score", "higher",
           "mean score gap over the ordered pairs that the recipe pays for", -1.0, 1.0),
    Metric("score", "score", "score", "higher", "mean rubric score of the responses", 0.0, 1.0),
    Metric("true_quality", "true quality", "score", "higher",
           "mean true quality of the responses: an oracle's reward", -1.0, 1.0),
    Metric("pair_accuracy", "pairs", "share", "higher",
           "share of anchor pairs that a reward model puts in their order", 0.0, 1.0),
    Metric("margin", "margin", "nats", "higher",
           "mean reward of the better minus the worse anchor of a pair"),
    Metric("kl", "KL", "nats a token", "neither", "KL to the model the round started from"),
    Metric("entropy", "entropy", "nats", "neither", "mean entropy of the next token"),
    Metric("length", "length", "tokens", "neither", "mean length of a completion", 0.0),
    Metric("truncated_rate", "truncated", "share", "lower",
           "share of completions cut at the token limit", 0.0, 1.0),
    Metric("rate/invalid_rubric", "invalid", "share", "lower",
           "share of invalid rubrics", 0.0, 1.0),
    Metric("rate/unscored_response", "unscored", "share", "lower",
           "share of responses without a score", 0.0, 1.0),
    Metric("rate/unscored_verdict", "unscored", "share", "lower",
           "share of verdicts that came back unscored", 0.0, 1.0),
    Metric("rate/unscored_anchor", "unscored anchors", "share", "lower",
           "share of valid rubrics whose anchor list has an unscored verdict", 0.0, 1.0),
    Metric("rate/single", "singles out", "share", "lower",
           "share of a valid rubric's weight on items that single out one response", 0.0, 1.0),
    Metric("rate/items_per_rubric", "items", "items", "neither", "items of a valid rubric", 0.0),
)  # fmt: skip
TRAINING_METRICS: Final[Mapping[str, Metric]] = {**_LOSSES_AND_RATES, **COST_METRICS}
"""What a training step may log; in trackers the role stands before it (`policy/reward`)."""


def tracker_keys() -> frozenset[str]:
    """Return every metric key that a round's run may hold in a tracker."""
    keys = set(ALL_ROUND_METRICS) | {f"final/{name}" for name in ALL_ROUND_METRICS}
    keys |= {f"{role}/{name}" for role in ROLES for name in TRAINING_METRICS}
    return frozenset(keys | {key + NONFINITE_SUFFIX for key in keys})
