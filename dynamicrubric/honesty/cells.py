"""The figures of a finished cell, from the tables that its evaluation stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from dynamicrubric.honesty.naive import paid
from dynamicrubric.honesty.redundant import redundant
from dynamicrubric.honesty.single import singled_out
from dynamicrubric.rewards import normalised_weights
from dynamicrubric.types import InvalidReason

if TYPE_CHECKING:
    import pandas as pd

RESPONSE_COLUMNS: Final = ("response_id", "sample_index", "prompt", "text")
RUBRIC_COLUMNS: Final = ("rubric_id", "valid", "invalid_reason")
VERDICT_COLUMNS: Final = (
    "response_id", "rubric_id", "item_index", "criterion", "weight", "verdict",
)  # fmt: skip
_ROUNDING: Final = 1e-12


@dataclass(frozen=True)
class Honesty:
    """Sums over the rubrics of a cell, or of several put together: every share has its count.

    Attributes:
        written: rubrics that were written, valid or not.
        duplicated: of those, invalid for a criterion that stands in them twice.
        rubrics: valid ones, all that follows is of them.
        items: their items.
        judged: items with all verdicts scored.
        all_meet: judged items that every response of the set meets.
        none_meet: judged items that none meets.
        single: items that single out one response by its own words.
        pairs: pairs of items of one rubric that both split the set.
        equal: of those, with the same verdict on every response.
        opposite: with the other verdict on every response.
        equal_by_chance: how many equal ones chance would give.
        opposite_by_chance: likewise opposite ones.
        same_words: pairs of items whose criteria have the same words.
        verdicts: verdicts.
        unscored: of those, unscored.
        paid: valid rubrics with a scored verdict; without any there is no R_disc, of either kind.
        disc: sum over these of R_disc as it is trained.
        disc_of_single: the part of it that items that single out a response have.
        disc_as_no: the sum if unscored verdicts were taken as no.
        disc_scored_only: the sum with shares over scored verdicts alone.
        overpaid: rubrics to which either of these would have paid more.
    """

    written: int = 0
    duplicated: int = 0
    rubrics: int = 0
    items: int = 0
    judged: int = 0
    all_meet: int = 0
    none_meet: int = 0
    single: int = 0
    pairs: int = 0
    equal: int = 0
    opposite: int = 0
    equal_by_chance: float = 0.0
    opposite_by_chance: float = 0.0
    same_words: int = 0
    verdicts: int = 0
    unscored: int = 0
    paid: int = 0
    disc: float = 0.0
    disc_of_single: float = 0.0
    disc_as_no: float = 0.0
    disc_scored_only: float = 0.0
    overpaid: int = 0

    def __add__(self, other: Self) -> Self:
        names = [field.name for field in fields(self)]
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def share(self, part: str, of: str) -> float | None:
        """Return one sum over another; None where there is nothing to divide by.

        >>> Honesty(items=4, single=1).share("single", "items")
        0.25
        """
        whole = getattr(self, of)
        return float(getattr(self, part) / whole) if whole else None


def together(found: Iterable[Honesty]) -> Honesty:
    """Put the figures of several cells together."""
    return sum(found, Honesty())


def honesty_of(responses: pd.DataFrame, rubrics: pd.DataFrame, verdicts: pd.DataFrame) -> Honesty:
    """Return the figures of one evaluation.

    Args:
        responses: rows with `RESPONSE_COLUMNS`.
        rubrics: rows with `RUBRIC_COLUMNS`; one without rubrics has no valid ones.
        verdicts: rows with `VERDICT_COLUMNS`, of valid rubrics alone.
    """
    texts = {
        str(name): (int(place), str(prompt), str(text))
        for name, place, prompt, text in zip(
            *(responses[column].tolist() for column in RESPONSE_COLUMNS), strict=True
        )
    }
    by_rubric: dict[str, list[tuple[str, int, str, int, str]]] = {}
    for response, rubric, item, criterion, weight, said in zip(
        *(verdicts[column].tolist() for column in VERDICT_COLUMNS), strict=True
    ):
        row = (str(response), int(item), str(criterion), int(weight), str(said))
        by_rubric.setdefault(str(rubric), []).append(row)
    found = together(_of_rubric(rows, texts) for rows in by_rubric.values())
    known = [value for value in rubrics["valid"].tolist() if isinstance(value, bool)]
    reasons = [reason for reason in rubrics["invalid_reason"].tolist() if isinstance(reason, str)]
    duplicated = reasons.count(str(InvalidReason.DUPLICATE_CRITERION))
    return found + Honesty(written=len(known), duplicated=duplicated)


def _of_rubric(
    rows: list[tuple[str, int, str, int, str]], texts: Mapping[str, tuple[int, str, str]]
) -> Honesty:
    """Return the figures of one valid rubric from its verdicts."""
    names = sorted({row[0] for row in rows}, key=lambda name: texts[name][0])
    items = {item: (criterion, weight) for _, item, criterion, weight, _ in sorted(rows)}
    place = {name: number for number, name in enumerate(names)}
    column = {item: number for number, item in enumerate(items)}
    yes, scored = (np.zeros((len(names), len(items)), dtype=bool) for _ in range(2))
    for name, item, _, _, said in rows:
        yes[place[name], column[item]] = said == "yes"
        scored[place[name], column[item]] = said != "unscored"
    criteria, weights = zip(*items.values(), strict=True)
    responses, prompt = [texts[name][2] for name in names], texts[names[0]][1]
    single = np.array(
        [one is not None for one in singled_out(criteria, responses, prompt, yes, scored)]
    )
    judged, met, size = scored.all(axis=0), yes.sum(axis=0), len(names)
    same, amounts = redundant(criteria, yes, scored), paid(weights, yes, scored)
    by_item = normalised_weights(weights) * met * (scored.sum(axis=0) - met) / size**2
    return Honesty(
        rubrics=1,
        items=len(items),
        judged=int(judged.sum()),
        all_meet=int((judged & (met == size)).sum()),
        none_meet=int((judged & (met == 0)).sum()),
        single=int(single.sum()),
        pairs=same.pairs,
        equal=same.equal,
        opposite=same.opposite,
        equal_by_chance=same.equal_by_chance,
        opposite_by_chance=same.opposite_by_chance,
        same_words=same.same_words,
        verdicts=scored.size,
        unscored=int((~scored).sum()),
        paid=int(scored.any()),
        disc=amounts.aware,
        disc_of_single=float(by_item[single].sum()),
        disc_as_no=amounts.as_no,
        disc_scored_only=amounts.scored_only,
        overpaid=int(max(amounts.as_no, amounts.scored_only) > amounts.aware + _ROUNDING),
    )
