"""Explains one row of a training: why it earned what it earned, and what that trained.

Everything shown is recomputed from its parts and compared with what the training kept; see
`dynamicrubric.lineage`. What cannot be recomputed is said: the generator's rewards rest on verdicts
that its lineage does not keep, and whether a text was cut at its end is known only by its effect.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynamicrubric.evaluators.judging import text_hash
from dynamicrubric.explain_parts import (
    ORACLE,
    JudgedItem,
    check_advantages,
    check_names,
    check_score,
    counts_alike,
    evaluator_of,
    invalid_reason,
    judge_of,
    judged_items,
    quality_of,
    rubric_of,
)
from dynamicrubric.lineage import Checkpoint, Training
from dynamicrubric.rewards import combine_advantages, group_advantages
from dynamicrubric.types import Rubric


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
        evaluator: what the reward comes from: `dynamic`, `static`, `rule_based`, `oracle`.
        rubric_id: names the rubric's text; None under an oracle.
        rubric: that text.
        invalid_reason: why it is no rubric, None if it is one.
        counts_alike: every item counts one, whatever weight the text gives it.
        items: its sentences with their verdicts on this response; none if it is invalid.
        score: `E = sum w v / sum w`; None if unscored, as everything is under an oracle.
        score_reason: why it is unscored.
        true_quality: what an oracle rewards; None under a rubric.
        reward: score or true quality; the lowest there is for a response cut at its token limit;
            None if unscored.
        cut: the response was cut: its reward is not its score, or true quality.
        group: the K responses that one rubric judged, this one among them.
        mean: of the group's rewards; None if none is scored.
        advantage: `(reward - mean) / (std + 1e-4)`, 0 if unscored.
        judge: the generator that wrote the rubric, by its artefact's content hash; None if no
            generator did.
        checkpoint: what the row trained.
    """

    cell: str
    id: str
    step: int
    prompt_id: str
    text: str
    text_hash: str
    evaluator: str
    rubric_id: str | None
    rubric: str | None
    invalid_reason: str | None
    counts_alike: bool
    items: tuple[JudgedItem, ...]
    score: float | None
    score_reason: str | None
    true_quality: float | None
    reward: float | None
    cut: bool
    group: tuple[Member, ...]
    mean: float | None
    advantage: float
    judge: str | None
    checkpoint: Checkpoint


@dataclass(frozen=True)
class RubricMember:
    """One of the group of rubrics that a rubric was compared with."""

    id: str
    text: str
    r_disc: float | None
    r_anchor: float | None
    advantage: float
    r_gap: float | None = None


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
        criteria: (sentence, the weight it counts with) of each item; none if it is invalid.
        counts_alike: every item counts one, whatever weight the text gives it.
        r_disc: discriminability on the response set; None if unscored.
        r_anchor: agreement with the anchor list; None if unscored.
        advantage_disc: R_disc normalised in the group.
        advantage_anchor: R_anchor normalised in the group.
        weights: of them in the sum.
        advantage: the weighted sum.
        group: the rubrics for the same response set.
        checkpoint: what the row trained.
        r_gap: mean gap over ordered pairs; None if unscored, or if the recipe does not pay it.
        advantage_gap: R_gap normalised in the group; None if the recipe does not pay it.
        single_share: share of the weight on items that single out one response, taken off R_disc;
            None where the recipe takes nothing off.
    """

    cell: str
    id: str
    step: int
    prompt_id: str
    text: str
    rubric_id: str
    invalid_reason: str | None
    criteria: tuple[tuple[str, int], ...]
    counts_alike: bool
    r_disc: float | None
    r_anchor: float | None
    advantage_disc: float
    advantage_anchor: float
    weights: tuple[float, ...]
    advantage: float
    group: tuple[RubricMember, ...]
    checkpoint: Checkpoint
    r_gap: float | None = None
    advantage_gap: float | None = None
    single_share: float | None = None


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
        check_names(training, one, row)
        check_score(training, one)
    rewarded = [one["reward"] for one in group]
    check_advantages(training, group, "advantage", group_advantages(rewarded))
    invalid, text = invalid_reason(row), row["rubric"]
    rubric = None if text is None else rubric_of(training, text, invalid)
    quality = quality_of(training, row) if evaluator_of(training) == ORACLE else None
    rewards = [reward for reward in rewarded if reward is not None]
    return ResponseExplained(
        cell=training.key,
        id=row["id"],
        step=row["step"],
        prompt_id=row["prompt_id"],
        text=row["text"],
        text_hash=row["text_hash"],
        evaluator=evaluator_of(training),
        rubric_id=row["rubric_id"],
        rubric=text,
        invalid_reason=invalid,
        counts_alike=counts_alike(training),
        items=judged_items(rubric, row["verdicts"]) if isinstance(rubric, Rubric) else (),
        score=row["score"],
        score_reason=row["score_reason"],
        true_quality=quality,
        reward=row["reward"],
        cut=row["reward"] != (row["score"] if quality is None else quality),
        group=tuple(
            Member(r["id"], r["text"], r["score"], r["reward"], r["advantage"]) for r in group
        ),
        mean=sum(rewards) / len(rewards) if rewards else None,
        advantage=row["advantage"],
        judge=judge_of(training),
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
    paid = {name: float(objective[name]) for name in ("disc", "anchor", "gap") if name in objective}
    rewards = {name: [r[f"r_{name}"] for r in group] for name in paid}
    for name, own in rewards.items():
        check_advantages(training, group, f"advantage_{name}", group_advantages(own))
    weights = tuple(paid.values())
    combined = combine_advantages(list(rewards.values()), weights)
    check_advantages(training, group, "advantage", combined)
    rubric = rubric_of(training, row["text"], row["invalid_reason"])
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
        counts_alike=counts_alike(training),
        r_disc=row["r_disc"],
        r_anchor=row["r_anchor"],
        advantage_disc=row["advantage_disc"],
        advantage_anchor=row["advantage_anchor"],
        weights=weights,
        advantage=row["advantage"],
        group=tuple(
            RubricMember(
                r["id"], r["text"], r["r_disc"], r["r_anchor"], r["advantage"], r.get("r_gap")
            )
            for r in group
        ),
        checkpoint=training.checkpoint(),
        r_gap=row.get("r_gap"),
        advantage_gap=row.get("advantage_gap"),
        single_share=row.get("single_share"),
    )
