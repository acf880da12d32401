"""Thinking blocks are no part of an answer, and an answer that spells one is left alone."""

from __future__ import annotations

import doctest

import pytest

from dynamicrubric.engines import thinking
from dynamicrubric.engines.base import Generation
from dynamicrubric.engines.thinking import answer_of, answer_slot, without_thinking


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("yes", "yes"),
        (" yes", " yes"),
        ("", ""),
        ("<think>no</think>yes", "yes"),
        ("\n<think>\nno\n</think>\n\nyes\n", "yes\n"),
        ("<think></think>yes", "yes"),
        ("<think>a</think><think>b</think>yes", "yes"),
        ("<thinking>no</thinking>yes", "yes"),
        ("[THINK]no[/THINK]yes", "yes"),
        ("<think>no</think>", ""),
        ("<think>yes", None),
        ("<think>a</think><think>yes", None),
        ("<think>no</thinking>yes", None),
        # An answer's own text, such as a criterion that speaks of the marks.
        (
            '[{"criterion": "It has no <think> or </think>."}]',
            '[{"criterion": "It has no <think> or </think>."}]',
        ),
        ("</think>yes", "</think>yes"),
    ],
)
def test_answer_is_what_follows_the_thinking(text: str, answer: str | None) -> None:
    assert answer_of(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("no\n</think>\n\nyes", "yes"),
        ("</think>yes", "yes"),
        ("no</think>yes</think>", "yes</think>"),
        ("yes", None),
        ("", None),
    ],
)
def test_answer_behind_a_block_that_the_prompt_opened(text: str, answer: str | None) -> None:
    assert answer_of(text, opened=True) == answer


@pytest.mark.parametrize(
    ("tokens", "slot"),
    [
        (["Yes"], 0),
        (["\n", "Yes"], 0),  # as an engine that looks at the first token alone
        (["<think>", "no", "</think>", "\n\n", "Yes", "."], 4),
        (["<th", "ink>", "no</", "think> Ye", "s"], 3),
        (["<think>", "yes"], None),
        (["<think>", "no", "</think>", "\n"], None),
        ([], None),
    ],
)
def test_slot_is_the_token_that_begins_the_answer(tokens: list[str], slot: int | None) -> None:
    assert answer_slot(tokens) == slot


def test_generation_keeps_its_tokens_and_loses_its_thinking() -> None:
    whole = Generation((1, 2, 3), "<think>a</think>b", "stop", (-0.1, -0.2, -0.3))
    found = without_thinking(whole)
    assert (found.text, found.token_ids, found.logprobs) == ("b", (1, 2, 3), (-0.1, -0.2, -0.3))
    assert found.finish_reason == "stop"


def test_generation_that_thinks_without_end_counts_as_truncated() -> None:
    found = without_thinking(Generation((1,), "<think>[1]", "stop"))
    assert (found.text, found.finish_reason) == ("", "length")


def test_examples_of_the_module_hold() -> None:
    result = doctest.testmod(thinking)
    assert (result.failed, result.attempted) == (0, 2)
