"""Thinking blocks: what a model writes for itself before it answers is not its answer.

One place for all engines. A block counts only where an answer begins; the same marks further on are
the answer's own text. A block that never closes means that the tokens ran out: there is no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from dynamicrubric.engines.base import Generation

BLOCKS: Final = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]"))
MARKS: Final = frozenset(mark for block in BLOCKS for mark in block)
_TAIL_TOKENS: Final = 8


def opens_thinking(prompt_ids: Sequence[int], text_of: Callable[[int], str]) -> bool:
    """Say whether a prompt ends inside a block, as some chat templates have it."""
    tail = "".join(map(text_of, prompt_ids[-_TAIL_TOKENS:])).rstrip()
    return tail.endswith(tuple(opening for opening, _ in BLOCKS))


def answer_of(text: str, *, opened: bool = False) -> str | None:
    """Return what follows the thinking, or None if that never ends.

    Args:
        text: all that a model wrote.
        opened: the prompt ended inside a block, as some chat templates have it, so the text begins
            inside one.

    >>> answer_of("<think>yes or no?</think> no")
    'no'
    >>> answer_of("yes"), answer_of("<think>yes or no?"), answer_of("maybe</think>yes", opened=True)
    ('yes', None, 'yes')
    """
    if opened:
        closings = [(text.find(close), close) for _, close in BLOCKS if close in text]
        if not closings:
            return None
        place, close = min(closings)
        return answer_of(text[place + len(close) :].lstrip())
    for opening, close in BLOCKS:
        if text.lstrip().startswith(opening):
            _, found, rest = text.partition(close)
            return answer_of(rest.lstrip()) if found else None
    return text


def answer_slot(tokens: Sequence[str], *, opened: bool = False) -> int | None:
    """Return the place of the token that begins the answer, or None if there is none.

    Without thinking that is the first token, whatever it is, as for engines that look at the first
    alone; behind a block it is the first one that is not blank.

    Args:
        tokens: text of each token that a model wrote.
        opened: as for `answer_of`.
    """
    text = "".join(tokens)
    answer = answer_of(text, opened=opened)
    if not answer:
        return None
    start = len(text) - len(answer)
    return next(i for i, end in enumerate(accumulate(map(len, tokens))) if end > start)


def without_thinking(generation: Generation, *, opened: bool = False) -> Generation:
    """Return a generation whose text is its answer; its tokens stay all that was sampled.

    Thinking that never ends leaves an empty text that counts as truncated.
    """
    answer = answer_of(generation.text, opened=opened)
    if answer is None:
        return replace(generation, text="", finish_reason="length")
    return generation if answer == generation.text else replace(generation, text=answer)
