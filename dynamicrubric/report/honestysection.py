"""Is discriminability honest? The page's section: what R_disc pays for, by arm and round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dynamicrubric.honesty.cells import Honesty
from dynamicrubric.report.evidence import Grid
from dynamicrubric.report.honesty import ByRound
from dynamicrubric.report.page import Section
from dynamicrubric.report.phrases import CERTAINTY, NOTHING, signed

TITLE: Final = "Is discriminability honest?"
LEAD: Final = (
    "R_disc pays a rubric for telling responses apart, whatever tells them apart. These tables say "
    "how much of what it pays goes to items that name one response, repeat or contradict another "
    "item, or that no verdict stands behind. From the stored rubrics and verdicts of held-out sets."
)
NOTES: Final = (
    ("single out", "items met by one response alone and written in a word of its own, which "
     "neither another response nor the prompt has; beside it their part of R_disc"),
    ("alike, opposite", "pairs of items of a rubric that both split the set, with the same or the "
     "other verdict on every response; in brackets what chance would give on sets of this size"),
    ("same words", "pairs of items of a rubric whose criteria have the same words"),
    ("would have paid", "mean R_disc if unscored verdicts were taken as no, and if shares were "
     "taken over the scored verdicts alone, beside what is paid; and the share of rubrics to which "
     "one of these would have paid more; rubrics without a scored verdict have none of these"),
)  # fmt: skip


def honesty_section(found: ByRound, shown: Sequence[str]) -> tuple[Section, ...]:
    """Return the page's section; none where no rubrics were written.

    Args:
        found: figures by arm and round.
        shown: the arms on the page; the CSV has all.
    """
    own = {f"{arm}, round {number}": one for (arm, number), one in found.items() if arm in shown}
    if not own:
        return ()
    grids = (items_grid("arm and round", own), *unscored_grids("arm and round", own))
    return (Section("honesty", TITLE, LEAD, grids=grids, notes=NOTES),)


def items_grid(first: str, own: Mapping[str, Honesty]) -> Grid:
    """Return the table of items: which decide nothing, name one response, repeat or contradict.

    Args:
        first: head of the first column.
        own: figures by what stands there.
    """
    heads = (
        first, "rubrics", "items", "all meet", "none meets", "single out", "of R_disc", "pairs",
        "alike", "opposite", "same words", "invalid: twice",
    )  # fmt: skip
    rows = tuple(
        (
            name,
            f"{one.rubrics}",
            f"{one.items}",
            percent(one.share("all_meet", "judged")),
            percent(one.share("none_meet", "judged")),
            percent(one.share("single", "items")),
            percent(one.share("disc_of_single", "disc")),
            f"{one.pairs}",
            _beside(one, "equal"),
            _beside(one, "opposite"),
            f"{one.same_words}",
            f"{one.duplicated} of {one.written}",
        )
        for name, one in own.items()
    )
    return Grid("What items do to a response set", heads, rows)


def unscored_grids(first: str, own: Mapping[str, Honesty]) -> tuple[Grid, ...]:
    """Return the table of what unscored verdicts would have earned; none where all are scored."""
    rows = tuple(
        (
            name,
            f"{one.unscored} of {one.verdicts}",
            _mean(one.share("disc", "paid")),
            _mean(one.share("disc_as_no", "paid")),
            _mean(one.share("disc_scored_only", "paid")),
            percent(one.share("overpaid", "paid")),
        )
        for name, one in own.items()
        if one.unscored
    )
    heads = (
        first, "unscored verdicts", "R_disc paid", "would have paid: as no",
        "would have paid: scored only", "overpaid rubrics",
    )  # fmt: skip
    title = "What unscored verdicts earn, and would have earned in naive versions of R_disc"
    return (Grid(title, heads, rows),) if rows else ()


ORDER_LABELS: Final[Mapping[str, str]] = {
    "criteria_kept": "criteria kept",
    "score_change": "scores differ by",
    "pairs_flipped": "pairs the other way",
    "pairs_changed": "pairs in another order",
}


def order_grids(shown: Mapping[str, Mapping[str, Any]]) -> list[Grid]:
    """Return the tables of what the order of a set does: `honesty.orders.OrderFigures` by cell."""
    if not shown:
        return []
    heads = ("cell", "compared with the order it is in", "rubrics", *ORDER_LABELS.values())
    rows = [
        (key, said, f"{one[name]['criteria_kept']['n_scored']} of "
                    f"{one[name]['criteria_kept']['n_total']}",
         *(_mean(one[name][label]["value"]) for label in ORDER_LABELS))
        for key, one in shown.items()
        for name, said in (("permuted", "other orders"), ("again", "the same order, asked again"))
    ]  # fmt: skip
    rows += [
        (key, f"the order's own, {CERTAINTY} interval over prompts", NOTHING,
         *(_estimate(one["of_order"][label]) for label in ORDER_LABELS))
        for key, one in shown.items()
    ]  # fmt: skip
    gap_heads = (
        "cell", "orders", "stored rubrics written again", "gap of one order",
        "gap averaged over them", "change",
    )  # fmt: skip
    gaps = tuple(
        (key, str(one["orders"]), f"{one['reproduced']} of {one['sets']}",
         _mean(one["gap"]["value"]), _mean(one["averaged_gap"]["value"]),
         _estimate(one["averaging"]))
        for key, one in shown.items()
    )  # fmt: skip
    title = "What the order of the responses in the generator's prompt does"
    return [
        Grid(title, heads, tuple(rows)),
        Grid("Delta_gap of a rubric for one order, and averaged over all", gap_heads, gaps),
    ]


def _estimate(one: Mapping[str, Any]) -> str:
    if one["interval"] is None:
        return signed(one["mean"])
    low, high = one["interval"]
    return f"{signed(one['mean'])} ({signed(low)} to {signed(high)})"


def percent(value: float | None) -> str:
    """Return a share with one digit, since these are often small, or a dash."""
    return NOTHING if value is None else f"{100 * value:.1f} %"


def _beside(one: Honesty, name: str) -> str:
    chance = percent(one.share(f"{name}_by_chance", "pairs"))
    return f"{percent(one.share(name, 'pairs'))} ({chance})"


def _mean(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"
