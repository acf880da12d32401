"""What a language model that verifies is asked: one response, one criterion, yes or no.

The text is `texts/verifier.txt`. Its last place is the criterion's, so that all questions about
one response share everything before it: engines compute that part once (packed verification, or
a server's prefix cache). Contents are put in in one pass: braces inside them are inert.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from importlib import resources
from typing import Final

from dynamicrubric.prompts.chat import ChatFrame, Message

_PLACE: Final = re.compile(r"\{(prompt|response)\}")
_QUESTION: Final = "{criterion}"


def verifier_messages(prompt: str, response: str, criterion: str) -> list[Message]:
    """Return the conversation that asks for one verdict.

    Args:
        prompt: what the response answers; empty if the verifier is not to see it.
        response: the text to judge.
        criterion: the criterion sentence.
    """
    [(role, content)] = verifier_context(prompt, response)
    return [(role, content + verifier_question(criterion))]


def verifier_context(prompt: str, response: str) -> list[Message]:
    """Return the conversation up to where the criterion is put, common to all criteria."""
    values = {"prompt": prompt, "response": response}
    context = _template(bool(prompt)).split(_QUESTION)[0]
    return [("user", _PLACE.sub(lambda place: values[place[1]], context))]


def verifier_question(criterion: str) -> str:
    """Return what goes on from `verifier_context`: a colon, so that no token crosses the cut."""
    return ": " + criterion + _template(True).split(_QUESTION)[1]


def context_ids(frame: ChatFrame, prompt: str, response: str) -> list[int]:
    """Return the ids that the questions about a response begin with."""
    return frame.split(verifier_context(prompt, response), "")[0]


def question_ids(frame: ChatFrame, criterion: str) -> list[int]:
    """Return the ids that follow: the criterion, and the frame that asks for the answer."""
    return frame.split([("user", "")], verifier_question(criterion))[1]


def verifier_ids(
    frame: ChatFrame, prompt: str, response: str, criterion: str
) -> tuple[list[int], list[int]]:
    """Return both: the prompt of one verdict, cut where the criterion begins."""
    return context_ids(frame, prompt, response), question_ids(frame, criterion)


def verifier_prompt_hash() -> str:
    """Short hash of the text, for the identity of whatever rests on verdicts."""
    return hashlib.sha256(_template(True).encode()).hexdigest()[:16]


@lru_cache(maxsize=2)
def _template(with_prompt: bool) -> str:
    text = (
        resources.files("dynamicrubric.prompts").joinpath("texts/verifier.txt").read_text("utf-8")
    )
    paragraphs = text.rstrip("\n").split("\n\n")
    return "\n\n".join(p for p in paragraphs if with_prompt or "{prompt}" not in p)
