"""What makes two texts the same text."""

from __future__ import annotations

import doctest
import importlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamicrubric.data.normalise import normalise, prompt_key, sentences, words

TEXTS = st.text(
    alphabet=st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(" \t\n-+*/^%=<>0123ab#_.,|\u4f60\ue000\u2212"),
    ),
    max_size=60,
)


@pytest.mark.parametrize("name", ["normalise", "grams", "rows", "splits"])
def test_module_examples_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"dynamicrubric.data.{name}"))
    assert result.failed == 0
    assert result.attempted > 0


@given(TEXTS)
@settings(max_examples=200, deadline=None)
def test_normalise_twice_changes_nothing_more(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert words(once) == words(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is the capital of France?", "  what is\nthe CAPITAL of   France  "),
        ("**Write** a `poem`.", "Write a poem"),
        ("well-known and/or new", "well known and or new"),
        ("\uff26\uff55\uff4c\uff4c width", "full width"),
        ("co\u00adoperate", "cooperate"),
        ("stra\u00dfe", "STRASSE"),
        ("3 \u2212 2", "3-2"),
        ("snake_case", "snake case"),
        ("- one\n- two", "* one\n* two"),
    ],
)
def test_normalise_dressing_does_not_count(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 3 - 2?", "What is 3 + 2?"),
        ("Hello world in C++", "Hello world in C"),
        ("Hello world in C#", "Hello world in C"),
        ("10% of 50", "10 of 50"),
        ("It costs $5", "It costs \u20ac5"),
        ("\u0915\u093f", "\u0915\u093e"),
        ("\U0001f600", "\U0001f622"),
        ("x + 1 = 2", "x 1 2"),
    ],
)
def test_normalise_what_changes_the_question_counts(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


def test_words_of_chinese_are_its_characters() -> None:
    assert words("\u4f60\u597d, World") == ["\u4f60", "\u597d", "world"]


def test_prompt_key_without_a_word_is_the_text_itself() -> None:
    assert prompt_key("?!") == "?!"
    assert prompt_key("?!") != prompt_key("...")


def test_sentences_are_split_at_lines_and_full_stops() -> None:
    assert sentences("Be kind. What is it?\nYes\n\n...") == ["be kind", "what is it", "yes"]
