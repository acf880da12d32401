"""What a language model that rates or compares is asked: one conversation of one turn each.

The texts are in `texts/`; contents are put in in one pass, so that braces and headings inside them
are inert. They are conversations, so control tokens that a content spells stay text
(`prompts.chat`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Final

from dynamicrubric.prompts.chat import Message
from dynamicrubric.types import Item

Conversation = tuple[Message, ...]
_PLACE: Final = re.compile(r"\{(prompt|response|criteria|skill|first|second)\}")
JUDGE_TEXTS: Final = ("geval", "flask_need", "flask", "implicit", "pairwise")


def geval_messages(prompt: str, response: str) -> Conversation:
    """Ask for G-Eval's rating, 1 to 5."""
    return _ask("geval", prompt=prompt, response=response)


def skill_need_messages(prompt: str, skill: str) -> Conversation:
    """Ask how much a prompt takes a skill, 1 to 5."""
    return _ask("flask_need", prompt=prompt, skill=skill)


def skill_messages(prompt: str, response: str, skill: str) -> Conversation:
    """Ask how well a response shows a skill, 1 to 5."""
    return _ask("flask", prompt=prompt, response=response, skill=skill)


def implicit_messages(prompt: str, response: str, items: Sequence[Item]) -> Conversation:
    """Ask for a rating by a whole rubric, 1 to 10."""
    criteria = "\n".join(f"- ({item.weight}) {item.criterion}" for item in items)
    return _ask("implicit", prompt=prompt, response=response, criteria=criteria)


def pairwise_messages(prompt: str, first: str, second: str) -> Conversation:
    """Ask which of two responses is better, A or B."""
    return _ask("pairwise", prompt=prompt, first=first, second=second)


def judge_texts_hash() -> str:
    """Return a short hash of every text here: part of the identity of an arm that is judged so."""
    texts = "\n---\n".join(_template(name) for name in JUDGE_TEXTS)
    return hashlib.sha256(texts.encode("utf-8")).hexdigest()[:16]


def _ask(text: str, **values: str) -> Conversation:
    return (("user", _PLACE.sub(lambda place: values[place[1]], _template(text))),)


@cache
def _template(name: str) -> str:
    file = resources.files("dynamicrubric.prompts").joinpath(f"texts/{name}.txt")
    return file.read_text("utf-8").rstrip("\n")
