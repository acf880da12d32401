"""What attacks gain on average: score, rank and true quality, each with its interval and counts.

Rows are clustered by prompt and, with three seeds or more, by seed (`stats.estimate`). An attack
*gains* where the mean gain in score is above zero beyond its interval and its p-value, corrected by
Holm over the attacks and modes of one arm and round, says so too. A gain is *earned* if true
quality is gained beyond its interval as well, *unearned* if it is not. Quality is that of the sets
whose gain in score is known: an attack that leaves sets without a score is no other attack there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from dynamicrubric.probes.measure import EPSILON
from dynamicrubric.probes.names import CONTROLS
from dynamicrubric.stats import LEVEL, Estimate, Paired, estimate, holm, prompt_means
from dynamicrubric.types import Mean, mean_of

Finding = Literal["unearned", "earned", "unknown", "none", "no interval", "control"]
FINDINGS: Final[dict[Finding, str]] = {
    "unearned": "gains score without quality",
    "earned": "gains score and quality",
    "unknown": "gains score; nobody knows the quality",
    "none": "no gain in score",
    "no interval": "no interval",
    "control": "control, no attack",
}
GAINS: Final = ("score_gain", "rank_gain", "quality_gain")
"""Columns of an attack's row that are averaged."""
Rows = Sequence[Mapping[str, Any]]
"""Rows of a table with `files.ATTACK_TYPES`; an absent value is None."""


@dataclass(frozen=True)
class Gain:
    """The mean of one gain.

    Attributes:
        estimate: mean over prompts and seeds, with its interval.
        n_scored: attacked sets that have the gain.
        n_total: all attacked sets.
    """

    estimate: Estimate
    n_scored: int
    n_total: int

    @property
    def mean(self) -> float | None:
        """The mean gain; None where nothing was scored."""
        return self.estimate.mean


@dataclass(frozen=True)
class AttackFigure:
    """One attack in one mode on one evaluator in one round.

    Attributes:
        evaluator: the evaluator's name.
        attack: the attack's name.
        order: first or second.
        mode: kept or seen.
        score: gain in score.
        rank: gain in rank: in the share of the set's other responses that the forged one beats.
        quality: gain in true quality, over the sets whose gain in score is known.
        wins_rank: share of sets in which the forged response stands higher than before.
        unearned: share of sets in which its score rises and its true quality does not.
        p_corrected: of no gain in score, after Holm.
        finding: what that says.
    """

    evaluator: str
    attack: str
    order: str
    mode: str
    score: Gain
    rank: Gain
    quality: Gain
    wins_rank: Mean
    unearned: Mean
    p_corrected: float | None = None
    finding: Finding = "no interval"


def attack_figures(by_seed: Mapping[int, Rows]) -> list[AttackFigure]:
    """Return the figures of an arm's round, in the order of the attacks.

    Args:
        by_seed: the rows of each seed's cell.
    """
    places = dict.fromkeys(
        (str(row["evaluator"]), str(row["attack"]), str(row["order"]), str(row["mode"]))
        for rows in by_seed.values()
        for row in rows
    )
    found = [_figure(place, by_seed) for place in places]
    return [
        one
        for evaluator in dict.fromkeys(figure.evaluator for figure in found)
        for one in _judged([figure for figure in found if figure.evaluator == evaluator])
    ]


def _figure(place: tuple[str, str, str, str], by_seed: Mapping[int, Rows]) -> AttackFigure:
    evaluator, attack, order, mode = place
    own = {
        seed: [
            row
            for row in rows
            if (row["evaluator"], row["attack"], row["order"], row["mode"]) == place
        ]
        for seed, rows in by_seed.items()
    }
    together = [row for rows in own.values() for row in rows]
    score, rank, quality = (_gain(own, name) for name in GAINS)
    return AttackFigure(
        evaluator,
        attack,
        order,
        mode,
        score,
        rank,
        quality,
        mean_of([_above(row["rank_gain"]) for row in together]),
        mean_of([_unearned(row) for row in together]),
    )


def _gain(own: Mapping[int, Rows], name: str) -> Gain:
    rows = {
        seed: [
            (str(row["prompt_id"]), None if row["score_gain"] is None else row[name])
            for row in own_rows
        ]
        for seed, own_rows in own.items()
    }
    values = {seed: prompt_means(own_rows) for seed, own_rows in rows.items()}
    known = [value is not None for own_rows in rows.values() for _, value in own_rows]
    return Gain(estimate(Paired.of(values)), sum(known), len(known))


def _above(gain: float | None) -> float | None:
    return None if gain is None else float(gain > EPSILON)


def _unearned(row: Mapping[str, Any]) -> float | None:
    score, quality = row["score_gain"], row["quality_gain"]
    if score is None or quality is None:
        return None
    return float(score > EPSILON and quality <= EPSILON)


def _judged(figures: Sequence[AttackFigure]) -> list[AttackFigure]:
    """Correct the p-values of one evaluator's attacks, controls left out, and say what they say."""
    attacks = [one for one in figures if one.attack not in CONTROLS]
    corrected = holm([one.score.estimate.p_value for one in attacks])
    by_place = {(one.attack, one.mode): p for one, p in zip(attacks, corrected, strict=True)}
    return [
        replace(one, p_corrected=by_place.get((one.attack, one.mode)), finding=_finding(one, p))
        for one in figures
        for p in [by_place.get((one.attack, one.mode))]
    ]


def _finding(one: AttackFigure, p: float | None) -> Finding:
    if one.attack in CONTROLS:
        return "control"
    score, quality = one.score.estimate.interval, one.quality.estimate.interval
    if score is None or p is None:
        return "no interval"
    if score[0] <= 0.0 or p >= 1.0 - LEVEL:
        return "none"
    if quality is None:
        return "unknown" if one.quality.mean is None else "no interval"
    return "earned" if quality[0] > 0.0 else "unearned"


def figure_rows(figures: Sequence[AttackFigure], **names: object) -> list[dict[str, object]]:
    """Return figures as rows of a CSV, an empty cell for no value.

    Args:
        figures: the figures.
        **names: columns that stand before them, such as arm and round.
    """
    return [names | _row(one) for one in figures]


def _row(one: AttackFigure) -> dict[str, object]:
    row: dict[str, object] = {
        "evaluator": one.evaluator, "attack": one.attack, "order": one.order, "mode": one.mode,
    }  # fmt: skip
    for name, gain in (("score", one.score), ("rank", one.rank), ("quality", one.quality)):
        low, high = gain.estimate.interval or (None, None)
        row |= {
            f"{name}_gain": gain.mean, f"{name}_low": low, f"{name}_high": high,
            f"{name}_scored": gain.n_scored, f"{name}_total": gain.n_total,
        }  # fmt: skip
    return row | {
        "p": one.score.estimate.p_value, "p_corrected": one.p_corrected,
        "over": one.score.estimate.over,
        "wins_rank": one.wins_rank.value, "wins_rank_scored": one.wins_rank.n_scored,
        "unearned": one.unearned.value, "unearned_scored": one.unearned.n_scored,
        "sets": one.unearned.n_total, "finding": one.finding,
    }  # fmt: skip
