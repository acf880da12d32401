"""Win rates, exact values and intervals of compared rubrics, by dimension."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dynamicrubric.benchmarks.figures import interval_of
from dynamicrubric.benchmarks.outcomes import Outcome
from dynamicrubric.benchmarks.rubrics import Compared
from dynamicrubric.benchmarks.table import NONE, Table, number
from dynamicrubric.stats import prompt_means

CREDIT: Final[dict[Outcome, float]] = {"win": 1.0, "tie": 0.5, "inconsistent": 0.5, "loss": 0.0}


@dataclass(frozen=True)
class Dimension:
    """One dimension over a data set.

    Attributes:
        dataset: the data set's name.
        name: the dimension's.
        outcomes: pairs by outcome, the first evaluator's view.
        win_rate: (wins + ties / 2) / scored; inconsistent pairs are ties.
        interval: of the win rate.
        flip_rate: share of scored pairs that are inconsistent; None where nobody judged.
        means: mean exact values of both; None where a judge compared.
        difference: mean of first less second, with its interval.
        difference_interval: likewise.
        num_prompts: different prompts.
        lacking: why there is no interval.
    """

    dataset: str
    name: str
    outcomes: Mapping[str, int]
    win_rate: float | None
    interval: tuple[float, float] | None
    flip_rate: float | None
    means: tuple[float | None, float | None]
    difference: float | None
    difference_interval: tuple[float, float] | None
    num_prompts: int
    lacking: str


def dimensions_of(found: Sequence[Compared], names: Sequence[str]) -> list[Dimension]:
    """Return every dimension on every data set."""
    return [
        _dimension(dataset, name, [one for one in found if one.dataset == dataset])
        for dataset in dict.fromkeys(one.dataset for one in found)
        for name in names
    ]


def _dimension(dataset: str, name: str, found: Sequence[Compared]) -> Dimension:
    outcomes: list[Outcome] = [one.outcomes.get(name, "unscored") for one in found]
    counts = Counter(outcomes)
    scored = len(outcomes) - counts["unscored"]
    credits = [CREDIT.get(outcome) for outcome in outcomes]
    exact = any(one.values for one in found)
    values = [one.values.get(name, (None, None)) for one in found]
    gaps = [a - b if a is not None and b is not None else None for a, b in values]
    rates, differences = _interval(found, credits), _interval(found, gaps)
    return Dimension(
        dataset=dataset,
        name=name,
        outcomes=dict(sorted(counts.items())),
        win_rate=_mean(credits),
        interval=rates[0],
        flip_rate=counts["inconsistent"] / scored if scored and not exact else None,
        means=(_mean([a for a, _ in values]), _mean([b for _, b in values])),
        difference=_mean(gaps),
        difference_interval=differences[0],
        num_prompts=len({one.prompt_id for one in found}),
        lacking=rates[1],
    )


def _interval(
    found: Sequence[Compared], values: Sequence[float | None]
) -> tuple[tuple[float, float] | None, str]:
    """Return the interval of a mean, and why there is none; prompts are what varies."""
    by_seed = {
        seed: prompt_means(
            (one.prompt_id, value)
            for one, value in zip(found, values, strict=True)
            if one.seed == seed
        )
        for seed in dict.fromkeys(one.seed for one in found)
    }
    estimate = interval_of(by_seed)
    return estimate.interval, estimate.lacking


def dimension_table(found: Sequence[Dimension], names: Sequence[str]) -> Table:
    """Return the dimensions as a table."""
    lines = [
        (
            one.dataset,
            one.name,
            number(one.win_rate),
            _ends(one.interval),
            *(
                str(one.outcomes.get(outcome, 0))
                for outcome in ("win", "loss", "tie", "inconsistent", "unscored")
            ),
            number(one.flip_rate),
            number(one.means[0]),
            number(one.means[1]),
            number(one.difference, signed=True),
            _ends(one.difference_interval, signed=True),
        )
        for one in found
    ]
    header = (
        "data set", "dimension", "win rate", "95 % interval", "wins", "losses", "ties",
        "inconsistent", "unscored", "flips", names[0], names[1], "difference", "95 % interval ",
    )  # fmt: skip
    note = f"Wins are {names[0]}'s over {names[1]}. Ties and inconsistent pairs count 1/2."
    return Table("Rubrics", header, tuple(lines), note)


def _ends(ends: tuple[float, float] | None, *, signed: bool = False) -> str:
    if ends is None:
        return NONE
    return f"[{number(ends[0], signed=signed)}, {number(ends[1], signed=signed)}]"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
