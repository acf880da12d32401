"""Explains one row of a training: why it earned what it earned, and what that trained.

Everything shown is recomputed from its parts and compared with what the training kept; see
`dynamicrubric.lineage`. What cannot be recomputed is said: the generator's rewards rest on verdicts
that its lineage does not keep, and whether a text was cut at its end is known only by its effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dynamicrubric.evaluators.judging import text_hash
from dynamicrubric.lineage import Checkpoint, Row, Training, read_record
from dynamicrubric.rewards import combine_advantages, group_advantages
from dynamicrubric.rubrics import parse_rubric
from dynamicrubric.scoring import score_response
from dynamicrubric.types import InvalidReason, InvalidRubric, Rubric, Score, Verdict

INVALID: Final = "invalid_rubric:"
NOT_IN_THE_TEXT: Final = frozenset({InvalidReason.TRUNCATED, InvalidReason.UNCHECKABLE_CRITERION})
"""Reasons that the engine and the verifier gave: the text alone may well parse."""


@dataclass(frozen=True)
class JudgedItem:
    """One sentence of the rubric: its weight, its verdict, and what it added to the score."""

    criterion: str
    weight: int
    verdict: str
    share: float | None
    """`w_m v_m / sum w`; None where the verdict is unscored."""


@dataclass(frozen=True)
class Member:
    """One of the group that a row was compared with."""

    id: str
    text: str
    score: float | None
    reward: float | None
    advantage: float


@dataclass(frozen=True)
class ResponseExplained:
    """One training response of the policy.

    Attributes:
        cell: its cell.
        id: `STEP/PROMPT/NUMBER`.
        step: the training step.
        prompt_id: what it answers.
        text: the response.
        text_hash: names the text.
        rubric_id: names the rubric's text.
        rubric: that text.
        invalid_reason: why it is no rubric, None if it is one.
        items: its sentences with their verdicts on this response; none if it is invalid.
        score: `E = sum w v / sum w`; None if unscored.
        score_reason: why it is unscored.
        reward: the score; 0 for a response cut at its token limit; None if unscored.
        cut: the response was cut: its reward is 0 although its score is not.
        group: the K responses that one rubric judged, this one among them.
        mean: of the group's rewards; None if none is scored.
        advantage: `(reward - mean) / (std + 1e-4)`, 0 if unscored.
        judge: the generator that wrote the rubric, by its artefact's content hash.
        checkpoint: what the row trained.
    """

    cell: str
    id: str
    step: int
    prompt_id: str
    text: str
    text_hash: str
    rubric_id: str
    rubric: str
    invalid_reason: str | None
    items: tuple[JudgedItem, ...]
    score: float | None
    score_reason: str | None
    reward: float | None
    cut: bool
    group: tuple[Member, ...]
    mean: float | None
    advantage: float
    judge: str
    checkpoint: Checkpoint


@dataclass(frozen=True)
class RubricMember:
    """One of the group of rubrics that a rubric was compared with."""

    id: str
    text: str
    r_disc: float | None
    r_anchor: float | None
    advantage: float


@dataclass(frozen=True)
class RubricExplained:
    """One rubric that the generator wrote while it trained.

    Attributes:
        cell: its cell.
        id: `STEP/ROW/NUMBER`.
        step: the training step.
        prompt_id: the prompt of its response set and of its anchor list.
        text: the rubric's text.
        rubric_id: names that text.
        invalid_reason: why it is no rubric, None if it is one.
        criteria: (sentence, weight) of each item; none if it is invalid.
        r_disc: discriminability on the response set; None if unscored.
        r_anchor: agreement with the anchor list; None if unscored.
        advantage_disc: R_disc normalised in the group.
        advantage_anchor: R_anchor normalised in the group.
        weights: of the two in the sum.
        advantage: the weighted sum.
        group: the rubrics for the same response set.
        checkpoint: what the row trained.
    """

    cell: str
    id: str
    step: int
    prompt_id: str
    text: str
    rubric_id: str
    invalid_reason: str | None
    criteria: tuple[tuple[str, int], ...]
    r_disc: float | None
    r_anchor: float | None
    advantage_disc: float
    advantage_anchor: float
    weights: tuple[float, float]
    advantage: float
    group: tuple[RubricMember, ...]
    checkpoint: Checkpoint


def explain_response(training: Training, name: str) -> ResponseExplained:
    """Explain a response of the policy's training.

    Args:
        training: the policy's.
        name: the response's id, or its text's hash if that is one response.

    Raises:
        UserError: there is no such response, the files are damaged, or the lineage does not add up.
    """
    row = training.find(name)
    group = training.group_of(row)
    for one in group:
        _check_names(training, one, row)
        _check_score(training, one)
    rewarded = [one["reward"] for one in group]
    _check_advantages(training, group, "advantage", group_advantages(rewarded))
    rubric = _rubric(training, row["rubric"], _invalid_reason(row))
    rewards = [reward for reward in rewarded if reward is not None]
    return ResponseExplained(
        cell=training.key,
        id=row["id"],
        step=row["step"],
        prompt_id=row["prompt_id"],
        text=row["text"],
        text_hash=row["text_hash"],
        rubric_id=row["rubric_id"],
        rubric=row["rubric"],
        invalid_reason=_invalid_reason(row),
        items=_judged(rubric, row["verdicts"]) if isinstance(rubric, Rubric) else (),
        score=row["score"],
        score_reason=row["score_reason"],
        reward=row["reward"],
        cut=row["reward"] != row["score"],
        group=tuple(
            Member(r["id"], r["text"], r["score"], r["reward"], r["advantage"]) for r in group
        ),
        mean=sum(rewards) / len(rewards) if rewards else None,
        advantage=row["advantage"],
        judge=_judge(training),
        checkpoint=training.checkpoint(),
    )


def explain_rubric(training: Training, name: str) -> RubricExplained:
    """Explain a rubric of the generator's training.

    Args:
        training: the generator's.
        name: the rubric's id, or its text's hash if that was written once.

    Raises:
        UserError: there is no such rubric, the files are damaged, or the lineage does not add up.
    """
    row = training.find(name)
    group = training.group_of(row)
    objective = training.identity["training"]["objective"]
    weights = (float(objective["disc"]), float(objective["anchor"]))
    rewards = [[r["r_disc"] for r in group], [r["r_anchor"] for r in group]]
    apart = [group_advantages(own) for own in rewards]
    for column, computed in (
        ("advantage_disc", apart[0]),
        ("advantage_anchor", apart[1]),
        ("advantage", combine_advantages(rewards, weights)),
    ):
        _check_advantages(training, group, column, computed)
    rubric = _rubric(training, row["text"], row["invalid_reason"])
    items = rubric.items if isinstance(rubric, Rubric) else ()
    training.check(f"number of items of {row['id']}", row["num_items"], len(items))
    return RubricExplained(
        cell=training.key,
        id=row["id"],
        step=row["step"],
        prompt_id=row["prompt_id"],
        text=row["text"],
        rubric_id=text_hash(row["text"]),
        invalid_reason=row["invalid_reason"],
        criteria=tuple((item.criterion, item.weight) for item in items),
        r_disc=row["r_disc"],
        r_anchor=row["r_anchor"],
        advantage_disc=row["advantage_disc"],
        advantage_anchor=row["advantage_anchor"],
        weights=weights,
        advantage=row["advantage"],
        group=tuple(
            RubricMember(r["id"], r["text"], r["r_disc"], r["r_anchor"], r["advantage"])
            for r in group
        ),
        checkpoint=training.checkpoint(),
    )


def _check_names(training: Training, row: Row, asked: Row) -> None:
    """Check that names are those of the texts, and that one rubric judged the whole group."""
    where = row["id"]
    training.check(f"text hash of {where}", row["text_hash"], text_hash(row["text"]))
    training.check(f"rubric id of {where}", row["rubric_id"], text_hash(row["rubric"]))
    training.check(f"rubric of {where}", row["rubric_id"], asked["rubric_id"])


def _check_score(training: Training, row: Row) -> None:
    """Check a row's score against its verdicts and weights, and its reward against its score."""
    where = row["id"]
    rubric = _rubric(training, row["rubric"], _invalid_reason(row))
    if isinstance(rubric, Rubric):
        verdicts = [_verdict(word) for word in row["verdicts"]]
        training.check(f"number of verdicts of {where}", len(verdicts), len(rubric.items))
        score = score_response(rubric, verdicts)
    else:
        score = Score.unscored(f"{INVALID}{rubric.reason}")
    training.check(f"score of {where}", row["score"], score.value)
    training.check(f"reason for no score of {where}", row["score_reason"], score.reason)
    if row["reward"] != 0.0 or score.value is None:  # 0: the score, or that of a cut response
        training.check(f"reward of {where}", row["reward"], score.value)


