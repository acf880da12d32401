"""Word n-grams by hash, and an index of them that says how much of a document a text repeats.

A gram that is in many documents is a phrase ("explain your reasoning step by step", the words of a
refusal), so it is no evidence that a text is one of them: the index leaves it out.

A gram is 16 bytes here (hash, document, position), so that a benchmark of a million words takes 16
MB. Hashes have 64 bits: of a billion lookups in a million grams, none is expected to err twice at
one place, and a chance hit is one gram, far below any threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplication by it loses no bit
Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shared:
    """What a text and one document of an index have in common.

    Attributes:
        document: its place in the index.
        of_document: of the document's words in grams that are no phrases, the share that is in a
            gram that the text has too.
        of_text: share of the text's words that are in a gram of the document.
    """

    document: int
    of_document: float
    of_text: float


@lru_cache(maxsize=1 << 16)
def _word_hash(word: str) -> int:
    digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def gram_hashes(words: Sequence[str], n: int) -> Hashes:
    """Return the hash of each run of n words, shape (max(0, len(words) - n + 1),)."""
    if len(words) < n:
        return np.empty(0, dtype=np.uint64)
    hashes = np.fromiter(map(_word_hash, words), dtype=np.uint64, count=len(words))
    total = hashes[: len(words) - n + 1].copy()
    for k in range(1, n):  # wraps at 2^64, as a hash may
        total = total * _FACTOR + hashes[k : len(words) - n + 1 + k]
    return total


class GramIndex:
    """The grams of some documents, in memory.

    Args:
        documents: words of each.
        groups: documents of one group may share what they like: a gram is a phrase if more groups
            than `max_groups` have it.
        n: words of a gram.
        max_groups: as said.
    """

    def __init__(
        self,
        documents: Sequence[Sequence[str]],
        groups: Sequence[int],
        n: int,
        max_groups: int,
    ) -> None:
        self.n = n
        hashes = [gram_hashes(words, n) for words in documents]
        counts = np.array([array.size for array in hashes], dtype=np.int64)
        joined = np.concatenate(hashes) if hashes else np.empty(0, dtype=np.uint64)
        owners = np.repeat(np.arange(counts.size, dtype=np.int32), counts)
        places = np.concatenate(
            [np.arange(count, dtype=np.int32) for count in counts] or [np.empty(0, dtype=np.int32)]
        )
        group_of = np.asarray(groups, dtype=np.int64)[owners]
        order = np.lexsort((owners, group_of, joined))
        joined, owners, places = joined[order], owners[order], places[order]
        rare = _num_groups(joined, group_of[order]) <= max_groups
        self._hashes, self._owners, self._places = joined[rare], owners[rare], places[rare]
        self._informative = _covered_by_owner(self._owners, self._places, n, counts.size)

    def shared(self, words: Sequence[str]) -> list[Shared]:
        """Return the documents that have a gram of a text, in the index's order."""
        grams = gram_hashes(words, self.n)
        low = np.searchsorted(self._hashes, grams, side="left")
        counts = np.searchsorted(self._hashes, grams, side="right") - low
        if not counts.any():
            return []
        hits = np.repeat(low - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        owners, places = self._owners[hits], self._places[hits].astype(np.int64)
        here = np.repeat(np.arange(grams.size, dtype=np.int64), counts)
        return [
            Shared(
                int(owner),
                _covered(places[owners == owner], self.n) / self._informative[owner],
                _covered(here[owners == owner], self.n) / len(words),
            )
            for owner in np.unique(owners)
        ]


def repeated_share(words: Sequence[str], n: int) -> float:
    """Return the share of a text's n-grams that are repetitions of an earlier one; 0 without any.

    >>> repeated_share("a b a b a b".split(), 2)
    0.6
    """
    grams = gram_hashes(words, n)
    return 1.0 - np.unique(grams).size / grams.size if grams.size else 0.0


def _num_groups(hashes: Hashes, groups: Ints) -> Ints:
    """Return for each gram how many groups have it; both are sorted by hash, then by group."""
    if not hashes.size:
        return np.empty(0, dtype=np.int64)
    new_hash = np.r_[True, hashes[1:] != hashes[:-1]]
    new_pair = new_hash | np.r_[True, groups[1:] != groups[:-1]]
    which = np.cumsum(new_hash) - 1
    counts: Ints = np.bincount(which, weights=new_pair).astype(np.int64)[which]
    return counts


def _covered_by_owner(
    owners: NDArray[np.int32], places: NDArray[np.int32], n: int, count: int
) -> Ints:
    """Return for each document how many of its words are in one of its grams, shape (count,)."""
    order = np.lexsort((places, owners))
    owners, places = owners[order].astype(np.int64), places[order].astype(np.int64)
    same = np.r_[owners[1:] == owners[:-1], np.zeros(min(1, owners.size), dtype=np.bool_)]
    step = np.r_[np.diff(places), np.zeros(min(1, owners.size), dtype=np.int64)]
    added = np.where(same, np.minimum(step, n), n)  # up to the next gram, or the whole last one
    return np.bincount(owners, weights=added, minlength=count).astype(np.int64)


def _covered(starts: Ints, n: int) -> int:
    """Return how many words are in a gram that starts at one of these places."""
    places = np.unique(starts)
    return int(np.minimum(np.diff(places), n).sum()) + n
