"""What a row's parts give: its score, reward and advantage again, compared with what is stored.

What a score means is the evaluator's: an oracle has no rubric and its reward is the true quality,
hand-written rules come from no generator, and an arm may count every item of a rubric the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dynamicrubric.evaluation import NO_RUBRIC
from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS, SCORED
from dynamicrubric.evaluators.judging import equally_weighted, text_hash
from dynamicrubric.lineage import Row, Training, read_record
from dynamicrubric.rubrics import parse_rubric
from dynamicrubric.scoring import score_response
from dynamicrubric.types import InvalidReason, InvalidRubric, Rubric, Score, Verdict
from dynamicrubric.worlds.base import world_of

ORACLE: Final = "oracle"
RULES: Final = "rule_based"
INVALID: Final = "invalid_rubric:"
PREPARED: Final = "data/prepared"
NOT_IN_THE_TEXT: Final = frozenset(
    {InvalidReason.FAILED, InvalidReason.TRUNCATED, InvalidReason.UNCHECKABLE_CRITERION}
)
"""Reasons that the engine and the verifier gave: the text alone may well parse."""


@dataclass(frozen=True)
class JudgedItem:
    """One sentence of the rubric: the weight it counted with, its verdict, what it added."""

    criterion: str
    weight: int
    verdict: str
    share: float | None
    """`w_m v_m / sum w`; None where the verdict is unscored."""


def evaluator_of(training: Training) -> str:
    """Return what the policy's rewards come from: the arm's evaluator."""
    return str(training.identity["rubrics"]["evaluator"])


def counts_alike(training: Training) -> bool:
    """Whether every item counts the same, whatever weight the rubric's text gives it."""
    return bool(training.identity["rubrics"].get("weights") == "equal")


def check_names(training: Training, row: Row, asked: Row) -> None:
    """Check that names are those of the texts, and that one rubric judged the whole group."""
    where, rubric = row["id"], row["rubric"]
    training.check(f"text hash of {where}", row["text_hash"], text_hash(row["text"]))
    name = None if rubric is None else text_hash(rubric)
    training.check(f"rubric id of {where}", row["rubric_id"], name)
    training.check(f"rubric of {where}", row["rubric_id"], asked["rubric_id"])


def check_score(training: Training, row: Row) -> None:
    """Check a row's score against its verdicts and weights, and its reward against its score."""
    where = row["id"]
    if evaluator_of(training) == ORACLE:
        _check_quality(training, row)
        return
    if evaluator_of(training) in SCORED:
        _check_given(training, row)
        return
    if row["rubric"] is None:
        raise training.fault(f"no rubric of {where}", "the rubric that scored it")
    rubric = rubric_of(training, row["rubric"], invalid_reason(row))
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


def _check_given(training: Training, row: Row) -> None:
    """Check the reward of a score that an evaluator gave without verdicts: it is the score."""
    where = row["id"]
    training.check(f"verdicts of {where}", list(row["verdicts"]), [])
    if row["reward"] != 0.0 or row["score"] is None:  # 0: the score, or that of a cut response
        training.check(f"reward of {where}", row["reward"], row["score"])


def _check_quality(training: Training, row: Row) -> None:
    """Check that an oracle's row has no rubric, and that its reward is the true quality."""
    where = row["id"]
    training.check(f"rubric of {where}", row["rubric"], None)
    training.check(f"score of {where}", row["score"], None)
    training.check(f"reason for no score of {where}", row["score_reason"], NO_RUBRIC)
    lowest = world_of(training.root / PREPARED).lowest_quality
    if row["reward"] != lowest:  # which a cut response earns
        training.check(f"reward of {where}", row["reward"], quality_of(training, row))


def quality_of(training: Training, row: Row) -> float:
    """Return the true quality of a response: what an oracle rewards.

    Raises:
        UserError: it answers no prompt of the world.
    """
    world = world_of(training.root / PREPARED)
    try:
        quality = world.true_quality(row["prompt_id"], row["text"])
    except KeyError:
        quality = None
    if quality is None:
        raise training.fault(f"the prompt {row['prompt_id']!r}", "a prompt of the world")
    return quality


def check_advantages(
    training: Training, group: Sequence[Row], column: str, computed: Sequence[float]
) -> None:
    """Check a group's stored advantages against those computed from its rewards."""
    for row, value in zip(group, computed, strict=True):
        training.check(f"{column} of {row['id']}", row[column], value)


def invalid_reason(row: Row) -> str | None:
    """Return why a response's rubric is none; None if it is one or there is none to be."""
    reason = row["score_reason"]
    invalid = reason is not None and str(reason).startswith(INVALID)
    return str(reason).removeprefix(INVALID) if invalid else None


def rubric_of(training: Training, text: str, invalid: str | None) -> Rubric | InvalidRubric:
    """Read a rubric's text again, its items weighed as they counted.

    What the text alone cannot say is taken from the lineage.

    Args:
        training: whose rubric it is.
        text: what was written.
        invalid: why it is no rubric, as the lineage says.
    """
    settings = training.identity["rubrics"]
    if invalid in NOT_IN_THE_TEXT:
        return InvalidRubric(InvalidReason(invalid), "")
    found = parse_rubric(text, min_items=settings["min_items"], max_items=settings["max_items"])
    reason = str(found.reason) if isinstance(found, InvalidRubric) else None
    training.check("reason why a rubric is invalid", invalid, reason)
    if isinstance(found, Rubric) and counts_alike(training):
        return equally_weighted(found)
    return found


def judged_items(rubric: Rubric, words: Sequence[str]) -> tuple[JudgedItem, ...]:
    """Return each item with its verdict and what it added to the score."""
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


def judge_of(training: Training) -> str | None:
    """Return the content hash of the generator that wrote the policy's rubrics; None if none did.

    Raises:
        UserError: the generator beside the policy is another one.
    """
    if evaluator_of(training) in {ORACLE, RULES, *SCORED - KEEPS_RUBRICS}:
        return None
    used = str(training.record["inputs"]["generator"])
    beside = read_record(training.root, training.key, "generator")
    training.check("generator that wrote the rubrics", used, str(beside["content_hash"]))
    return used
