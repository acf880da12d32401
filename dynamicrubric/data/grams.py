"""Word n-grams by hash, and an index of them that says how much of a document a text repeats.

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
        of_document: share of the document's words that are in a gram that the text has too.
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
    """The grams of some documents, in memory."""

    def __init__(self, documents: Sequence[Sequence[str]], n: int) -> None:
        self.n = n
        self._lengths = [len(words) for words in documents]
        hashes = [gram_hashes(words, n) for words in documents]
        counts = [array.size for array in hashes]
        joined = np.concatenate(hashes) if hashes else np.empty(0, dtype=np.uint64)
        order = np.argsort(joined, kind="stable")
        owners = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        places = np.concatenate([np.arange(c, dtype=np.int32) for c in counts] or [np.empty(0)])
        self._hashes = joined[order]
        self._owners = owners[order]
        self._places = places[order].astype(np.int32)

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
                _covered(places[owners == owner], self.n) / self._lengths[owner],
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


def _covered(starts: Ints, n: int) -> int:
    """Return how many words are in a gram that starts at one of these places."""
    places = np.unique(starts)
    return int(np.minimum(np.diff(places), n).sum()) + n
