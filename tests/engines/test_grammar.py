"""Completions kept to a schema: valid as far as a grammar can see, and each by its own seed."""

from __future__ import annotations

import pytest
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer

from dynamicrubric.config import Sampling
from dynamicrubric.engines.base import Constrained, GenerateRequest, Generation
from dynamicrubric.engines.grammar import Grammar
from dynamicrubric.engines.tokenizer import FrameTokenizer
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.errors import UserError
from dynamicrubric.prompts.frames import generator_prompt
from dynamicrubric.rubrics import parse_rubric, render_rubric, rubric_schema
from dynamicrubric.types import InvalidReason, InvalidRubric, Item, Rubric

SCHEMA = rubric_schema(min_items=2, max_items=3, max_criterion_chars=9)
SAMPLING = Sampling(temperature=1.0, min_p=0.0, max_tokens=250)


@pytest.fixture(scope="module")
def requests(tokenizer: FrameTokenizer) -> list[GenerateRequest]:
    prompts = [generator_prompt(tokenizer, "Write", ["dear Anna."] * n) for n in (1, 3)]
    return [GenerateRequest(ids, seed) for ids in prompts for seed in range(4)]


def read(one: Generation) -> Rubric | InvalidRubric:
    return parse_rubric(
        one.text,
        min_items=2,
        max_items=3,
        max_criterion_chars=9,
        finish_reason=one.finish_reason,
    )


def test_random_weights_write_valid_rubrics_under_the_schema_and_none_without(
    engine: TransformersEngine, requests: list[GenerateRequest]
) -> None:
    kept = Constrained(engine, SCHEMA).generate(requests, SAMPLING)
    assert all(isinstance(read(one), Rubric) for one in kept), [read(one) for one in kept]
    assert len({one.text for one in kept}) == len(kept)
    free = engine.generate(requests, SAMPLING)
    assert not any(isinstance(read(one), Rubric) for one in free)


def test_request_under_a_schema_gets_its_tokens_alone_and_among_neighbours(
    engine: TransformersEngine, requests: list[GenerateRequest]
) -> None:
    together = engine.generate(requests, SAMPLING, SCHEMA)
    alone = [engine.generate([request], SAMPLING, SCHEMA)[0] for request in requests]
    assert together == alone


def test_text_cut_at_the_limit_is_truncated_under_a_schema_too(
    engine: TransformersEngine, requests: list[GenerateRequest]
) -> None:
    (cut,) = engine.generate(requests[:1], SAMPLING.model_copy(update={"max_tokens": 9}), SCHEMA)
    found = read(cut)
    assert isinstance(found, InvalidRubric)
    assert found.reason is InvalidReason.TRUNCATED


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (render_rubric(Rubric((Item("It greets.", 1), Item("Schöne Grüße: “ja”", 5)))), True),
        (render_rubric(Rubric((Item('It says "hello" \\ no', 1),))), True),
        (render_rubric(Rubric((Item("7 words?", 3),))), True),
        ('[{"criterion":"It greets.","weight":6}]', False),
        ('[{"criterion":"It greets.","weight":1.0}]', False),
        ('[{"criterion":"It\\ngreets.","weight":1}]', False),
        ('[{"criterion":"It\\u2028greets.","weight":1}]', False),
        ('[{"criterion":"It greets."}]', False),
        ('[{"criterion":"It greets.","weight":1,"why":"so"}]', False),
        ('[{"criterion":"...","weight":1}]', False),
        ("[]", False),
        ('Here it is: [{"criterion":"It greets.","weight":1}]', False),
        (render_rubric(Rubric(tuple(Item(f"Item {n}", 1) for n in range(5)))), False),
        (render_rubric(Rubric((Item("x" * 301, 1),))), False),
        (render_rubric(Rubric((Item("x" * 300, 1),))), True),
    ],
)
def test_schema_takes_what_the_parser_takes(
    tokenizer: FrameTokenizer, text: str, fits: bool
) -> None:
    grammar = LLMatcher.grammar_from_json_schema(
        rubric_schema(max_items=4), defaults={"whitespace_flexible": False}
    )
    matcher = LLMatcher(from_tokenizer(tokenizer.hf), grammar)
    ids = [*tokenizer.content(text), tokenizer.eos_id]
    assert (matcher.validate_tokens(ids) == len(ids)) is fits
    assert isinstance(parse_rubric(text, max_items=4), Rubric) is fits


def test_schema_that_cannot_be_followed_is_refused(tokenizer: FrameTokenizer) -> None:
    with pytest.raises(UserError, match="constrained decoding"):
        Grammar(tokenizer.hf, len(tokenizer.hf), {"type": "string", "pattern": "(?=a)b"})
