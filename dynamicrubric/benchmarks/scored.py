"""One item as one evaluator scored it: the line of scores.jsonl, written and read back.

Scores stand in the item's order, best first, whatever the order in which they were asked for. A
line holds all that figures need, so that they are made from the file alone. Seconds are not in it:
equal runs give equal bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dynamicrubric.benchmarks.schema import BenchItem
from dynamicrubric.evaluators.base import Cost, ScoredSet
from dynamicrubric.types import Rubric

Scores = tuple[float | None, ...]
Key = tuple[int, str, str, str]


@dataclass(frozen=True)
class ScoredItem:
    """An item's scores.

    Attributes:
        seed: the run's.
        evaluator: its name.
        dataset: the item's, like `id`, `subset`, `tiers` and `quality`.
        id: the item's.
        subset: the item's.
        prompt_id: the item's: what intervals cluster by.
        tiers: the item's.
        same: first place with the same text, shape (K,).
        lengths: characters of each response, blanks at both ends left out.
        orders: the orders that were read, each a permutation of the K places.
        scores: by order, in the item's order of responses, None where unscored.
        reasons: why unscored, likewise; None where scored.
        quality: true quality of each response, or nothing.
        flags: what is unusual about the texts.
        said: by order, what the evaluator says beside the scores: rubric, breakdown.
        cost: of all orders together.
    """

    seed: int
    evaluator: str
    dataset: str
    id: str
    subset: str
    prompt_id: str
    tiers: tuple[int, ...]
    same: tuple[int, ...]
    lengths: tuple[int, ...]
    orders: tuple[tuple[int, ...], ...]
    scores: tuple[Scores, ...]
    reasons: tuple[tuple[str | None, ...], ...]
    quality: tuple[float, ...] = ()
    flags: tuple[str, ...] = ()
    said: tuple[Mapping[str, Any], ...] = ()
    cost: Cost = field(default_factory=Cost)

    @property
    def key(self) -> Key:
        """What it is the score of."""
        return self.seed, self.evaluator, self.dataset, self.id

    def as_line(self) -> str:
        """Return it as a line of JSON, keys in a fixed order."""
        document = asdict(self)
        return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def of_line(cls, line: str) -> ScoredItem:
        """Read a line back.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        found = json.loads(line)
        tuples = {
            name: _tuples(found[name])
            for name in (
                "tiers", "same", "lengths", "orders", "scores", "reasons", "quality", "flags",
            )
        }  # fmt: skip
        rest = {name: found[name] for name in ("seed", "evaluator", "dataset", "id", "subset")}
        return cls(
            **rest,
            **tuples,
            prompt_id=found["prompt_id"],
            said=tuple(found["said"]),
            cost=Cost(**found["cost"]),
        )


def scored_item(
    item: BenchItem,
    seed: int,
    evaluator: str,
    orders: Sequence[Sequence[int]],
    found: Sequence[ScoredSet],
) -> ScoredItem:
    """Put what an evaluator said of an item's orders into the item's own order.

    Identical responses get one score, the mean of theirs: a text cannot be better than itself.

    Args:
        item: the item.
        seed: the run's.
        evaluator: its name.
        orders: permutations of the K places.
        found: what was said of each; none where nobody was asked, since all are one text.
    """
    scores: list[Scores] = []
    reasons: list[tuple[str | None, ...]] = []
    for order, one in zip(orders, found, strict=True):
        values: list[float | None] = [None] * len(order)
        why: list[str | None] = [None] * len(order)
        for place, score in zip(order, one.scores, strict=True):
            values[place], why[place] = score.value, score.reason
        merged = _merged(values, why, item.same)
        scores.append(merged[0])
        reasons.append(merged[1])
    return ScoredItem(
        seed=seed,
        evaluator=evaluator,
        dataset=item.dataset,
        id=item.id,
        subset=item.subset,
        prompt_id=item.prompt_id,
        tiers=item.tiers,
        same=item.same,
        lengths=tuple(len(text.strip()) for text in item.responses),
        orders=tuple(tuple(order) for order in orders),
        scores=tuple(scores),
        reasons=tuple(reasons),
        quality=item.quality,
        flags=item.flags,
        said=tuple(_said(one) for one in found),
        cost=sum((one.cost for one in found), Cost()),
    )


def _merged(
    values: Sequence[float | None], reasons: Sequence[str | None], same: Sequence[int]
) -> tuple[Scores, tuple[str | None, ...]]:
    """Give the copies of a text the mean of their scores; one unscored copy leaves all unscored."""
    merged: dict[int, tuple[float | None, str | None]] = {}
    for first in set(same):
        own = [n for n, other in enumerate(same) if other == first]
        scored = [value for n in own if (value := values[n]) is not None]
        if len(scored) == len(own):
            equal = min(scored) == max(scored)
            merged[first] = (scored[0] if equal else sum(scored) / len(scored)), None
        else:
            merged[first] = None, next(why for n in own if (why := reasons[n]) is not None)
    pairs = [merged[first] for first in same]
    return tuple(value for value, _ in pairs), tuple(why for _, why in pairs)


def _said(one: ScoredSet) -> dict[str, Any]:
    """Return what an evaluator says beside the scores, JSON alone."""
    found: dict[str, Any] = {}
    if one.rubric_text is not None:
        found["rubric"] = one.rubric_text
    if one.judged is not None:
        rubric = one.judged.rubric
        valid = isinstance(rubric, Rubric)
        found["valid"] = valid
        if isinstance(rubric, Rubric):
            found["items"] = [[item.criterion, item.weight] for item in rubric.items]
            found["verdicts"] = [
                [verdict.value for verdict in row] for row in one.judged.verdicts
            ]  # rows in the order that was read
        else:
            found["invalid"] = str(rubric.reason)
    if one.breakdown:
        found["breakdown"] = _finite(dict(one.breakdown))
    return found


def _finite(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return a value with numbers that JSON does not have as their names."""
    if isinstance(value, Mapping):
        return {str(key): _finite(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(own) for own in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _tuples(value: Any) -> Any:  # noqa: ANN401 - nested lists of JSON
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
