"""The score contract: what every door says of one response set, as JSON.

Keys are only ever added. A place without a score has null in `scores` and its reason, a short name
that can be counted, in `reasons`: no number ever stands for "unscored".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from dynamicrubric.evaluators.base import ScoredSet
from dynamicrubric.evaluators.judging import ResponseSet, text_hash
from dynamicrubric.seeds import derive_seed
from dynamicrubric.types import InvalidRubric, Rubric, Verdict, mean_of

ONE_RESPONSE: Final = "one_response"
"""Note: nothing to compare it with; a score of its own all the same."""
IDENTICAL: Final = "identical_responses"
EMPTY: Final = "empty_response"


class Document(BaseModel):
    """A part of the contract."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ItemDocument(Document):
    """One criterion with its weight."""

    criterion: str
    weight: int


class InvalidDocument(Document):
    """Why the generator's text is no rubric."""

    reason: str
    detail: str


class VerdictDocument(Document):
    """One criterion for one response."""

    value: Literal["yes", "no", "unscored"]
    reason: str | None = None
    """Why it is unscored."""
    p_yes: float | None = None
    """P(yes) where the verifier gives probabilities."""


class MeanDocument(Document):
    """Mean of the scores that there are, and what it rests on."""

    value: float | None
    n_scored: int
    n_total: int
    reasons: dict[str, int]


class CostDocument(Document):
    """What scoring took."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    verdicts: int


class ScoreDocument(Document):
    """What an evaluator says of one response set."""

    id: str | None = None
    """As it came."""
    evaluator: str
    """Its name."""
    scores: list[float | None]
    """One for each response, in order, in [0, 1]; null where there is none."""
    reasons: list[str | None]
    """Why there is none; null where there is one."""
    mean: MeanDocument
    rubric: list[ItemDocument] | None = None
    """Of an evaluator that has one, and if it is valid."""
    invalid_rubric: InvalidDocument | None = None
    verdicts: list[list[VerdictDocument]] | None = None
    """For each response one for each item of the rubric."""
    rubric_text: str | None = None
    """The generator's text as it came, valid or not; half of a surrogate pair as its escape."""
    breakdown: dict[str, Any] = Field(default_factory=dict)
    """What else the evaluator says."""
    cost: CostDocument
    notes: list[str] = Field(default_factory=list)
    """What is odd about the set, such as `identical_responses: 0 = 2`."""


def document_of(
    responses: ResponseSet,
    scored: ScoredSet,
    evaluator: str,
    *,
    name: str | None = None,
    notes: Sequence[str] = (),
) -> ScoreDocument:
    """Return what is said of a set.

    Args:
        responses: the set.
        scored: what the evaluator made of it.
        evaluator: its name.
        name: the set's id, as it came.
        notes: what is odd beside what is seen here.
    """
    assert len(scored.scores) == len(responses.responses), "one score for each response"
    judged = scored.judged
    rubric = judged.rubric if judged else None
    return ScoreDocument(
        id=name,
        evaluator=evaluator,
        scores=[score.value for score in scored.scores],
        reasons=[score.reason for score in scored.scores],
        mean=MeanDocument(**asdict(mean_of(scored.scores))),
        rubric=_items(rubric) if isinstance(rubric, Rubric) else None,
        invalid_rubric=InvalidDocument(reason=str(rubric.reason), detail=rubric.detail)
        if isinstance(rubric, InvalidRubric)
        else None,
        verdicts=[[_verdict(one) for one in row] for row in judged.verdicts]
        if judged and judged.verdicts
        else None,
        rubric_text=_writable(scored.rubric_text),
        breakdown=_writable(dict(scored.breakdown)),
        cost=CostDocument(**asdict(scored.cost)),
        notes=[*notes, *notes_of(responses)],
    )


def set_of(
    prompt: str,
    responses: Sequence[str | None],
    *,
    prompt_id: str | None = None,
    failures: Sequence[str | None] = (),
) -> ResponseSet:
    """Return a response set of texts; None is a response that there is not.

    A prompt is known by its text where nobody names it, so that an evaluator that keeps a rubric
    for each prompt finds it again.
    """
    reasons = [
        reason or ("no_text" if text is None else None)
        for text, reason in zip(responses, failures or [None] * len(responses), strict=True)
    ]
    return ResponseSet(
        prompt_id or f"prompt-{text_hash(prompt)}",
        prompt,
        tuple(text or "" for text in responses),
        tuple(reasons) if any(reasons) else (),
    )


def seed_of(seed: int, responses: ResponseSet) -> int:
    """Return the seed of a set's draws: the same set gets the same, whatever is around it.

    >>> one, other = set_of("Why?", ["a", "b"]), set_of("Why?", ["b", "a"])
    >>> seed_of(0, one) == seed_of(0, set_of("Why?", ["a", "b"])) != seed_of(0, other)
    True
    """
    parts = (responses.prompt, *responses.responses)
    return derive_seed(seed, "score", *(text_hash(part) for part in parts))


def notes_of(responses: ResponseSet) -> list[str]:
    """Say what is odd about a set that is scored all the same.

    >>> notes_of(set_of("Why?", ["a", "", "a"]))
    ['identical_responses: 0 = 2', 'empty_response: 1']
    """
    shown = [
        (place, text)
        for place, (text, reason) in enumerate(
            zip(responses.responses, responses.reasons, strict=True)
        )
        if reason is None
    ]
    places: dict[str, list[str]] = {}
    for place, text in shown:
        places.setdefault(text, []).append(str(place))
    notes = [ONE_RESPONSE] if len(shown) == 1 else []
    notes += [f"{IDENTICAL}: {' = '.join(same)}" for same in places.values() if len(same) > 1]
    return notes + [f"{EMPTY}: {place}" for place, text in shown if not text.strip()]


def _writable(value: Any) -> Any:  # noqa: ANN401 - JSON values
    r"""Return values that every JSON text can hold: neither NaN nor half of a surrogate pair.

    >>> _writable({"text": "a\ud83d", "logits": [float("nan"), 1.0]})
    {'text': 'a\\ud83d', 'logits': [None, 1.0]}
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_writable(key): _writable(one) for key, one in value.items()}
    return [_writable(one) for one in value] if isinstance(value, list | tuple) else value


def _items(rubric: Rubric) -> list[ItemDocument]:
    return [ItemDocument(criterion=item.criterion, weight=item.weight) for item in rubric.items]


def _verdict(verdict: Verdict) -> VerdictDocument:
    return VerdictDocument(value=verdict.value, reason=verdict.reason, p_yes=verdict.p_yes)
