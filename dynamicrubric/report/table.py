"""The comparison as tables: for the console (rich) and as markdown (results/table.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from dynamicrubric.metrics import ALL_ROUND_METRICS, ANCHOR_METRICS
from dynamicrubric.planview import ranges
from dynamicrubric.report.coevolution import (
    CoEvolution,
    coevolution_grids,
    coevolution_notes,
)
from dynamicrubric.report.differences import Difference
from dynamicrubric.report.evidence import (
    Grid,
    evidence_grids,
    evidence_notes,
    names_of,
    rounds_of,
)
from dynamicrubric.report.outcomes import OutcomeTable
from dynamicrubric.report.phrases import (
    capital,
    count,
    label,
    mean_over,
    mean_text,
    of_all,
    seed_counts,
    signed,
)
from dynamicrubric.report.text import markdown_inline

if TYPE_CHECKING:
    from rich.console import Group

MAX_ROUND_COLUMNS: Final = 8
BY_ROUND: Final = ("true_quality", "delta_gap")
LAST_ROUND: Final[Mapping[str, tuple[str, ...]]] = {
    "Rubrics": ("r_disc", "r_dir", "r_cov", "rank_accuracy", "tie_rate", "valid_rubric_rate"),
    "Parts of Δ gap": ("delta_gap", "gap_disc", "gap_wrong", "r_cov", "wrong_way_share"),
    "Sizes and costs": ("items_per_rubric", "response_length", "kl", "seconds"),
}
"""Figures of the last round, in tables that fit a console of 80 columns."""
SHARED_SECONDS: Final = "of a round that arms share: listed under each arm, paid once"


def shown_rounds(last_round: int) -> list[int]:
    """Return the rounds that get a column: all of them, or some with the first and the last.

    >>> shown_rounds(3)
    [0, 1, 2, 3]
    >>> shown_rounds(70)
    [0, 10, 20, 30, 40, 50, 60, 70]
    """
    count = min(last_round + 1, MAX_ROUND_COLUMNS)
    return sorted({round(last_round * n / max(count - 1, 1)) for n in range(count)})


def grids(table: OutcomeTable, differences: Sequence[Difference]) -> list[Grid]:
    """Return every table of the comparison, as text."""
    seeds = mean_over(seed_counts(table))
    found = _by_round(table)
    found += [
        _last_round_grid(table, names, f"{title} in {_last_rounds(table)}, {seeds}")
        for title, names in LAST_ROUND.items()
    ]
    anchors = [name for name in table.metrics if name in ANCHOR_METRICS]
    if anchors:
        title = f"Anchor lists of held-out prompts in {_last_rounds(table)}, {seeds}"
        found.append(_last_round_grid(table, anchors, title))
    if differences:
        found.append(_difference_grid(differences))
        found += evidence_grids(differences)
    return found


def footnotes(
    table: OutcomeTable, differences: Sequence[Difference], questions: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return (name, text) lines under the tables: each arm's question, counts, costs, terms."""
    lines = _meanings(table, questions)
    lines += [(f"{arm}, not all scored", text) for arm, text in _unscored(table)]
    lines += [*_unlike(table), *_one_seed(table)]
    return [*lines, ("seconds", SHARED_SECONDS), *evidence_notes(differences)]


def _meanings(table: OutcomeTable, questions: Mapping[str, str]) -> list[tuple[str, str]]:
    lines = [(arm, questions[arm]) for arm in table.arms if arm in questions]
    for metric in BY_ROUND:
        meaning = ALL_ROUND_METRICS[metric].meaning
        lines.append((label(metric), f"{meaning} ({_counts(table, metric)})"))
    return lines


def _one_seed(table: OutcomeTable) -> list[tuple[str, str]]:
    if len(table.seeds) > 1:
        return []
    return [("1 seed", "differences say nothing about what another seed would give")]


def _unlike(table: OutcomeTable) -> list[tuple[str, str]]:
    """Say which seeds and rounds each arm has, where arms differ in them."""
    runs: dict[tuple[tuple[int, ...], int], list[str]] = {}
    for arm in table.arms:
        runs.setdefault((table.seeds_of(arm), table.last_round_of(arm)), []).append(arm)
    if len(runs) == 1:
        return []
    return [
        (
            ", ".join(arms),
            f"n = {count(len(seeds), 'seed')} ({ranges(seeds)}), {count(rounds, 'round')}",
        )
        for (seeds, rounds), arms in runs.items()
    ]


def markdown(
    table: OutcomeTable,
    differences: Sequence[Difference],
    questions: Mapping[str, str],
    coevolution: CoEvolution | None = None,
    mark: str = "",
    more: Sequence[Grid] = (),
) -> str:
    """Return results/table.md; `mark` is what has to be said of it before all else."""
    shown, lines = _contents(table, differences, questions, coevolution)
    shown += more
    parts = [_markdown_grid(grid) for grid in shown]
    notes = [f"- **{markdown_inline(name)}**: {markdown_inline(text)}" for name, text in lines]
    head = ["# Comparison", *([f"**{markdown_inline(mark)}**"] if mark else [])]
    return "\n\n".join([*head, *parts, "\n".join(notes)]) + "\n"


