"""How sure each difference is, as tables: interval, test, effect size, and what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from dynamicrubric.metrics import ROUND_METRICS
from dynamicrubric.report.differences import Difference
from dynamicrubric.stats import LEVEL, MIN_SEEDS

SMALLEST_P: Final = 0.0001
NOTHING: Final = "\u2013"
INTERVAL_MEANING: Final = (
    "interval of the mean difference; where it is over prompts alone, it is about the seeds that "
    "were run and says nothing about others"
)
SUPERIORITY_MEANING: Final = (
    "effect size: share of prompts on which the first arm is better, equal ones half; 50% is none"
)
Group = tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table of text: a title, column heads and rows; the first column is a name."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def rounds_of(differences: Sequence[Difference]) -> str:
    """Return which round is compared, in words."""
    rounds = {found.round for found in differences}
    return f"round {rounds.pop()}" if len(rounds) == 1 else "the last round of both arms"


def evidence_grids(differences: Sequence[Difference]) -> list[Grid]:
    """Return the tables of intervals, one a metric, and of counts; no difference is left out."""
    heads = ("other arm", f"{LEVEL:.0%} from", "to", "is over", "p", "p Holm", "better on")
    found = [
        Grid(
            f"{capital(ROUND_METRICS[metric].label)} in {rounds_of(own)}, {arm} minus another "
            f"arm: {LEVEL:.0%} intervals",
            heads,
            tuple((one.other, *evidence(one)) for one in own),
        )
        for (arm, metric), own in _grouped(differences, lambda one: (one.arm, one.metric))
    ]
    return found + [
        Grid(
            f"What they rest on, {arm} and the other arm",
            ("other arm", "metric", "seeds", "prompts", "rows", "other's rows"),
            tuple((one.other, ROUND_METRICS[one.metric].label, *counts(one)) for one in own),
        )
        for (arm,), own in _grouped(differences, lambda one: (one.arm,))
    ]


def evidence_notes(differences: Sequence[Difference]) -> list[tuple[str, str]]:
    """Return (name, text) lines that say what the columns mean and what is not there."""
    if not differences:
        return []
    notes = [
        (f"{LEVEL:.0%} from, to", INTERVAL_MEANING),
        ("p", "of no difference, two-sided, over what the interval is over"),
        ("p Holm", f"corrected for the {len(differences)} differences of these tables"),
        ("better on", SUPERIORITY_MEANING),
        ("prompts, rows", "prompts that both arms scored, of all; each arm's scored rows, of all"),
    ]
    few = {len(found.by_seed) for found in differences} & set(range(1, MIN_SEEDS))
    if few:
        number = " or ".join(f"{count} seed{'s' * (count > 1)}" for count in sorted(few))
        notes.append((f"no interval over seeds with {number}", f"it takes {MIN_SEEDS}"))
    return notes + [note for found in differences for note in _lacking(found)]


def names_of(found: Difference) -> tuple[str, str]:
    """Return the first two cells of a difference's row: the arms and the metric."""
    return f"{found.arm} - {found.other}", ROUND_METRICS[found.metric].label


def signed(value: float | None) -> str:
    """Return a difference with its sign, or a dash for "no value"."""
    return NOTHING if value is None else f"{value:+.4f}"


def capital(text: str) -> str:
    """Return the text with its first letter as a capital."""
    return text[0].upper() + text[1:]


def _grouped(
    differences: Sequence[Difference], key: Callable[[Difference], Group]
) -> list[tuple[Group, list[Difference]]]:
    groups: dict[Group, list[Difference]] = {}
    for found in differences:
        groups.setdefault(key(found), []).append(found)
    return list(groups.items())


def evidence(found: Difference) -> tuple[str, ...]:
    """Return interval, what it is over, p, corrected p and effect size as cells of a row."""
    says = found.estimate
    low, high = says.interval or (None, None)
    better = NOTHING if says.superiority is None else f"{says.superiority:.0%}"
    return (
        signed(low),
        signed(high),
        says.over or NOTHING,
        p_text(says.p_value),
        p_text(found.p_corrected),
        better,
    )


def counts(found: Difference) -> tuple[str, ...]:
    """Return seeds, paired prompts and both arms' scored rows as cells of a row."""
    rows = (f"{scored}/{total}" for scored, total in (found.rows, found.other_rows))
    return str(len(found.by_seed)), paired_prompts(found), *rows


def paired_prompts(found: Difference) -> str:
    """Return how many prompts both arms scored, of all; the fewest and the most of a seed."""
    paired = _span({one.n_prompts for one in found.by_seed})
    return f"{paired}/{_span({one.n_prompts_total for one in found.by_seed})}"


def _lacking(found: Difference) -> list[tuple[str, str]]:
    """Say what a comparison lacks that others may have: its interval, or seeds of one arm."""
    difference, metric = names_of(found)
    name = f"{difference}, {metric}"
    notes = []
    if found.estimate.interval is None:
        notes.append((name, f"no interval: {found.estimate.lacking}"))
    if found.remark:
        notes.append((name, found.remark))
    for arm, seeds in found.unpaired_seeds.items():
        notes.append(
            (name, f"left out, as {arm} alone has them: seeds {', '.join(map(str, seeds))}")
        )
    return notes


def _span(values: Collection[int]) -> str:
    """Return one number, or the smallest and the largest.

    >>> _span({48}), _span({46, 48, 47}), _span(())
    ('48', '46-48', '0')
    """
    low, high = min(values, default=0), max(values, default=0)
    return str(low) if low == high else f"{low}-{high}"


def p_text(value: float | None) -> str:
    """Return a p-value as text, or a dash."""
    if value is None:
        return NOTHING
    return f"<{SMALLEST_P}" if value < SMALLEST_P else f"{value:.4f}"
