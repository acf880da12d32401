"""What a language model that verifies is asked: one response, one criterion, yes or no.

The conversation is `texts/verifier.txt`. Two questions with their answers come first: without them
SmolLM2 begins its answer with yes or no less than a quarter of the time. The criterion comes last,
so all questions about one response share everything before it, and engines compute that part once
(packed verification, or a server's prefix cache). Contents are put in in one pass: braces and
headings inside them are inert.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from typing import Final

from dynamicrubric.prompts.chat import ChatFrame, Message

_TURN: Final = re.compile(r"^\[(user|assistant)\]\n", re.MULTILINE)
_PLACE: Final = re.compile(r"\{(prompt|response)\}")


def verifier_messages(prompt: str, response: str, criterion: str) -> list[Message]:
    """Return the conversation that asks for one verdict.

    Args:
        prompt: what the response answers; empty if the verifier is not to see it.
        response: the text to judge.
        criterion: the criterion sentence.
    """
    *before, (role, content) = verifier_context(prompt, response)
    return [*before, (role, content + verifier_question(criterion))]


def verifier_context(prompt: str, response: str) -> list[Message]:
    """Return the conversation up to where the criterion is put, common to all criteria."""
    values = {"prompt": prompt, "response": response}
    return [
        (role, _PLACE.sub(lambda place: values[place[1]], content))
        for role, content in _turns(bool(prompt))
    ]


def verifier_question(criterion: str) -> str:
    """Return what goes on from `verifier_context`: a colon, so that no token crosses the cut."""
    return f": {criterion}"


def context_ids(frame: ChatFrame, prompt: str, response: str) -> list[int]:
    """Return the ids that the questions about a response begin with."""
    return frame.split(verifier_context(prompt, response), "")[0]


def question_ids(frame: ChatFrame, criterion: str) -> list[int]:
    """Return the ids that follow: the criterion, and the frame that asks for the answer."""
    return frame.split(verifier_context("", ""), verifier_question(criterion))[1]


def verifier_ids(
    frame: ChatFrame, prompt: str, response: str, criterion: str
) -> tuple[list[int], list[int]]:
    """Return both: the prompt of one verdict, cut where the criterion begins."""
    return context_ids(frame, prompt, response), question_ids(frame, criterion)


@lru_cache(maxsize=1)
def _text() -> str:
    file = resources.files("dynamicrubric.prompts").joinpath("texts/verifier.txt")
    return file.read_text("utf-8")


@lru_cache(maxsize=2)
def _turns(with_prompt: bool) -> tuple[Message, ...]:
    _, *parts = _TURN.split(_text())
    contents = (
        [p for p in part.strip().split("\n\n") if with_prompt or "{prompt}" not in p]
        for part in parts[1::2]
    )
    return tuple(zip(parts[::2], map("\n\n".join, contents), strict=True))