def console(
    table: OutcomeTable,
    differences: Sequence[Difference],
    questions: Mapping[str, str],
    coevolution: CoEvolution | None = None,
    more: Sequence[Grid] = (),
    *,
    brief: bool = False,
) -> Group:
    """Return what `rich.console.Console.print` shows; content is never read as markup.

    With `brief` it is what a study ends with: figures by round, differences, what arms ask.
    """
    # Imported here: a report on disk needs no console.
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Table | Text] = []
    contents, notes = (
        _brief(table, differences, questions)
        if brief
        else _contents(table, differences, questions, coevolution)
    )
    for grid in (*contents, *more):
        shown = Table(title=Text(grid.title), title_justify="left", pad_edge=False)
        for number, head in enumerate(grid.heads):
            shown.add_column(Text(head), justify="right" if number else "left", no_wrap=not number)
        for row in grid.rows:
            shown.add_row(*(Text(cell) for cell in row))
        parts.append(shown)
    parts.append(Text("\n".join(f"{name}: {text}" for name, text in notes)))
    return Group(*parts)


def _brief(
    table: OutcomeTable, differences: Sequence[Difference], questions: Mapping[str, str]
) -> tuple[list[Grid], list[tuple[str, str]]]:
    """Return the tables that answer the arms' questions, and the lines that they need."""
    found = _by_round(table)
    if differences:
        found.append(_difference_grid(differences))
    return found, [*_meanings(table, questions), *_unlike(table), *_one_seed(table)]


def _contents(
    table: OutcomeTable,
    differences: Sequence[Difference],
    questions: Mapping[str, str],
    coevolution: CoEvolution | None,
) -> tuple[list[Grid], list[tuple[str, str]]]:
    """Return all tables and the lines under them."""
    shown, notes = grids(table, differences), footnotes(table, differences, questions)
    if coevolution is not None:
        shown += coevolution_grids(coevolution)
        notes += coevolution_notes(coevolution)
    return shown, notes


def _by_round(table: OutcomeTable) -> list[Grid]:
    seeds = mean_over(seed_counts(table))
    return [
        _round_grid(table, metric, f"{capital(label(metric))} by round, {seeds}")
        for metric in BY_ROUND
    ]


def _round_grid(table: OutcomeTable, metric: str, title: str) -> Grid:
    rounds = shown_rounds(table.last_round)
    rows = tuple(
        (arm, *(mean_text(table, arm, number, metric) for number in rounds)) for arm in table.arms
    )
    return Grid(title, ("arm", *(f"round {number}" for number in rounds)), rows)


def _last_round_grid(table: OutcomeTable, names: Sequence[str], title: str) -> Grid:
    rows = tuple(
        (arm, *(mean_text(table, arm, table.last_round_of(arm), name) for name in names))
        for arm in table.arms
    )
    return Grid(title, ("arm", *(label(name) for name in names)), rows)


def _last_rounds(table: OutcomeTable) -> str:
    rounds = {table.last_round_of(arm) for arm in table.arms}
    return f"round {table.last_round}" if len(rounds) == 1 else "each arm's last round"


def _difference_grid(differences: Sequence[Difference]) -> Grid:
    several = max(len(found.by_seed) for found in differences) > 1
    heads = ("difference", "metric", "mean", "std. error", "std. error is")
    rows = tuple(
        (
            *names_of(found),
            signed(found.mean),
            "none" if found.standard_error is None else f"{found.standard_error:.4f}",
            found.note,
            *([" ".join(signed(one.mean) for one in found.by_seed)] if several else []),
        )
        for found in differences
    )
    title = f"Paired differences by prompt, {rounds_of(differences)}"
    return Grid(title, (*heads, "each seed") if several else heads, rows)


def _markdown_grid(grid: Grid) -> str:
    lines = [
        " | ".join(markdown_inline(head) for head in grid.heads),
        " | ".join(["---", *("---:" for _ in grid.heads[1:])]),
        *(" | ".join(markdown_inline(cell) for cell in row) for row in grid.rows),
    ]
    table = "\n".join(f"| {line} |" for line in lines)
    return f"## {markdown_inline(grid.title)}\n\n{table}"


def _counts(table: OutcomeTable, metric: str) -> str:
    totals = sorted({row.n_total for row in table.rows if row.metric == metric})
    return f"{' or '.join(str(total) for total in totals)} values an arm, seed and round"


def _unscored(table: OutcomeTable) -> list[tuple[str, str]]:
    """Say for each arm which means of the last round leave something out, summed over seeds."""
    lines = []
    for arm in table.arms:
        names: dict[str, list[str]] = {}
        for metric in table.metrics:
            found = table.outcomes(arm, table.last_round_of(arm), metric)
            scored, total = sum(row.n_scored for row in found), sum(row.n_total for row in found)
            if scored < total:
                names.setdefault(of_all(scored, total), []).append(label(metric))
        if names:
            text = "; ".join(f"{part} of {', '.join(own)}" for part, own in names.items())
            lines.append((arm, text))
    return lines
