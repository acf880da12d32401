"""What the paper measured, what that leads one to expect here, and what became of it.

The paper compares most of its variants as evaluators, by accuracy on labelled pairs, and trains no
policy under them. Here every one of them trains a policy, and what is compared is how good that
policy gets. So a claim has two parts, and only the second one can hold or not hold in a study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dynamicrubric.grid import COEVOLVED, G_STALE, ONCE, STALE
from dynamicrubric.report.differences import Difference
from dynamicrubric.report.phrases import label
from dynamicrubric.report.words import Answer, Tone

Status = Literal[
    "held here", "the other way round here", "not shown", "open", "not measured", "not run"
]
FIRST_ARM: Final = COEVOLVED
FINDING_METRIC: Final = "true_quality"
GRID_ANCHOR: Final = "coevolution"
"""Of the page's section on the G x P grid."""


@dataclass(frozen=True)
class Claim:
    """A finding of the paper.

    Attributes:
        paper: what the paper measured, with its figures.
        here: what that leads one to expect of `coevolved` against another arm.
        in_grid: the G x P grid has the comparison that the paper made.
    """

    paper: str
    here: str
    in_grid: bool = False


FINDINGS: Final[Mapping[str, Claim]] = {
    "frozen": Claim(
        "The paper compared evaluators: its trained generator of 8B parameters judges 57.4 % of "
        "JudgeBench's pairs as labelled, a zero-shot dynamic rubric of the same model 36.4 %. It "
        "trained no policy under the zero-shot one.",
        "A policy gets better under a trained generator than under an untrained one.",
    ),
    "static": Claim(
        "The paper compared policies: 67.1 on AlpacaEval 2 under its generator of 8B parameters, "
        "58.5 under static rubrics that a model of 235B wrote. Here both are written by the same "
        "small model.",
        "A policy gets better under rubrics written for its response set than under rubrics "
        "written once from the prompt.",
    ),
    STALE: Claim(
        f"The paper compared evaluators: G_2, trained on P_1's responses, with {G_STALE}, trained "
        "again on P_0's with equal compute. It reports G_2 as the better one, and no policy "
        f"trained under {G_STALE}.",
        "A policy gets better under a generator trained on its current responses than on the "
        "start policy's.",
        in_grid=True,
    ),
    ONCE: Claim(
        "The paper compared policies: P_1 -> P_2 gains more under G_2 than under G_1.",
        "A policy gets better under a generator trained every round than under one trained once.",
        in_grid=True,
    ),
    "disc_only": Claim(
        "The paper compared evaluators: both rewards together judge 57.4 % of JudgeBench's pairs "
        "as labelled, discriminability alone 56.1 % (on RM-Bench they are equal). It trained no "
        "policy under the latter.",
        "A policy gets better under both rewards together than under discriminability alone.",
    ),
    "anchor_only": Claim(
        "The paper compared evaluators: both rewards together judge 57.4 % of JudgeBench's pairs "
        "as labelled, anchor ranking alone 50.0 % (on Personalized-RB the latter is ahead by 0.5). "
        "It trained no policy under it.",
        "A policy gets better under both rewards together than under anchor ranking alone.",
    ),
}  # fmt: skip
"""What the paper found of its method against others, by the arm that stands for the other."""


@dataclass(frozen=True)
class Finding:
    """A finding of the paper and what became of what it leads one to expect.

    Attributes:
        other: the arm that `coevolved` is compared to.
        claim: what the paper measured and what is expected.
        status: what became of it.
        answer: the comparison; None if an arm was not run.
    """

    other: str
    claim: Claim
    status: Status
    answer: Answer | None

    @property
    def label(self) -> str:
        """What a person reads: the status, an open one with its seeds."""
        return self.answer.label if self.answer and self.status == "open" else self.status

    @property
    def tone(self) -> Tone:
        """The colour of the status."""
        return self.answer.tone if self.answer else ""


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


def family_of(found: Difference) -> str:
    """Return the name of the comparisons that a difference's p-value is corrected with.

    The paper's findings are a family of their own, so that an arm more in a study makes none of
    them harder to show.
    """
    if found.metric != FINDING_METRIC:
        return f"all arms in {label(found.metric)}"
    if found.arm != FIRST_ARM:
        return f"all arms in {label(found.metric)}"
    if found.other in FINDINGS:
        return f"the arms of the paper's findings in {label(found.metric)}"
    return f"the other arms in {label(found.metric)}"


def _status(answer: Answer | None) -> Status:
    if answer is None:
        return "not run"
    if answer.verdict == "higher":
        return "held here"
    if answer.verdict == "lower":
        return "the other way round here"
    return answer.verdict
