"""From requests to the questions that a model is asked, and back to verdicts in their order.

Requests about the same response (the rubrics of one response set) share a group, and a criterion
that several of them have is asked once. What does not fit into the context is kept out by its
length in tokens (case 14), and never cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynamicrubric.engines.base import JudgeRequest
from dynamicrubric.engines.packing import Group, Key
from dynamicrubric.prompts.chat import ChatFrame
from dynamicrubric.prompts.verifier import context_ids, question_ids
from dynamicrubric.types import Verdict
from dynamicrubric.verdicts import UnscoredReason

_About = tuple[str, str]


@dataclass(frozen=True)
class Questions:
    """What to ask, and which question answers which criterion of which request.

    Attributes:
        groups: the questions by response; at least one in each.
        places: for each request, the question of each criterion; None where it is too long.
    """

    groups: tuple[Group, ...]
    places: tuple[tuple[Key | None, ...], ...]

    def join(self, answers: Mapping[Key, Verdict]) -> list[list[Verdict]]:
        """Return the verdicts of each request in order.

        Raises:
            KeyError: a question has no answer.
        """
        too_long = Verdict.unscored(UnscoredReason.TOO_LONG)
        return [
            [too_long if place is None else answers[place] for place in row] for row in self.places
        ]


def render_questions(
    requests: Sequence[JudgeRequest], frame: ChatFrame, max_tokens: int
) -> Questions:
    """Render what requests ask.

    Args:
        requests: what to judge.
        frame: the verifier's chat frame.
        max_tokens: longest prompt that the verifier reads.
    """
    criteria: dict[_About, dict[str, None]] = {}
    for request in requests:
        wanted = criteria.setdefault((request.prompt, request.response), {})
        wanted.update(dict.fromkeys(request.criteria))
    rendered = {c: question_ids(frame, c) for wanted in criteria.values() for c in wanted}
    groups: list[Group] = []
    places: dict[tuple[_About, str], Key] = {}
    for about, wanted in criteria.items():
        prefix = context_ids(frame, *about)
        fitting = [c for c in wanted if len(prefix) + len(rendered[c]) <= max_tokens]
        places |= {(about, c): (len(groups), number) for number, c in enumerate(fitting)}
        if fitting:
            groups.append(Group(prefix, [rendered[c] for c in fitting]))
    rows = [
        tuple(places.get(((request.prompt, request.response), c)) for c in request.criteria)
        for request in requests
    ]
    return Questions(tuple(groups), tuple(rows))
