"""A judge compares two rubrics in six dimensions, each pair in both orders.

The judge is a verifier: it answers yes or no to "rubric A ... than rubric B", so that every engine
that gives verdicts can judge, all dimensions in one call. Yes to the one order and no to the other
is a win; twice the same answer is a judge that looks at places: inconsistent, half a win each. Two
rubrics that are one and the same tie without a call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Final

from dynamicrubric.benchmarks.outcomes import Outcome
from dynamicrubric.benchmarks.schema import BenchItem, place
from dynamicrubric.engines.base import JudgeRequest, Verifier
from dynamicrubric.seeds import derive_seed
from dynamicrubric.types import Verdict

Rubric = Sequence[tuple[str, int]]
_PLACE: Final = re.compile(r"\{(responses|first|second)\}")


@cache
def dimensions() -> dict[str, str]:
    """Return the sentence that a judge affirms or denies, by dimension."""
    lines = _text("rubric_dimensions").splitlines()
    return dict(line.split(": ", 1) for line in lines if line)


def judge_pairs(
    verifier: Verifier,
    pairs: Sequence[tuple[BenchItem, Rubric, Rubric]],
    seed: int,
) -> list[dict[str, Outcome]]:
    """Return who wins each pair of rubrics in each dimension, the first rubric's view.

    Args:
        verifier: the judge.
        pairs: an item and its two rubrics.
        seed: of the responses' placement, and of what is random in the judge.
    """
    requests = [
        JudgeRequest(
            judged_text(item, seed, *rubrics),
            tuple(dimensions().values()),
            derive_seed(seed, "rubric_judge", item.dataset, item.id, order),
            item.prompt,
        )
        for item, first, second in pairs
        if not _are_one(first, second)
        for order, rubrics in enumerate(((first, second), (second, first)))
    ]
    verdicts = verifier.judge(requests) if requests else []
    assert len(verdicts) == len(requests), "the judge lost a pair"
    answers = iter(zip(verdicts[::2], verdicts[1::2], strict=True))
    found: list[dict[str, Outcome]] = []
    for _, first, second in pairs:
        if _are_one(first, second):
            found.append(dict.fromkeys(dimensions(), "tie"))
            continue
        named = zip(dimensions(), *next(answers), strict=True)
        found.append({name: outcome_of(one, other) for name, one, other in named})
    return found


def _are_one(first: Rubric, second: Rubric) -> bool:
    return list(map(tuple, first)) == list(map(tuple, second))


def outcome_of(as_first: Verdict, as_second: Verdict) -> Outcome:
    """Return what two verdicts say together: "A is better" with a rubric as A, and as B.

    >>> outcome_of(Verdict.yes(), Verdict.no()), outcome_of(Verdict.yes(), Verdict.yes())
    ('win', 'inconsistent')
    """
    if not (as_first.is_scored and as_second.is_scored):
        return "unscored"
    if as_first.value == as_second.value:
        return "inconsistent"
    return "win" if as_first.value == "yes" else "loss"


def judged_text(item: BenchItem, seed: int, first: Rubric, second: Rubric) -> str:
    """Return what the judge reads in place of a response; contents are inert."""
    order = place(item.id, len(item.responses), seed)
    shown = [f"Response {n}:\n{item.responses[p]}" for n, p in enumerate(order, start=1)]
    values = {
        "responses": "\n\n".join(shown),
        "first": _listed(first),
        "second": _listed(second),
    }
    return _PLACE.sub(lambda found: values[found[1]], _text("rubric_judge"))


def _listed(rubric: Rubric) -> str:
    return "\n".join(f"- {criterion} (weight {weight})" for criterion, weight in rubric)


@cache
def _text(name: str) -> str:
    file = resources.files("dynamicrubric.prompts").joinpath(f"texts/{name}.txt")
    return file.read_text("utf-8").rstrip("\n")
