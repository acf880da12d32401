"""The factory, and the evaluators that need no trained model: known answers and bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import GenerateRequest, Generation
from dynamicrubric.engines.choice import Engines
from dynamicrubric.engines.models import Models
from dynamicrubric.engines.programmatic import ProgrammaticVerifier
from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.base import Cost, ScoredSet
from dynamicrubric.evaluators.build import build_evaluator
from dynamicrubric.evaluators.guard import BAD_CHARACTER
from dynamicrubric.evaluators.judging import Judging, ResponseSet
from dynamicrubric.evaluators.metering import MeteredEngine, MeteredVerifier
from dynamicrubric.evaluators.rubricscores import PromptWriter, RubricEvaluator
from dynamicrubric.evaluators.spec import EvaluatorSpec
from dynamicrubric.evaluators.writers import DynamicWriter
from dynamicrubric.worlds.base import POSTCARDS, world_named
from dynamicrubric.worlds.language.criteria import check
from dynamicrubric.worlds.postcards.criteria import true_quality
from dynamicrubric.worlds.postcards.prompts import all_prompts
from dynamicrubric.worlds.prepared import PreparedData

RUBRIC = '[{"criterion":"gives a number","weight":3},{"criterion":"has code","weight":1}]'
SAMPLING = Sampling(temperature=1.0, min_p=0.0, max_tokens=8)


class FakeGenerator:
    """Writes one rubric for everything and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[GenerateRequest] = []

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling) -> list[Generation]:
        self.asked += requests
        return [Generation((7, 8, 9), RUBRIC, "stop") for _ in requests]


def by_rubric(kind: str) -> tuple[RubricEvaluator, FakeGenerator]:
    generator = FakeGenerator()
    engine, verifier = MeteredEngine(generator), MeteredVerifier(ProgrammaticVerifier(check))
    writer = DynamicWriter(engine, lambda p, rs: [len(p), *map(len, rs)], SAMPLING)
    judging = Judging(verifier, 1, 5, 1.0, 1.0)
    chosen = writer if kind == "dynamic" else PromptWriter(writer, 5)
    return (
        RubricEvaluator(kind, kind == "dynamic", chosen, judging, engine, verifier),
        generator,
    )


def values(scored: ScoredSet) -> list[float | None]:
    return [score.value for score in scored.scores]


def test_dynamic_scores_weighted_share_and_counts_what_it_took() -> None:
    evaluator, _ = by_rubric("dynamic")
    scored = evaluator.score([ResponseSet("a", "Hi", ("7", "```7", "no"))], [1])
    assert values(scored[0]) == [0.75, 1.0, 0.0]
    assert scored[0].cost == Cost(calls=1, prompt_tokens=4, completion_tokens=3, verdicts=6)
    assert scored[0].rubric_text == RUBRIC


def test_static_writes_once_a_prompt_sees_no_response_and_bills_the_first_set() -> None:
    evaluator, generator = by_rubric("static")
    one = ResponseSet("a", "Hi", ("7", "no"))
    sets = [one, ResponseSet("b", "Ho", ("7",)), ResponseSet("a", "Hi", ("x",))]
    first = evaluator.score(sets, [1, 2, 3])
    again = evaluator.score([one], [9])
    assert [len(request.prompt_ids) for request in generator.asked] == [1, 1]
    assert [s.cost.calls for s in [*first, *again]] == [1, 1, 0, 0]
    assert values(again[0]) == values(first[0]) == [0.75, 0.0]


def test_static_draws_by_its_seed_and_prompt_alone() -> None:
    seeds = []
    for set_seed in (1, 2):
        evaluator, generator = by_rubric("static")
        evaluator.score([ResponseSet("a", "Hi", ("7",))], [set_seed])
        seeds.append(generator.asked[0].seed)
    assert seeds[0] == seeds[1]


def test_length_orders_by_characters() -> None:
    evaluator = build_evaluator(EvaluatorSpec(kind="length"))
    (scored,) = evaluator.score([ResponseSet("a", "Hi", ("", "x" * 1000, "x" * 65_000, "yy"))], [1])
    found = values(scored)
    assert found[:2] == [0.0, 0.5]
    assert sorted(found, key=lambda value: value or 0.0) == [found[i] for i in (0, 3, 1, 2)]
    assert scored.cost == Cost()


def test_random_is_a_function_of_seed_and_text() -> None:
    evaluator = build_evaluator(EvaluatorSpec(kind="random"))
    one = ResponseSet("a", "Hi", ("x", "y", "x"))
    first, again, other = evaluator.score([one, one, one], [1, 1, 2])
    assert values(first) == values(again) != values(other)
    assert first.scores[0] == first.scores[2] != first.scores[1]


def test_random_is_uniform() -> None:
    evaluator = build_evaluator(EvaluatorSpec(kind="random"))
    sets = [ResponseSet("a", "Hi", tuple(map(str, range(20))))] * 100
    found = [v for s in evaluator.score(sets, range(100)) for v in values(s) if v is not None]
    assert abs(sum(found) / 2000 - 0.5) < 4 * (1 / 12 / 2000) ** 0.5
    assert sum(v < 0.1 for v in found) / 2000 == pytest.approx(0.1, abs=0.03)


