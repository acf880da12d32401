"""What an instruction-tuned policy and generator are asked, as conversations.

The texts are in `texts/`; contents are put in in one pass, so that braces inside them are inert.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Final

from dynamicrubric.prompts.chat import Message

_PLACE: Final = re.compile(r"\{(prompt|responses)\}")


def policy_messages(prompt: str) -> list[Message]:
    """Return the conversation that asks for a response: the prompt, and nothing of ours."""
    return [("user", prompt)]


def generator_messages(prompt: str, responses: Sequence[str]) -> list[Message]:
    """Return the conversation that asks for a rubric.

    Args:
        prompt: x.
        responses: the response set C, or nothing for a static evaluator, which reads x alone.
    """
    values = {"prompt": prompt, "responses": _numbered(responses)}
    text = _template("generator" if responses else "generator_alone")
    return [("user", _PLACE.sub(lambda place: values[place[1]], text))]


def reward_set_messages(prompt: str, responses: Sequence[str]) -> list[Message]:
    """Return the conversation whose answer a reward model reads that sees the response set."""
    values = {"prompt": prompt, "responses": _numbered(responses)}
    return [("user", _PLACE.sub(lambda place: values[place[1]], _template("reward_set")))]


def prompt_texts_hash() -> str:
    """Return a short hash of every text that a language model is asked with: part of a study."""
    texts = [_template(name) for name in ("generator", "generator_alone", "verifier")]
    return hashlib.sha256("\n---\n".join(texts).encode("utf-8")).hexdigest()[:16]


def reward_set_text_hash() -> str:
    """Return a short hash of the text that shows a reward model its set: part of its arm."""
    return hashlib.sha256(_template("reward_set").encode("utf-8")).hexdigest()[:16]


def _numbered(responses: Sequence[str]) -> str:
    return "\n\n".join(f"Response {n}:\n{text}" for n, text in enumerate(responses, start=1))


@cache
def _template(name: str) -> str:
    file = resources.files("dynamicrubric.prompts").joinpath(f"texts/{name}.txt")
    return file.read_text("utf-8").rstrip("\n")
