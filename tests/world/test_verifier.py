"""The programmatic verifier: right without noise, wrong and silent as often as it is told to be."""

from __future__ import annotations

from collections import Counter

import pytest

from dynamicrubric.engines.base import JudgeRequest
from dynamicrubric.engines.programmatic import ProgrammaticVerifier
from dynamicrubric.seeds import derive_seed, generator_for
from dynamicrubric.types import Verdict
from dynamicrubric.worlds.postcards.criteria import check, criteria_for, vocabulary
from dynamicrubric.worlds.postcards.prompts import all_prompts
from dynamicrubric.worlds.postcards.texts import compose


def requests(run: int = 0) -> list[JudgeRequest]:
    found = []
    for prompt in all_prompts()[::2]:
        rng = generator_for("verifier", prompt.id)
        criteria = tuple(c.criterion for c in criteria_for(prompt))
        found.append(JudgeRequest(compose(prompt, rng), criteria, derive_seed(run, prompt.id)))
    return found


def counts(error_rate: float, failure_rate: float, run: int = 0) -> Counter[str]:
    asked = requests(run)
    found = Counter[str]()
    rows = ProgrammaticVerifier(check, error_rate, failure_rate).judge(asked)
    for request, row in zip(asked, rows, strict=True):
        for criterion, verdict in zip(request.criteria, row, strict=True):
            truth = Verdict.yes() if check(criterion, request.response) else Verdict.no()
            found[verdict.reason or ("right" if verdict == truth else "wrong")] += 1
    return found


def test_verifier_without_noise_is_right() -> None:
    assert set(counts(0.0, 0.0)) == {"right"}


@pytest.mark.parametrize(
    ("error_rate", "failure_rate"), [(0.2, 0.0), (0.0, 0.3), (0.25, 0.4), (1.0, 0.0), (0.5, 1.0)]
)
def test_verifier_errs_and_fails_as_often_as_told(error_rate: float, failure_rate: float) -> None:
    found = counts(error_rate, failure_rate)
    total = found.total()
    for name, rate in (
        ("verifier_failure", failure_rate),
        ("wrong", error_rate * (1 - failure_rate)),
        ("right", (1 - error_rate) * (1 - failure_rate)),
    ):
        sigma = (rate * (1 - rate) / total) ** 0.5
        assert abs(found[name] / total - rate) <= 4 * sigma, name


def test_verifier_repeats_itself_for_a_seed_and_not_for_another() -> None:
    noisy = ProgrammaticVerifier(check, 0.3, 0.3)
    assert noisy.judge(requests(1)) == noisy.judge(requests(1))
    assert noisy.judge(requests(1)) != noisy.judge(requests(2))


def test_verdict_does_not_depend_on_what_else_is_asked() -> None:
    noisy = ProgrammaticVerifier(check, 0.3, 0.3)
    asked = requests()[:20]
    together = noisy.judge(asked)
    for request, row in zip(asked, together, strict=True):
        for criterion, verdict in zip(request.criteria, row, strict=True):
            alone = JudgeRequest(request.response, [criterion], request.seed)
            assert noisy.judge([alone]) == [[verdict]]


def test_verifier_fails_on_both_kinds_of_truth_alike() -> None:
    failed = Counter[bool]()
    total = Counter[bool]()
    asked = requests()
    for request, row in zip(asked, ProgrammaticVerifier(check, 0.0, 0.5).judge(asked), strict=True):
        for criterion, verdict in zip(request.criteria, row, strict=True):
            truth = bool(check(criterion, request.response))
            total[truth] += 1
            failed[truth] += not verdict.is_scored
    rates = [failed[truth] / total[truth] for truth in (True, False)]
    assert abs(rates[0] - rates[1]) < 4 * (0.25 / total[True] + 0.25 / total[False]) ** 0.5


def test_verifier_accepts_what_it_can_check_and_leaves_the_rest_unscored() -> None:
    verifier = ProgrammaticVerifier(check)
    assert all(verifier.accepts(criterion) for criterion in vocabulary())
    assert not verifier.accepts("is poetic")
    verdict = verifier.judge([JudgeRequest("dear Anna.", ["is poetic"], 0)])[0][0]
    assert verdict.reason == "uncheckable_criterion"
