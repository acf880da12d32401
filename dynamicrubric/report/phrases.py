"""Words that the report's texts, tables and pictures share: counts, spans, signs and dashes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from dynamicrubric.metrics import ALL_ROUND_METRICS
from dynamicrubric.report.outcomes import OutcomeTable
from dynamicrubric.stats import LEVEL

NOTHING: Final = "\u2013"
"""What stands where there is no value: nothing unscored is shown as a number."""
SMALLEST_P: Final = 0.0001


def count(number: int, noun: str) -> str:
    """Return a number of things.

    >>> count(1, "seed"), count(1152, "row")
    ('1 seed', '1,152 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(values: Collection[int], noun: str = "", to: str = " to ") -> str:
    """Return one number, or the smallest and the largest, and of what.

    >>> span([3, 5, 3], "seed"), span([1], "seed"), span({48, 46}, to="-"), span(())
    ('3 to 5 seeds', '1 seed', '46-48', '0')
    """
    low, high = min(values, default=0), max(values, default=0)
    numbers = f"{low:,}" if low == high else f"{low:,}{to}{high:,}"
    return f"{numbers} {noun}{'' if low == high == 1 else 's'}" if noun else numbers


def mean_over(seeds: Collection[int]) -> str:
    """Say what a figure is a mean of, given the number of seeds of each.

    >>> mean_over([1]), mean_over([3, 5])
    ('1 seed', 'mean of 3 to 5 seeds')
    """
    said = span(seeds, "seed")
    return said if set(seeds) <= {1} else f"mean of {said}"


def seed_counts(table: OutcomeTable) -> list[int]:
    """Return how many seeds each arm has."""
    return [len(table.seeds_of(arm)) for arm in table.arms]


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def seeds_named(seeds: Sequence[int]) -> str:
    """Return which seeds.

    >>> seeds_named([3]), seeds_named([1, 3])
    ('seed 3', 'seeds 1 and 3')
    """
    return f"seed{'' if len(seeds) == 1 else 's'} {listed([str(seed) for seed in seeds])}"


def capital(text: str) -> str:
    """Return the text with its first letter as a capital."""
    return text[:1].upper() + text[1:]


def label(metric: str) -> str:
    """Return what a person reads for a round metric."""
    return ALL_ROUND_METRICS[metric].label


def mean_text(table: OutcomeTable, arm: str, round_number: int, metric: str) -> str:
    """Return an arm's mean over seeds as text, or a dash."""
    return ALL_ROUND_METRICS[metric].show(table.mean(arm, round_number, metric))


def of_all(scored: int, total: int) -> str:
    """Return how many of all were scored."""
    return f"{scored}/{total}"


def number(value: float | None, digits: int = 2) -> str:
    """Return a number as text, or a dash."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 4) -> str:
    """Return a difference with its sign, or a dash."""
    return NOTHING if value is None else f"{value:+.{digits}f}"


def share(value: float | None) -> str:
    """Return a share as a percentage, or a dash."""
    return NOTHING if value is None else f"{100 * value:.0f} %"


def p_text(value: float | None) -> str:
    """Return a p-value as text, or a dash."""
    if value is None:
        return NOTHING
    return f"<{SMALLEST_P}" if value < SMALLEST_P else f"{value:.4f}"


CERTAINTY: Final = share(LEVEL)
"""Of every interval: `95 %`."""