def _check_advantages(
    training: Training, group: Sequence[Row], column: str, computed: Sequence[float]
) -> None:
    for row, value in zip(group, computed, strict=True):
        training.check(f"{column} of {row['id']}", row[column], value)


def _invalid_reason(row: Row) -> str | None:
    reason = row["score_reason"]
    invalid = reason is not None and str(reason).startswith(INVALID)
    return str(reason).removeprefix(INVALID) if invalid else None


def _rubric(training: Training, text: str, invalid_reason: str | None) -> Rubric | InvalidRubric:
    """Read the rubric's text again; what the text alone cannot say is taken from the lineage."""
    settings = training.identity["rubrics"]
    if invalid_reason in NOT_IN_THE_TEXT:
        return InvalidRubric(InvalidReason(invalid_reason), "")
    found = parse_rubric(text, min_items=settings["min_items"], max_items=settings["max_items"])
    reason = str(found.reason) if isinstance(found, InvalidRubric) else None
    training.check("reason why a rubric is invalid", invalid_reason, reason)
    return found


def _judged(rubric: Rubric, words: Sequence[str]) -> tuple[JudgedItem, ...]:
    total = sum(rubric.weights)
    shares = {"yes": 1.0, "no": 0.0}
    return tuple(
        JudgedItem(
            item.criterion,
            item.weight,
            word,
            item.weight * shares[word] / total if word in shares else None,
        )
        for item, word in zip(rubric.items, words, strict=True)
    )


def _verdict(word: str) -> Verdict:
    known = {"yes": Verdict.yes(), "no": Verdict.no()}
    return known[word] if word in known else Verdict.unscored(word)


def _judge(training: Training) -> str:
    """Return the content hash of the generator that wrote the policy's rubrics.

    Raises:
        UserError: the generator beside the policy is another one.
    """
    used = str(training.record["inputs"]["generator"])
    beside = read_record(training.root, training.key, "generator")
    training.check("generator that wrote the rubrics", used, str(beside["content_hash"]))
    return used