def test_oracle_is_true_quality_and_unknown_prompts_are_unscored() -> None:
    prompt = all_prompts()[0]
    world = world_named(POSTCARDS)
    evaluator = build_evaluator(EvaluatorSpec(kind="oracle"), world)
    text = "Dear Emma, thank you."
    known, unknown = evaluator.score(
        [ResponseSet(prompt.id, prompt.text, (text,)), ResponseSet("?", "?", (text,))], [1, 1]
    )
    assert values(known) == [pytest.approx((true_quality(prompt, text) + 1) / 2)]
    assert unknown.scores[0].reason == "unknown_prompt"


def test_programmatic_is_the_worlds_rules() -> None:
    evaluator = build_evaluator(EvaluatorSpec(kind="programmatic"), world_named(POSTCARDS))
    (scored,) = evaluator.score([ResponseSet("a", "Hi", ("", "Dear Anna, all the best."))], [1])
    low, high = values(scored)
    assert low is not None
    assert high is not None
    assert low < high
    assert scored.cost.calls == 0
    assert scored.cost.verdicts == 10


def test_programmatic_reads_a_rubric_of_ones_own() -> None:
    evaluator = build_evaluator(EvaluatorSpec(kind="programmatic", rubric=RUBRIC))
    (scored,) = evaluator.score([ResponseSet("a", "Hi", ("7", "no"))], [1])
    assert values(scored) == [0.75, 0.0]


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ({"kind": "programmatic"}, "nobody wrote a rubric"),
        ({"kind": "programmatic", "rubric": "[]"}, "no_items"),
        (
            {"kind": "programmatic", "rubric": '[{"criterion":"is kind","weight":1}]'},
            "no program",
        ),
        ({"kind": "oracle"}, "nobody knows true quality"),
        ({"kind": "dynamic"}, "no engines"),
    ],
)
def test_build_refuses_with_a_reason(spec: dict[str, str], part: str) -> None:
    with pytest.raises(UserError, match=part):
        build_evaluator(EvaluatorSpec.model_validate(spec))


@pytest.mark.parametrize("kind", ["length", "random", "programmatic", "oracle"])
def test_bad_sets_have_scores_or_reasons(kind: str) -> None:
    evaluator = build_evaluator(
        EvaluatorSpec.model_validate({"kind": kind}), world_named(POSTCARDS)
    )
    prompt = all_prompts()[0]
    sets = [
        ResponseSet(prompt.id, prompt.text, ()),
        ResponseSet(prompt.id, prompt.text, ("only one",)),
        ResponseSet(prompt.id, prompt.text, ("same", "same")),
        ResponseSet(prompt.id, prompt.text, ("", "x" * 65_000, "<|answer|>\x00")),
        ResponseSet(prompt.id, prompt.text, ("\ud800", "fine")),
        ResponseSet(prompt.id, "\udfff", ("fine",)),
        ResponseSet(prompt.id, prompt.text, ("", "fine"), ("too_long", None)),
    ]
    scored = evaluator.score(sets, range(len(sets)))
    assert [len(one.scores) for one in scored] == [0, 1, 2, 3, 2, 1, 2]
    assert scored[2].scores[0] == scored[2].scores[1]
    assert all(score.is_scored for one in scored[:4] for score in one.scores)
    reason = f"failed_response:{BAD_CHARACTER}"
    assert [score.reason for score in scored[4].scores] == [reason, None]
    assert scored[5].scores[0].reason == reason
    assert [score.reason for score in scored[6].scores] == ["failed_response:too_long", None]


def test_factory_imports_no_torch() -> None:
    code = "import sys, dynamicrubric.evaluators.build; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_static_arm_without_a_checkpoint_scores_its_own_prompts_by_its_kept_rubrics(
    tmp_path: Path,
) -> None:
    prompt = all_prompts()[0]
    rubric = '[{"criterion":"greets the reader","weight":1}]'
    row = {"prompt_id": prompt.id, "text": rubric, "finish_reason": "stop"}
    (tmp_path / "rubrics.jsonl").write_text(json.dumps(row) + "\n")
    prepared = PreparedData(
        {"train": {prompt.id: prompt.text}, "heldout": {}}, {}, world_named(POSTCARDS)
    )
    spec = EvaluatorSpec(kind="static", generator=str(tmp_path))
    with Engines(Models()) as engines:
        evaluator = build_evaluator(spec, prepared, engines)
        known, other = evaluator.score(
            [
                ResponseSet(prompt.id, prompt.text, ("Dear Emma,", "no")),
                ResponseSet(prompt.id, "another prompt under its name", ("Dear Emma,",)),
            ],
            [1, 1],
        )
    assert values(known) == [1.0, 0.0]
    assert known.rubric_text == rubric
    assert known.cost == Cost(verdicts=2)
    assert other.scores[0].reason == "invalid_rubric:failed"
    assert other.breakdown["detail"] == "not_kept"
