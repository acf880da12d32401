"""How sure each difference is, as tables: interval, test, effect size, and what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dynamicrubric.report.differences import Difference
from dynamicrubric.report.phrases import (
    CERTAINTY,
    NOTHING,
    capital,
    count,
    label,
    listed,
    of_all,
    p_text,
    seeds_named,
    share,
    signed,
    span,
)
from dynamicrubric.stats import MIN_PROMPTS, MIN_SEEDS

FROM: Final = f"{CERTAINTY} from"
CORRECTED: Final = "p Holm"
"""Short: the table fits a console of 80 columns."""
HIGHER_ON: Final = "higher on"
INTERVAL_MEANING: Final = (
    "interval of the mean difference; where it is over prompts alone, it is about the seeds that "
    "were run and says nothing about others"
)
HIGHER_MEANING: Final = (
    "effect size: share of prompts on which the first arm is higher, equal ones half; 50 % is none"
)
COLUMNS: Final[Mapping[str, Callable[[Difference], str]]] = {
    "difference": lambda one: signed(one.mean),
    FROM: lambda one: signed(_ends(one)[0]),
    "to": lambda one: signed(_ends(one)[1]),
    "is over": lambda one: one.estimate.over or NOTHING,
    "p": lambda one: p_text(one.estimate.p_value),
    CORRECTED: lambda one: p_text(one.p_corrected),
    HIGHER_ON: lambda one: share(one.estimate.superiority),
    "seeds": lambda one: str(len(one.by_seed)),
    "prompts": lambda one: paired_prompts(one),
    "rows": lambda one: of_all(*one.rows),
    "other's rows": lambda one: of_all(*one.other_rows),
}
"""What every table of comparisons is made of: a column's head, and its cell for a comparison."""
INTERVAL_HEADS: Final = (FROM, "to", "is over", "p", CORRECTED, HIGHER_ON)
COUNT_HEADS: Final = ("seeds", "prompts", "rows", "other's rows")
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


def cells_of(found: Difference, heads: Iterable[str]) -> tuple[str, ...]:
    """Return a comparison's cells under the given heads of `COLUMNS`."""
    return tuple(COLUMNS[head](found) for head in heads)


def family_text(differences: Sequence[Difference]) -> str:
    """Say over what the p-values of a table are corrected, given its comparisons."""
    families = dict.fromkeys(one.family for one in differences if one.family is not None)
    said = [f"{count(one.size, 'comparison')}, {one.name}" for one in families]
    return f"{CORRECTED} over {'; '.join(said)}" if said else "p not corrected"


def by_family(differences: Sequence[Difference]) -> list[list[Difference]]:
    """Return the comparisons of each table: one family each, of one arm in one metric."""
    own = grouped(
        differences, lambda one: (one.arm, one.metric, one.family.name if one.family else "")
    )
    return [found for _, found in own]


def family_title(own: Sequence[Difference]) -> str:
    """Return the title of the table of one family."""
    arm, metric = own[0].arm, own[0].metric
    return (
        f"{capital(label(metric))} in {rounds_of(own)}, {arm} minus another arm: {CERTAINTY} "
        f"intervals; {family_text(own)}"
    )


def evidence_grids(differences: Sequence[Difference]) -> list[Grid]:
    """Return the tables of intervals, one a family, and of counts; no difference is left out."""
    found = [
        Grid(
            family_title(own),
            ("other arm", *INTERVAL_HEADS),
            tuple((one.other, *cells_of(one, INTERVAL_HEADS)) for one in own),
        )
        for own in by_family(differences)
    ]
    return found + [
        Grid(
            f"What they rest on, {arm} and the other arm",
            ("other arm", "metric", *COUNT_HEADS),
            tuple((one.other, label(one.metric), *cells_of(one, COUNT_HEADS)) for one in own),
        )
        for (arm,), own in grouped(differences, lambda one: (one.arm,))
    ]


def evidence_notes(differences: Sequence[Difference]) -> list[tuple[str, str]]:
    """Return (name, text) lines that say what the columns mean and what is not there."""
    if not differences:
        return []
    notes = [
        (f"{FROM}, to", INTERVAL_MEANING),
        ("p", "of no difference, two-sided, over what the interval is over"),
        (CORRECTED, "p corrected by Holm, over the comparisons of its table that have a p"),
        (HIGHER_ON, HIGHER_MEANING),
        ("prompts, rows", "prompts that both arms scored, of all; each arm's scored rows, of all"),
    ]
    few = {len(found.by_seed) for found in differences} & set(range(1, MIN_SEEDS))
    if few:
        number = " or ".join(count(seeds, "seed") for seeds in sorted(few))
        notes.append((f"no interval over seeds with {number}", f"it takes {MIN_SEEDS}"))
    return notes + [note for found in differences for note in lacking_notes(found)]


def names_of(found: Difference) -> tuple[str, str]:
    """Return the first two cells of a difference's row: the arms and the metric."""
    return f"{found.arm} - {found.other}", label(found.metric)


def no_interval(found: Difference) -> str:
    """Say in a sentence why a comparison has no interval; empty if it has one."""
    if found.estimate.interval is not None:
        return ""
    place = f"{label(found.metric)} in round {found.round}"
    if found.same_cell:
        return f"Both are one and the same cell in round {found.round}: nothing was compared."
    if not found.by_seed:
        return f"No seed has {place} of both, so there is nothing to compare."
    if found.mean is None:
        empty = seeds_named([one.seed for one in found.by_seed if one.mean is None])
        return f"No prompt of {empty} is scored for both in {place}, so there is no difference."
    few = [one for one in found.by_seed if one.n_prompts < MIN_PROMPTS]
    said = listed([f"{count(one.n_prompts, 'prompt')} of seed {one.seed}" for one in few])
    return (
        f"In {place} both are scored on only {said}, and an interval takes {MIN_PROMPTS}: the "
        f"mean difference of {signed(found.mean, 3)} stands alone."
    )


def paired_prompts(found: Difference) -> str:
    """Return how many prompts both arms scored, of all; the fewest and the most of a seed."""
    paired = span({one.n_prompts for one in found.by_seed}, to="-")
    return f"{paired}/{span({one.n_prompts_total for one in found.by_seed}, to='-')}"


def lacking_notes(found: Difference) -> list[tuple[str, str]]:
    """Say what a comparison lacks that others may have: its interval, or seeds of one arm."""
    name = ", ".join(names_of(found))
    notes = []
    if found.estimate.interval is None:
        notes.append((name, f"no interval. {no_interval(found)}"))
    if found.remark:
        notes.append((name, found.remark))
    return notes + [(name, text) for text in left_out(found)]


def left_out(found: Difference) -> list[str]:
    """Say which seeds are left out because one of the two arms alone has them."""
    return [
        f"{capital(seeds_named(seeds))} left out: only {arm} has {it}."
        for arm, seeds in found.unpaired_seeds.items()
        for it in ["it" if len(seeds) == 1 else "them"]
    ]


def grouped(
    differences: Sequence[Difference], key: Callable[[Difference], Group]
) -> list[tuple[Group, list[Difference]]]:
    """Return the comparisons by key, in the order in which the keys come."""
    groups: dict[Group, list[Difference]] = {}
    for found in differences:
        groups.setdefault(key(found), []).append(found)
    return list(groups.items())


def _ends(found: Difference) -> tuple[float | None, float | None]:
    return found.estimate.interval or (None, None)
