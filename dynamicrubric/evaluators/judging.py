"""From a generator's text to scores: parse, judge, score. Shared by training and measurement."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from dynamicrubric.engines.base import Generation, JudgeRequest, Verifier
from dynamicrubric.rubrics import parse_rubric
from dynamicrubric.scoring import score_set
from dynamicrubric.seeds import derive_seed
from dynamicrubric.types import InvalidReason, InvalidRubric, Rubric, Score, Verdict


@dataclass(frozen=True)
class ResponseSet:
    """K responses to one prompt.

    Attributes:
        prompt_id: identifier of the prompt.
        prompt: its text, x.
        responses: the K texts, C.
    """

    prompt_id: str
    prompt: str
    responses: tuple[str, ...]


@dataclass(frozen=True)
class JudgedSet:
    """A response set under one rubric.

    Attributes:
        rubric: the parsed rubric, or why there is none.
        verdicts: shape (K, M); no rows for an invalid rubric.
        scores: shape (K,); all unscored for an invalid rubric.
    """

    rubric: Rubric | InvalidRubric
    verdicts: tuple[tuple[Verdict, ...], ...]
    scores: tuple[Score, ...]


def read_rubric(
    generation: Generation, *, min_items: int, max_items: int, verifier: Verifier
) -> Rubric | InvalidRubric:
    """Parse a generator's text; a criterion that the verifier cannot judge makes it invalid."""
    rubric = parse_rubric(
        generation.text,
        min_items=min_items,
        max_items=max_items,
        finish_reason=generation.finish_reason,
    )
    if isinstance(rubric, InvalidRubric):
        return rubric
    for criterion in rubric.criteria:
        if not verifier.accepts(criterion):
            return InvalidRubric(InvalidReason.UNCHECKABLE_CRITERION, criterion)
    return rubric


def judge_responses(
    rubric: Rubric | InvalidRubric, responses: Sequence[str], verifier: Verifier, seed: int
) -> JudgedSet:
    """Apply one rubric to all responses of a set (or to an anchor list).

    Args:
        rubric: what to judge by; an invalid one leaves every response unscored.
        responses: the texts.
        verifier: the frozen verifier.
        seed: seed of whatever is random in the verifier, mixed with each response's place.
    """
    if isinstance(rubric, InvalidRubric):
        reason = f"invalid_rubric:{rubric.reason}"
        return JudgedSet(rubric, (), tuple(Score.unscored(reason) for _ in responses))
    requests = [
        JudgeRequest(response, rubric.criteria, derive_seed(seed, "verdict", index))
        for index, response in enumerate(responses)
    ]
    verdicts = tuple(tuple(row) for row in verifier.judge(requests))
    assert len(verdicts) == len(responses), "the verifier lost a response"
    return JudgedSet(rubric, verdicts, score_set(rubric, verdicts))


def text_hash(text: str) -> str:
    """Short hash that names a text in lineage tables."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
