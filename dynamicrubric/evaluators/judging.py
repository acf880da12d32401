"""From a generator's text to scores: parse, judge, score. Shared by training and measurement."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dynamicrubric.engines.base import Generation, JudgeRequest, Verifier
from dynamicrubric.errors import InstrumentError
from dynamicrubric.rubrics import parse_rubric
from dynamicrubric.scoring import score_set
from dynamicrubric.seeds import derive_seed
from dynamicrubric.types import (
    MIN_WEIGHT,
    InvalidReason,
    InvalidRubric,
    Item,
    Rubric,
    Score,
    Verdict,
)

FAILED_RESPONSE: Final = "failed_response:"
"""Begins the reason of what is unscored because its engine gave no response."""


@dataclass(frozen=True)
class ResponseSet:
    """K responses to one prompt.

    Attributes:
        prompt_id: identifier of the prompt.
        prompt: its text, x.
        responses: the K texts, C.
        failures: why there is no response in a place, None where there is one, shape (K,);
            empty if all are there. What is not there is never shown and never judged.
    """

    prompt_id: str
    prompt: str
    responses: tuple[str, ...]
    failures: tuple[str | None, ...] = ()

    @classmethod
    def of(cls, prompt_id: str, prompt: str, generations: Sequence[Generation]) -> ResponseSet:
        """Return what an engine gave for a prompt as a set."""
        failures = tuple(one.failure for one in generations)
        texts = tuple(one.text for one in generations)
        return cls(prompt_id, prompt, texts, failures if any(failures) else ())

    @property
    def reasons(self) -> tuple[str | None, ...]:
        """Why a place is unscored whatever judges it, None where it is not, shape (K,)."""
        failures = self.failures or (None,) * len(self.responses)
        return tuple(None if one is None else f"{FAILED_RESPONSE}{one}" for one in failures)

    @property
    def shown(self) -> tuple[str, ...]:
        """The responses that there are: what a generator reads."""
        if not self.failures:
            return self.responses
        pairs = zip(self.responses, self.failures, strict=True)
        return tuple(text for text, failure in pairs if failure is None)


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

    @property
    def num_verdicts(self) -> int:
        """K x M."""
        return sum(len(row) for row in self.verdicts)

    @property
    def unscored_reasons(self) -> Counter[str]:
        """How often the verifier left a verdict unscored, by reason.

        What it was never asked, because there was no response, is none of its failures.
        """
        return Counter(
            str(v.reason)
            for row in self.verdicts
            for v in row
            if not v.is_scored and failure_of(v.reason) is None
        )

    @property
    def num_asked(self) -> int:
        """Verdicts that the verifier was asked for: those on responses that there are."""
        return sum(failure_of(v.reason) is None for row in self.verdicts for v in row)

    @property
    def failed_responses(self) -> Counter[str]:
        """How often an engine gave no response, by reason, whatever the rubric."""
        failures = (failure_of(score.reason) for score in self.scores)
        return Counter(failure for failure in failures if failure is not None)


@dataclass(frozen=True)
class Job:
    """Texts to judge by one rubric.

    Attributes:
        rubric: what to judge by; an invalid one leaves every text unscored.
        responses: the texts: a response set or an anchor list.
        seed: seed of whatever is random in the verifier, mixed with each text's place.
        prompt: what they answer, for a verifier that reads it.
        reasons: why a text is not judged, None where it is, shape (K,); empty if all are.
    """

    rubric: Rubric | InvalidRubric
    responses: Sequence[str]
    seed: int
    prompt: str = ""
    reasons: Sequence[str | None] = ()

    @property
    def unjudged(self) -> Sequence[str | None]:
        """The reasons, one for each text."""
        return self.reasons or (None,) * len(self.responses)


@dataclass(frozen=True)
class Judging:
    """How rubrics are read and applied: the same in training and in measurement.

    Attributes:
        verifier: the frozen verifier.
        min_items: fewest items a rubric may have.
        max_items: most items a rubric may have.
        max_invalid_rate: largest share of invalid rubrics among those that are checked together.
        max_unscored_rate: largest share of unscored verdicts under valid rubrics, likewise.
        equal_weights: whether every item counts the same, whatever weight the text gives it.
    """

    verifier: Verifier
    min_items: int
    max_items: int
    max_invalid_rate: float
    max_unscored_rate: float
    equal_weights: bool = False

    def read(self, generation: Generation) -> Rubric | InvalidRubric:
        """Parse a generator's text; a criterion the verifier cannot judge makes it invalid."""
        if generation.failure is not None:
            return InvalidRubric(InvalidReason.FAILED, generation.failure)
        rubric = parse_rubric(
            generation.text,
            min_items=self.min_items,
            max_items=self.max_items,
            finish_reason=generation.finish_reason,
        )
        if isinstance(rubric, InvalidRubric):
            return rubric
        for criterion in rubric.criteria:
            if not self.verifier.accepts(criterion):
                return InvalidRubric(InvalidReason.UNCHECKABLE_CRITERION, criterion)
        return equally_weighted(rubric) if self.equal_weights else rubric

    def judge(self, jobs: Sequence[Job]) -> list[JudgedSet]:
        """Apply rubrics to response sets and anchor lists, all verdicts in one call.

        In one call, because a language model asks all criteria about one text in one pass.
        """
        requests = [request for job in jobs for request in _requests(job)]
        rows = self.verifier.judge(requests) if requests else []
        assert len(rows) == len(requests), "the verifier lost a response"
        left, judged = iter(rows), []
        for job in jobs:
            if isinstance(job.rubric, InvalidRubric):
                reason = f"invalid_rubric:{job.rubric.reason}"
                scores = tuple(Score.unscored(failed or reason) for failed in job.unjudged)
                judged.append(JudgedSet(job.rubric, (), scores))
            else:
                unjudged = [Verdict.unscored(failed) if failed else None for failed in job.unjudged]
                verdicts = tuple(
                    tuple(next(left)) if none is None else (none,) * len(job.rubric.items)
                    for none in unjudged
                )
                judged.append(JudgedSet(job.rubric, verdicts, score_set(job.rubric, verdicts)))
        return judged

    def judge_sets(
        self,
        texts: Sequence[Generation],
        sets: Sequence[ResponseSet],
        seeds: Sequence[int],
    ) -> list[JudgedSet]:
        """Read each set's rubric and apply it; a seed is the one its rubric was written with."""
        return self.judge(
            [
                job_of(self.read(text), one, derive_seed(seed, "judge"))
                for text, one, seed in zip(texts, sets, seeds, strict=True)
            ]
        )

    def check_rates(
        self, where: str, judged: Sequence[JudgedSet], anchors: Sequence[JudgedSet] = ()
    ) -> dict[str, float]:
        """Return the shares of invalid rubrics and of unscored verdicts, or stop above a limit.

        Bad model output is data, up to a limit; a verifier that fails more often than its limit is
        a broken instrument. The two are told apart: a generator that writes nonsense says nothing
        about the verifier. And so is what an engine never gave (a prompt too long, a filter):
        rubrics and responses that are not there count neither way, up to the same limits.

        Args:
            where: what was judged, as a person reads it ("step 3", "the held-out sets").
            judged: response sets, each under its rubric.
            anchors: anchor lists under the same rubrics; their verdicts count as well.

        Raises:
            InstrumentError: a share is above its limit.
        """
        self._check_failures(where, judged)
        rates = {}
        written = [one.rubric for one in judged if not _is_missing(one.rubric)]
        if written:
            rates["rate/invalid_rubric"] = self._invalid_rate(where, written)
        everything = [*judged, *anchors]
        if any(one.num_asked for one in everything):
            rates["rate/unscored_verdict"] = self._unscored_rate(where, everything)
        return rates

    def _check_failures(self, where: str, judged: Sequence[JudgedSet]) -> None:
        """Stop if an engine left out too many rubrics or responses."""
        rubrics = Counter(
            one.rubric.detail
            for one in judged
            if isinstance(one.rubric, InvalidRubric) and _is_missing(one.rubric)
        )
        responses = sum((one.failed_responses for one in judged), Counter[str]())
        for what, failed, of, name, limit in (
            ("rubrics", rubrics, len(judged), "max_invalid_rate", self.max_invalid_rate),
            (
                "responses",
                responses,
                sum(len(one.scores) for one in judged),
                "verifier.max_unscored_rate",
                self.max_unscored_rate,
            ),
        ):
            if failed.total() > limit * of:
                raise InstrumentError(
                    f"the engine gave none of {failed.total()} of {of} {what} of {where} "
                    f"({dict(sorted(failed.items()))}), above {name} {limit}; mend the engine that "
                    f"samples {what}, or leave out the prompts it cannot answer"
                )

    def _invalid_rate(self, where: str, written: Sequence[Rubric | InvalidRubric]) -> float:
        invalid = Counter(str(one.reason) for one in written if isinstance(one, InvalidRubric))
        rate = invalid.total() / len(written)
        if rate > self.max_invalid_rate:
            raise InstrumentError(
                f"{invalid.total()} of {len(written)} rubrics of {where} are invalid "
                f"({dict(sorted(invalid.items()))}), above max_invalid_rate "
                f"{self.max_invalid_rate}; train the generator's warm start longer or raise the "
                "limit"
            )
        return rate

    def _unscored_rate(self, where: str, judged: Sequence[JudgedSet]) -> float:
        num_asked = sum(one.num_asked for one in judged)
        reasons = sum((one.unscored_reasons for one in judged), Counter[str]())
        rate = reasons.total() / num_asked
        if rate > self.max_unscored_rate:
            raise InstrumentError(
                f"the verifier left {reasons.total()} of {num_asked} verdicts of {where} "
                f"unscored ({dict(sorted(reasons.items()))}), above verifier.max_unscored_rate "
                f"{self.max_unscored_rate}; mend the verifier or raise the limit"
            )
        return rate


