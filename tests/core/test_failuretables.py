"""A response that an engine never gave stays unscored through every table that keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from dynamicrubric.engines.base import Generation, JudgeRequest
from dynamicrubric.evaluation import SampledSet, evaluate_sets, evaluate_without_rubrics
from dynamicrubric.evaluationfiles import read_sets, write_evaluation
from dynamicrubric.evaluators.judging import Judging, ResponseSet
from dynamicrubric.evaluators.writers import FixedWriter, KeptWriter
from dynamicrubric.stepparts import training_sets, write_sets
from dynamicrubric.types import InvalidRubric, Verdict

GENERATIONS = (
    Generation((1, 2), "good", "stop"),
    Generation.failed("content_filter"),
    Generation((1,), "", "stop"),
)
SET = SampledSet("p/0", ResponseSet.of("p", "Write", GENERATIONS), GENERATIONS, (0.5, None, 0.0))
FAILED = "failed_response:content_filter"


class Verifier:
    """Says yes to everything it is asked, and keeps what that was."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def accepts(self, criterion: str) -> bool:
        return True

    def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        self.asked += [request.response for request in requests]
        return [[Verdict.yes()] * len(request.criteria) for request in requests]


def judging(verifier: Verifier) -> Judging:
    return Judging(verifier, 1, 2, max_invalid_rate=1.0, max_unscored_rate=1.0)


def test_evaluation_neither_judges_nor_measures_it(tmp_path: Path) -> None:
    verifier, asked = Verifier(), []

    def quality(prompt_id: str, text: str) -> float:
        asked.append(text)
        return 0.5

    writer = FixedWriter('[{"criterion":"is good","weight":1}]')
    found = evaluate_sets([SET], writer, judging(verifier), quality, (1,))
    assert verifier.asked == asked == ["good", ""]
    assert [row["true_quality"] for row in found.responses] == [0.5, None, 0.5]
    assert [row["score_reason"] for row in found.responses] == [None, FAILED, None]
    for name, value in (("true_quality", 0.5), ("response_length", 1.5), ("kl", 0.25)):
        figure = found.metrics[name]
        assert (figure.value, figure.n_scored, figure.n_total) == (value, 2, 3)
    assert found.metrics["r_disc"].value is None

    write_evaluation(found, tmp_path)
    (again,), known = read_sets(tmp_path)
    assert again.responses == SET.responses
    assert known("p", "") == 0.5


def test_evaluation_under_an_invalid_rubric_or_none_still_tells_it_from_the_others() -> None:
    invalid = evaluate_sets([SET], FixedWriter("["), judging(Verifier()), lambda *_: 0.5, (1,))
    none = evaluate_without_rubrics([SET], lambda *_: 0.5)
    reasons = [[row["score_reason"] for row in found.responses] for found in (invalid, none)]
    assert reasons[0] == ["invalid_rubric:not_json", FAILED, "invalid_rubric:not_json"]
    assert reasons[1] == ["no_rubric", FAILED, "no_rubric"]


def test_sampled_sets_keep_it_for_the_training(tmp_path: Path) -> None:
    cell: Any = SimpleNamespace(generator_training=SimpleNamespace(responses="current"))
    prepared: Any = SimpleNamespace(prompts={"train": {"p": "Write"}})
    path = tmp_path / "responses.parquet"
    write_sets([SET], path)
    assert training_sets(cell, prepared, tmp_path) == {"p/0": SET.responses}
    assert SET.responses.shown == ("good", "")
    whole = ResponseSet.of("p", "Write", GENERATIONS[::2])
    write_sets([SampledSet("p/0", whole, GENERATIONS[::2], ())], path)
    assert "failure" not in pd.read_parquet(path)
    assert training_sets(cell, prepared, tmp_path) == {"p/0": whole}


def test_kept_rubric_that_was_never_given_is_invalid_for_that_reason(tmp_path: Path) -> None:
    KeptWriter({"p": Generation.failed("too_long")}).save(tmp_path)
    (found,) = KeptWriter.load(tmp_path).write([SET.responses], [1])
    rubric = judging(Verifier()).read(found)
    assert isinstance(rubric, InvalidRubric)
    assert (rubric.reason, rubric.detail) == ("failed", "too_long")
