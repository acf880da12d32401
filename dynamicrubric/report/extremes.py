"""The most and the least rewarded held-out responses of a cell, with what rewarded them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from dynamicrubric.errors import UserError
from dynamicrubric.report.cellfiles import REMEDY
from dynamicrubric.report.celltables import CellTables

NUM_EACH: Final = 2
TOLERANCE: Final = 1e-6


@dataclass(frozen=True)
class ItemVerdict:
    """One item of a rubric and what the verifier said of one response."""

    criterion: str
    weight: int
    verdict: str


@dataclass(frozen=True)
class RewardedResponse:
    """A response, its score and the items it comes from.

    Attributes:
        response_id: the response.
        prompt: what was asked for.
        text: what the policy wrote.
        score: weighted share of items met.
        true_quality: hidden from training.
        finish_reason: `stop`, or `length` for one that was cut.
        items: the rubric's items; none where scores come from no rubric.
    """

    response_id: str
    prompt: str
    text: str
    score: float
    true_quality: float | None
    finish_reason: str
    items: tuple[ItemVerdict, ...]


@dataclass(frozen=True)
class Extremes:
    """The ends of one cell's scores.

    Attributes:
        key: the cell.
        seed: its seed.
        round: its round.
        most: responses with the highest scores.
        least: responses with the lowest.
        n_highest: how many share the highest score: `most` are only the first of them.
        n_lowest: how many share the lowest.
        n_scored: scored responses.
        n_total: responses.
    """

    key: str
    seed: int
    round: int
    most: tuple[RewardedResponse, ...]
    least: tuple[RewardedResponse, ...]
    n_highest: int
    n_lowest: int
    n_scored: int
    n_total: int


def extremes_of(tables: CellTables, number: int = NUM_EACH) -> Extremes:
    """Return the ends of a cell's scores, one response a prompt, equal scores by response id.

    Args:
        tables: the cell.
        number: how many at each end.
    """
    rows = tables.responses[tables.responses["score"].notna()]
    rows = rows.sort_values(["score", "response_id"], ascending=[False, True], kind="stable")
    up = rows.sort_values(["score", "response_id"], kind="stable")
    most = rows.drop_duplicates("prompt_id").head(number)
    chosen = set(most["response_id"])
    least = up[~up["response_id"].isin(chosen)].drop_duplicates("prompt_id").head(number)
    scores = rows["score"].astype(float)
    recipe = tables.files.cell.recipe
    return Extremes(
        key=tables.files.cell.key,
        seed=recipe.seed,
        round=recipe.round,
        most=tuple(_response(tables, row) for row in most.to_dict("records")),
        least=tuple(_response(tables, row) for row in least.to_dict("records")),
        n_highest=int((scores == scores.max()).sum()),
        n_lowest=int((scores == scores.min()).sum()),
        n_scored=len(rows),
        n_total=len(tables.responses),
    )


def _response(tables: CellTables, row: dict[Any, Any]) -> RewardedResponse:
    own = tables.verdicts[tables.verdicts["response_id"] == row["response_id"]]
    items = tuple(
        ItemVerdict(str(item["criterion"]), int(item["weight"]), str(item["verdict"]))
        for item in own.sort_values("item_index").to_dict("records")
    )
    _check_score(tables, row, items)
    quality = row["true_quality"]
    return RewardedResponse(
        response_id=str(row["response_id"]),
        prompt=str(row["prompt"]),
        text=str(row["text"]),
        score=float(row["score"]),
        true_quality=None if quality is None or math.isnan(quality) else float(quality),
        finish_reason=str(row.get("finish_reason", "")),
        items=items,
    )


def _check_score(tables: CellTables, row: dict[Any, Any], items: tuple[ItemVerdict, ...]) -> None:
    """Check that a shown score is the weighted share of the shown verdicts."""
    judged = [item for item in items if item.verdict in ("yes", "no")]
    if not items or len(judged) < len(items):
        return
    met = sum(item.weight for item in judged if item.verdict == "yes")
    share = met / sum(item.weight for item in judged)
    if abs(share - float(row["score"])) > TOLERANCE:
        raise UserError(
            doing=f"reading the verdicts of the cell {tables.files.cell.key}",
            got=f"the score {row['score']} of {row['response_id']}",
            expected=f"the weighted share of its verdicts, {share}",
            remedy=REMEDY,
        )