def failure_of(reason: object) -> str | None:
    """Return why an engine gave no response, by the reason of what is unscored for it."""
    if isinstance(reason, str) and reason.startswith(FAILED_RESPONSE):
        return reason.removeprefix(FAILED_RESPONSE)
    return None


def _is_missing(rubric: Rubric | InvalidRubric) -> bool:
    """Whether the engine gave no rubric: nothing that the generator did."""
    return isinstance(rubric, InvalidRubric) and rubric.reason is InvalidReason.FAILED


def job_of(rubric: Rubric | InvalidRubric, responses: ResponseSet, seed: int) -> Job:
    """Return what judges a response set by a rubric."""
    return Job(rubric, responses.responses, seed, responses.prompt, responses.reasons)


def _requests(job: Job) -> list[JudgeRequest]:
    if isinstance(job.rubric, InvalidRubric):
        return []
    return [
        JudgeRequest(
            response, job.rubric.criteria, derive_seed(job.seed, "verdict", index), job.prompt
        )
        for index, (response, failed) in enumerate(zip(job.responses, job.unjudged, strict=True))
        if failed is None
    ]


def equally_weighted(rubric: Rubric) -> Rubric:
    """Return the rubric with the same items, each counting one."""
    return Rubric(tuple(Item(item.criterion, MIN_WEIGHT) for item in rubric.items))


def text_hash(text: str) -> str:
    """Short hash that names a text in lineage tables."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
