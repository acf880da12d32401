"""Counts of a preparation: every row that came in is kept, or removed for one named reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from dynamicrubric.data.rows import AnchorRow
from dynamicrubric.data.splits import Split

MAX_NAMES: Final = 50
"""Sources or licences that are counted by name; a file may give every row one of its own."""
OTHER: Final = "others"
STAGES: Final = ("unreadable", "filtered", "contaminated", "repeated")


@dataclass
class Lengths:
    """Characters of some texts, in a histogram of bounded size: two significant digits.

    Attributes:
        bins: how many texts have each rounded length.
        total: sum of the exact lengths.
        longest: the longest exact length.
    """

    bins: Counter[int] = field(default_factory=Counter)
    total: int = 0
    longest: int = 0

    def add(self, length: int) -> None:
        """Count a text."""
        step = 10 ** max(0, len(str(length)) - 2)
        self.bins[length // step * step] += 1
        self.total += length
        self.longest = max(self.longest, length)

    @property
    def count(self) -> int:
        """How many texts there are."""
        return self.bins.total()

    @property
    def mean(self) -> float:
        """Mean length; 0 without any text."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> int:
        """Return the length that this share of the texts does not exceed, rounded down."""
        left = share * self.count
        for length in sorted(self.bins):
            left -= self.bins[length]
            if left <= 0:
                return length
        return 0


@dataclass
class Longer:
    """How often the longer of two responses is the better one: what every evaluator has to beat.

    Attributes:
        wins: decided pairs in which it is.
        pairs: decided pairs of different length.
    """

    wins: int = 0
    pairs: int = 0

    def add(self, row: AnchorRow) -> None:
        """Count the pairs of a list that its tiers decide."""
        tiers, lengths = row.tier_of, [len(text) for text in row.responses]
        for better, length in enumerate(lengths):
            for worse in range(better + 1, len(lengths)):
                if tiers[better] != tiers[worse] and length != lengths[worse]:
                    self.pairs += 1
                    self.wins += length > lengths[worse]

    @property
    def rate(self) -> float | None:
        """Share of the pairs in which the longer one is better; None without a pair."""
        return self.wins / self.pairs if self.pairs else None


@dataclass
class SplitTally:
    """What one split contains."""

    rows: int = 0
    tied: int = 0  # lists in which some responses tie
    sources: Counter[str] = field(default_factory=Counter)
    licenses: Counter[str] = field(default_factory=Counter)
    turns: Counter[int] = field(default_factory=Counter)
    prompts: Lengths = field(default_factory=Lengths)
    responses: Lengths = field(default_factory=Lengths)
    best: Lengths = field(default_factory=Lengths)
    list_lengths: Counter[int] = field(default_factory=Counter)
    longer: Longer = field(default_factory=Longer)

    def add(self, row: AnchorRow) -> None:
        """Count a kept row."""
        self.rows += 1
        self.tied += len(row.tiers) < len(row.responses)
        _named(self.sources, row.source)
        _named(self.licenses, row.license)
        self.turns[len(row.user_turns)] += 1
        self.list_lengths[len(row.responses)] += 1
        self.prompts.add(len(row.prompt))
        for text in row.responses:
            self.responses.add(len(text))
        for text in row.best:
            self.best.add(len(text))
        self.longer.add(row)


@dataclass
class Tally:
    """All rows of a preparation.

    Attributes:
        read: rows by source as it was named.
        removed: rows by stage (unreadable, filtered, contaminated, repeated) and reason.
        kept: what each split contains.
    """

    read: Counter[str] = field(default_factory=Counter)
    removed: dict[str, Counter[str]] = field(
        default_factory=lambda: {stage: Counter() for stage in STAGES}
    )
    kept: dict[Split, SplitTally] = field(
        default_factory=lambda: {"train": SplitTally(), "heldout": SplitTally()}
    )

    @property
    def num_read(self) -> int:
        """Rows that came in."""
        return self.read.total()

    @property
    def num_removed(self) -> int:
        """Rows that were left out."""
        return sum(reasons.total() for reasons in self.removed.values())

    @property
    def num_kept(self) -> int:
        """Rows of both splits."""
        return sum(split.rows for split in self.kept.values())

    def check(self) -> None:
        """Assert that no row was lost on the way."""
        assert self.num_read == self.num_kept + self.num_removed, (
            f"{self.num_read} rows read, {self.num_kept} kept, {self.num_removed} removed"
        )

    def steps(self) -> list[tuple[str, str, int, int]]:
        """Return stage, reason, rows removed and rows left, in the order they were applied."""
        left, lines = self.num_read, []
        for stage, reasons in self.removed.items():
            for reason, count in sorted(reasons.items()):
                left -= count
                lines.append((stage, reason, count, left))
        return lines


def _named(counts: Counter[str], name: str) -> None:
    counts[name if name in counts or len(counts) < MAX_NAMES else OTHER] += 1
