"""A text that no engine gave is unscored: it is neither judged nor parsed nor measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dynamicrubric.engines.base import Generation, JudgeRequest
from dynamicrubric.evaluation import SampledSet, evaluate_sets
from dynamicrubric.evaluators.judging import Judging, ResponseSet
from dynamicrubric.evaluators.writers import FixedWriter, KeptWriter
from dynamicrubric.types import InvalidRubric, Verdict

RUBRIC = '[{"criterion":"greets","weight":2},{"criterion":"thanks","weight":1}]'


@dataclass
class Watched:
    """A verifier that says yes to all and keeps what it was asked about."""

    asked: list[str] = field(default_factory=list)

    def accepts(self, criterion: str) -> bool:
        return True

    def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        self.asked += [request.response for request in requests]
        return [[Verdict.yes() for _ in request.criteria] for request in requests]


def judging(verifier: Watched) -> Judging:
    return Judging(verifier, 1, 4, max_invalid_rate=1.0, max_unscored_rate=1.0)


def sampled() -> SampledSet:
    """A set whose second response is none."""
    there, none = Generation((1, 2), "Dear Anna", "stop"), Generation.failed("too_long")
    responses = ResponseSet("p", "Write", ("Dear Anna", ""), (None, "too_long"))
    return SampledSet("p/0", responses, (there, none), (0.5, None))


def test_response_that_there_is_not_is_unscored_with_its_reason_and_never_judged() -> None:
    verifier = Watched()
    found = evaluate_sets(
        [sampled()], FixedWriter(RUBRIC), judging(verifier), lambda _, text: 0.25, ("seed",)
    )
    assert verifier.asked == ["Dear Anna"]
    assert [row["score"] for row in found.responses] == [1.0, None]
    assert [row["true_quality"] for row in found.responses] == [0.25, None]
    assert "too_long" in found.responses[1]["score_reason"]
    reasons = [row["reason"] for row in found.verdicts]
    assert reasons == [None, None, *["failed_response:too_long"] * 2]
    counts = {name: (m.value, m.n_scored, m.n_total) for name, m in found.metrics.items()}
    assert counts["response_length"] == (2.0, 1, 2)
    assert counts["kl"] == (0.5, 1, 2)
    assert counts["r_disc"] == (None, 0, 1)


def test_rubric_that_there_is_not_is_invalid_for_its_own_reason() -> None:
    found = judging(Watched()).read(Generation.failed("content_filter"))
    assert isinstance(found, InvalidRubric)
    assert (found.reason, found.detail) == ("failed", "content_filter")


def test_kept_rubric_that_there_is_not_stays_none(tmp_path) -> None:
    kept = KeptWriter({"p": Generation.failed("too_long"), "q": Generation((), RUBRIC, "stop")})
    kept.save(tmp_path)
    again = KeptWriter.load(tmp_path)
    found = again.write([ResponseSet("p", "", ()), ResponseSet("q", "", ())], [1, 2])
    assert [one.failure for one in found] == ["too_long", None]
