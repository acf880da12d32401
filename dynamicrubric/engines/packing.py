"""Which tokens of which questions run together: layouts alone, no model.

All questions about one response begin with the same tokens. A packed pass is one row of tokens in
which this prefix stands once, with the questions behind it:

    prefix of A | question A1 | question A2 | prefix of B | question B1 | ...

Questions that begin alike ("The response ...") share their beginning in turn: it stands once, where
the first of them has it. So the tokens behind a prefix are a tree, and a token may look at what
leads to it, its own prompt up to itself (`Layout.allows`), and has the position that it has there.
Each question reads what it would read alone, and a verdict is read at its last token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

LEAST_ROOM: Final = 8
"""A pass has room for questions of this part of the budget, whatever its prefix takes: behind one
that fills the budget each question would otherwise have a pass, and read the prefix again."""
Key = tuple[int, int]
"""Which group, and which of its questions."""


@dataclass(frozen=True)
class Group:
    """The questions about one response.

    Attributes:
        prefix: ids that all of them begin with; at least one.
        questions: what follows in each; at least one id each.
    """

    prefix: Sequence[int]
    questions: Sequence[Sequence[int]]


@dataclass(frozen=True)
class Block:
    """One prefix within a row, and the questions that stand behind it.

    Attributes:
        start: place of the prefix's first token in the row.
        prefix: its length.
        end: place behind the block's last token.
        paths: places of each question's tokens. Its new ones stand behind all that earlier
            questions have, in order.
        keys: which question each is.
    """

    start: int
    prefix: int
    end: int
    paths: tuple[tuple[int, ...], ...]
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class Layout:
    """One packed pass of L tokens.

    Attributes:
        ids: token ids, shape (L,).
        positions: position of each token in its own prompt, shape (L,).
        parents: for each token the place of the one before it in its own prompt, -1 for the first.
        blocks: what stands where.
    """

    ids: tuple[int, ...]
    positions: tuple[int, ...]
    parents: tuple[int, ...]
    blocks: tuple[Block, ...]

    @cached_property
    def reads(self) -> tuple[tuple[Key, int], ...]:
        """Each question with the place at which its verdict is read."""
        return tuple(
            (key, path[-1])
            for block in self.blocks
            for key, path in zip(block.keys, block.paths, strict=True)
        )

    def allows(self, reader: int, read: int, window: int | None = None) -> bool:
        """Whether the token at place `reader` may look at the one at place `read`.

        Args:
            reader: place of the token that looks.
            read: place of the token that is looked at.
            window: how many positions back a layer with sliding attention sees, itself counted.
        """
        if window is not None and self.positions[reader] - self.positions[read] >= window:
            return False
        place = reader
        while place > read:
            place = self.parents[place]
        return place == read


@dataclass(frozen=True)
class Batch:
    """Questions that run as rows of their own, prefix and all.

    Attributes:
        keys: which question each row is.
        rows: ids of each row.
    """

    keys: tuple[Key, ...]
    rows: tuple[tuple[int, ...], ...]

    @property
    def num_tokens(self) -> int:
        """Tokens that run, padding included."""
        return len(self.rows) * max(map(len, self.rows))


def token_bound(groups: Sequence[Group]) -> int:
    """Tokens of each prefix once and each question once; fewer run where questions begin alike."""
    return sum(len(group.prefix) + sum(map(len, group.questions)) for group in groups)


def plan_layouts(groups: Sequence[Group], *, budget: int, fill: int) -> list[Layout]:
    """Return the passes that answer every question of every group once, longest first.

    Longest first, so that a pass that does not fit into memory shows at once.

    Args:
        groups: the questions by response.
        budget: most tokens of one pass. A group beyond it is spread evenly over several, with its
            prefix in each. A prefix that leaves less than 1 / `LEAST_ROOM` of it to questions gets
            so much beside it, and a single question beyond that is a pass of its own.
        fill: a pass that has this many tokens takes no further group.

    For both, questions count as if no two began alike.
    """
    parts = [part for place, group in enumerate(groups) for part in _parts(place, group, budget)]
    parts.sort(key=lambda part: _size(groups, part), reverse=True)
    passes: list[list[list[Key]]] = []
    sizes: list[int] = []
    for part in parts:
        size = _size(groups, part)
        if passes and sizes[-1] < fill and sizes[-1] + size <= budget:
            passes[-1].append(part)
            sizes[-1] += size
        else:
            passes.append([part])
            sizes.append(size)
    return [_layout(groups, one) for one in passes]


def plan_batches(groups: Sequence[Group], *, budget: int) -> list[Batch]:
    """Return the batches that answer every question in a row of its own, longest first.

    Args:
        groups: the questions by response.
        budget: most tokens of one batch, padding included; a batch has one row at least.
    """
    rows = {
        (place, number): (*group.prefix, *question)
        for place, group in enumerate(groups)
        for number, question in enumerate(group.questions)
    }
    batches: list[list[Key]] = []
    for key in sorted(rows, key=lambda key: len(rows[key]), reverse=True):
        if not batches or (len(batches[-1]) + 1) * len(rows[batches[-1][0]]) > budget:
            batches.append([])
        batches[-1].append(key)
    return [Batch(tuple(keys), tuple(rows[key] for key in keys)) for keys in batches]


def room_behind(prefix: int, budget: int) -> int:
    """Return how many tokens of questions a pass takes behind a prefix.

    >>> room_behind(300, 8192), room_behind(16_000, 8192)
    (7892, 1024)
    """
    return max(budget - prefix, budget // LEAST_ROOM, 1)


def _parts(place: int, group: Group, budget: int) -> Iterator[list[Key]]:
    """Cut a group's questions into as few runs as fit behind its prefix, of about equal tokens."""
    lengths = [len(question) for question in group.questions]
    room = room_behind(len(group.prefix), budget)
    num_parts = -(-sum(lengths) // room)
    share = -(-sum(lengths) // max(num_parts, 1))
    part: list[Key] = []
    used = 0
    for number, length in enumerate(lengths):
        if part and (used + length > room or used >= share):
            yield part
            part, used = [], 0
        part.append((place, number))
        used += length
    if part:
        yield part


def _size(groups: Sequence[Group], part: Sequence[Key]) -> int:
    group = groups[part[0][0]]
    return len(group.prefix) + sum(len(group.questions[number]) for _, number in part)


def _layout(groups: Sequence[Group], parts: Sequence[Sequence[Key]]) -> Layout:
    ids: list[int] = []
    positions: list[int] = []
    parents: list[int] = []

    def add(token: int, position: int, parent: int) -> int:
        ids.append(token)
        positions.append(position)
        parents.append(parent)
        return len(ids) - 1

    blocks: list[Block] = []
    for keys in parts:
        group = groups[keys[0][0]]
        start, place = len(ids), -1
        for position, token in enumerate(group.prefix):
            place = add(token, position, place)
        known: dict[tuple[int, int], int] = {}
        paths = [[place] for _ in keys]
        for path, (_, question) in zip(paths, keys, strict=True):
            for token in group.questions[question]:
                step = (path[-1], token)
                if step not in known:
                    known[step] = add(token, positions[path[-1]] + 1, path[-1])
                path.append(known[step])
        tails = tuple(tuple(path[1:]) for path in paths)
        blocks.append(Block(start, len(group.prefix), len(ids), tails, tuple(keys)))
    return Layout(tuple(ids), tuple(positions), tuple(parents), tuple(blocks))
