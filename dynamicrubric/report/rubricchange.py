"""How an arm's rubrics change over rounds: which criteria, how varied, how many decide nothing.

An item that every response of its set meets, or none, tells no two of them apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dynamicrubric.report.celltables import CellTables

NUM_FREQUENT: Final = 5


@dataclass(frozen=True)
class RubricUse:
    """Rubrics of one cell, or of several put together.

    Attributes:
        rubrics: valid rubrics.
        sets: rubrics that were written, one a response set.
        criteria: in how many valid rubrics each criterion stands.
        all_meet: items that every response of their set meets.
        none_meet: items that none meets.
        judged: items whose verdicts are all there: of these the two are counted.
        items: items of the valid rubrics.
    """

    rubrics: int = 0
    sets: int = 0
    criteria: Mapping[str, int] = field(default_factory=dict)
    all_meet: int = 0
    none_meet: int = 0
    judged: int = 0
    items: int = 0

    @property
    def entropy(self) -> float | None:
        """Shannon entropy, in bits, of the criterion of a randomly drawn item; None without any.

        >>> RubricUse(criteria={"greets": 2, "thanks": 2}).entropy
        1.0
        """
        total = sum(self.criteria.values())
        if not total:
            return None
        shares = [count / total for count in self.criteria.values()]
        return max(0.0, -sum(share * math.log2(share) for share in shares))

    @property
    def all_meet_share(self) -> float | None:
        """Share of judged items that all responses meet."""
        return self.all_meet / self.judged if self.judged else None

    @property
    def none_meet_share(self) -> float | None:
        """Share of judged items that no response meets."""
        return self.none_meet / self.judged if self.judged else None

    def frequent(self, number: int = NUM_FREQUENT) -> list[tuple[str, int]]:
        """Return the most frequent criteria and in how many rubrics each stands."""
        return sorted(self.criteria.items(), key=lambda entry: (-entry[1], entry[0]))[:number]


def rubric_use(tables: CellTables) -> RubricUse:
    """Count a cell's criteria and the items that decide nothing."""
    texts: dict[tuple[str, int], str] = {}
    said: dict[tuple[str, int], Counter[str]] = {}
    columns = ("rubric_id", "item_index", "criterion", "verdict")
    for rubric_id, index, criterion, verdict in zip(
        *(tables.verdicts[name].tolist() for name in columns), strict=True
    ):
        texts[(rubric_id, index)] = str(criterion)
        said.setdefault((rubric_id, index), Counter())[str(verdict)] += 1
    judged = [counts for counts in said.values() if not counts["unscored"]]
    criteria = Counter(texts.values())
    found = RubricUse(
        rubrics=sum(tables.is_valid),
        sets=tables.num_written,
        criteria=dict(criteria),
        all_meet=sum(not counts["no"] for counts in judged),
        none_meet=sum(not counts["yes"] for counts in judged),
        judged=len(judged),
        items=len(said),
    )
    assert found.all_meet + found.none_meet <= found.judged <= found.items
    assert sum(criteria.values()) == found.items
    return found


def together(uses: Sequence[RubricUse]) -> RubricUse:
    """Put the rubrics of several seeds together."""
    criteria: Counter[str] = Counter()
    for use in uses:
        criteria.update(use.criteria)
    return RubricUse(
        rubrics=sum(use.rubrics for use in uses),
        sets=sum(use.sets for use in uses),
        criteria=dict(criteria),
        all_meet=sum(use.all_meet for use in uses),
        none_meet=sum(use.none_meet for use in uses),
        judged=sum(use.judged for use in uses),
        items=sum(use.items for use in uses),
    )
