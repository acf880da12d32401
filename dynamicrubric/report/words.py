"""Comparisons in words: what was asked, what came out, how sure, and of what.

An interval that holds zero shows no difference; it does not show that there is none. With fewer
than three seeds an interval is over prompts, and the words say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dynamicrubric.metrics import ROUND_METRICS
from dynamicrubric.report.differences import Difference
from dynamicrubric.report.evidence import p_text, signed
from dynamicrubric.stats import LEVEL, MIN_SEEDS

Verdict = Literal["above", "below", "not shown", "not measured"]
Status = Literal["held here", "the other way round here", "not shown", "not measured", "not run"]
FIRST_ARM: Final = "coevolved"
FINDINGS: Final[Mapping[str, str]] = {
    "frozen": "Training the generator supervises better than a zero-shot dynamic rubric.",
    "static": "Rubrics that see the response set supervise better than rubrics from the prompt.",
    "stale": "Training on the current policy's responses is better than on the start policy's.",
    "once": "Training the generator every round is better than training it once.",
    "disc_only": "Both rewards together are better than discriminability alone.",
    "anchor_only": "Both rewards together are better than anchor ranking alone.",
}
"""What the paper found of `coevolved` against other arms, by other arm."""
FINDING_METRIC: Final = "true_quality"


@dataclass(frozen=True)
class Answer:
    """The answer to one comparison in one metric.

    Attributes:
        difference: the comparison.
        verdict: what it shows, by the corrected p-value.
        text: one or two sentences.
    """

    difference: Difference
    verdict: Verdict
    text: str


@dataclass(frozen=True)
class Finding:
    """A finding of the paper and what became of it here.

    Attributes:
        other: the arm that `coevolved` is compared to.
        claim: what the paper found.
        status: what became of it.
        answer: the comparison; None if an arm was not run.
    """

    other: str
    claim: str
    status: Status
    answer: Answer | None


def answers(differences: Sequence[Difference]) -> tuple[Answer, ...]:
    """Put each comparison of a table into words."""
    return tuple(_answer(found, len(differences)) for found in differences)


def findings(found: Sequence[Answer]) -> tuple[Finding, ...]:
    """Return every finding of the paper, also those whose arms were not run."""
    measured = {
        one.difference.other: one
        for one in found
        if one.difference.arm == FIRST_ARM and one.difference.metric == FINDING_METRIC
    }
    return tuple(
        Finding(other, claim, _status(measured.get(other)), measured.get(other))
        for other, claim in FINDINGS.items()
    )


def basis(found: Difference) -> str:
    """Say what a comparison's interval is over, and of how many.

    `over prompts only: 48 prompts of 1 seed`, `over 3 seeds and 48 prompts`.
    """
    prompts = _span([one.n_prompts for one in found.by_seed], "prompt")
    seeds = _count(len(found.by_seed), "seed")
    if found.estimate.over == "seeds and prompts":
        return f"over {seeds} and {prompts}"
    return f"over prompts only: {prompts} of {seeds}"


def reach(found: Difference) -> str:
    """Return a word beside a verdict that fewer than three seeds qualify; empty with three."""
    return "over prompts only" if found.estimate.over == "prompts" else ""


def caution(found: Difference) -> str:
    """Say what fewer than three seeds leave open; empty with three."""
    count = len(found.by_seed)
    if count >= MIN_SEEDS or found.estimate.mean is None:
        return ""
    return (
        f"With {_count(count, 'seed')} this says nothing about other seeds: that takes {MIN_SEEDS}."
    )


def _answer(found: Difference, family: int) -> Answer:
    verdict, metric = _verdict(found), ROUND_METRICS[found.metric].label
    where = f"in {metric} in round {found.round}"
    if found.mean is None or verdict == "not measured":
        reason = found.estimate.lacking or "no value"
        lead = "" if found.mean is None else f"The mean difference is {signed(found.mean)}, but "
        text = f"{lead}{'' if lead else 'Not measured '}{where}: {reason}."
        return Answer(found, "not measured", _sentence(text))
    names, size = f"{found.arm} is {{}} {found.other}", f"{abs(found.mean):.3f}"
    if verdict == "not shown":
        alone = found.estimate.p_value
        kind = " after correction" if alone is not None and alone < 1.0 - LEVEL else ""
        lead = f"No difference shown{kind} {where}: {found.arm} minus {found.other} is "
        lead += f"{found.mean:+.3f}"
    else:
        lead = f"{names.format(verdict)} by {size} {where}"
    return Answer(found, verdict, f"{lead} ({_evidence(found, family)}).{_better(found)}")


def _evidence(found: Difference, family: int) -> str:
    low, high = found.estimate.interval or (float("nan"), float("nan"))
    p = p_text(found.p_corrected)
    return (
        f"{LEVEL * 100:.0f} % interval {low:+.3f} to {high:+.3f} {basis(found)}; "
        f"p {p if p.startswith('<') else '= ' + p} corrected for {_count(family, 'comparison')}"
    )


def _better(found: Difference) -> str:
    share = found.estimate.superiority
    return "" if share is None else f" {found.arm} is the better one on {share:.0%} of prompts."


def _verdict(found: Difference) -> Verdict:
    if found.mean is None or found.p_corrected is None:
        return "not measured"
    if found.p_corrected >= 1.0 - LEVEL:
        return "not shown"
    return "above" if found.mean > 0 else "below"


def _status(answer: Answer | None) -> Status:
    if answer is None:
        return "not run"
    if answer.verdict == "above":
        return "held here"
    if answer.verdict == "below":
        return "the other way round here"
    return answer.verdict


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _span(counts: Sequence[int], noun: str) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return _count(high, noun) if low == high else f"{low} to {high} {noun}s"
