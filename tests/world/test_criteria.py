"""Criteria against a second implementation; worths, true quality and the world's neutrality."""

from __future__ import annotations

import re
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamicrubric.seeds import generator_for
from dynamicrubric.worlds.postcards.criteria import (
    COLOURS,
    WEEKDAYS,
    check,
    criteria_for,
    true_quality,
    vocabulary,
)
from dynamicrubric.worlds.postcards.prompts import PostcardPrompt, all_prompts
from dynamicrubric.worlds.postcards.texts import compose

PROMPTS = all_prompts()
TEXTS_PER_PROMPT = 20


def composed(prompt: PostcardPrompt, count: int = TEXTS_PER_PROMPT) -> list[str]:
    rng = generator_for("test_criteria", prompt.id)
    return [compose(prompt, rng) for _ in range(count)]


@pytest.fixture(scope="module")
def corpus() -> dict[PostcardPrompt, list[str]]:
    return {prompt: composed(prompt) for prompt in PROMPTS}


def tokens(text: str) -> list[str]:
    return [token for token in re.split(r"[^A-Za-z']+", text) if token]


def reference(criterion: str, text: str) -> bool:
    """Judge once more, from the words of the criterion and not from the product's table."""
    lower = [token.lower() for token in tokens(text)]
    last = text.strip()[-1:]
    kind, _, rest = criterion.partition(" ")
    if kind == "mentions" and rest.startswith("the "):
        return rest.removeprefix("the ").lower() in lower
    if kind == "leaves" and rest.startswith("out the "):
        return rest.removeprefix("out the ").lower() not in lower
    known = {
        "greets the reader": "dear" in lower,
        "sends a wish": "happy" in lower,
        "says thank you": re.search("thank you", text, re.IGNORECASE) is not None,
        "gives a number": re.search("[0-9]", text) is not None,
        "names a colour": not set(COLOURS).isdisjoint(lower),
        "names a weekday": not {day.lower() for day in WEEKDAYS}.isdisjoint(lower),
        "sends a hug": "hug" in lower,
        "ends with a full stop": last == ".",
        "ends with a question mark": last == "?",
        "shouts in capitals": any(
            len(t) > 2 and t == t.upper() and t != t.lower() for t in tokens(text)
        ),
        "says something vague": "something" in lower,
        "mentions money": "money" in lower,
        "mentions work": "work" in lower,
        "tells of a headache": "headache" in lower,
        "uses slang": "gonna" in lower,
        "repeats a word": any(lower[i] == lower[i - 1] for i in range(1, len(lower))),
        "opens with an article": lower[:1] in (["a"], ["an"], ["the"]),
    }
    opposites = {
        "gives no greeting": "greets the reader",
        "sends no wish": "sends a wish",
        "gives no thanks": "says thank you",
        "gives no number": "gives a number",
        "names no colour": "names a colour",
        "names no weekday": "names a weekday",
        "sends no hug": "sends a hug",
        "does not shout": "shouts in capitals",
        "is never vague": "says something vague",
        "repeats no word": "repeats a word",
        "opens without an article": "opens with an article",
        "keeps off money": "mentions money",
        "keeps off work": "mentions work",
        "keeps off illness": "tells of a headache",
        "uses no slang": "uses slang",
    }
    if criterion in opposites:
        return not known[opposites[criterion]]
    if criterion not in known:
        pytest.fail(f"no second implementation of {criterion!r}: add one here")
    return known[criterion]


def test_check_agrees_with_the_second_implementation_on_composed_texts(
    corpus: dict[PostcardPrompt, list[str]],
) -> None:
    for prompt, texts in corpus.items():
        for text in texts[:3]:
            for criterion in (c.criterion for c in criteria_for(prompt)):
                assert check(criterion, text) == reference(criterion, text), (criterion, text)


PIECES = st.sampled_from(
    [
        *("dear", "Anna", "ANNA", "thank", "you", "Thank you", "WOW", "wow", "OK", "'''", "it's"),
        *("something", "money", "the", "The", "a", "an", "very", "tram", "Tram", "trams", "red"),
        *("reddish", "7", "Friday", "hug", "work", "works"),
        *(".", "?", "!", ",", "  ", "\n", "wedding", "don't don't", "TRAM's"),
    ]
)


@given(
    st.lists(PIECES, max_size=30).map(" ".join) | st.lists(PIECES, max_size=12).map("".join),
    st.sampled_from(vocabulary()),
)
def test_check_agrees_with_the_second_implementation_on_odd_texts(
    text: str, criterion: str
) -> None:
    assert check(criterion, text) == reference(criterion, text)


@given(st.text())
def test_check_answers_for_any_response(text: str) -> None:
    assert all(isinstance(check(criterion, text), bool) for criterion in vocabulary())


@pytest.mark.parametrize(
    "sentence",
    [
        "",
        "is poetic",
        "mentions the",
        "leaves out the ",
        "leaves out the big tram",
        "mentions the ",
        "mentions the big tram",
        "MENTIONS the tram",
        "greets Anna",
    ],
)
def test_check_of_an_unknown_sentence_is_none(sentence: str) -> None:
    assert check(sentence, "dear Anna, saw the tram.") is None


def test_vocabulary_is_every_criterion_of_every_prompt() -> None:
    used = {c.criterion for prompt in PROMPTS for c in criteria_for(prompt)}
    assert used == set(vocabulary())
    assert len(vocabulary()) == len(set(vocabulary()))


def test_every_criterion_is_met_and_unmet_by_some_composed_text(
    corpus: dict[PostcardPrompt, list[str]],
) -> None:
    seen: dict[str, set[bool | None]] = defaultdict(set)
    for prompt, texts in corpus.items():
        for criterion in (c.criterion for c in criteria_for(prompt)):
            seen[criterion] |= {check(criterion, text) for text in texts}
    assert {c: v for c, v in seen.items() if v != {True, False}} == {}


@pytest.mark.parametrize("prompt", PROMPTS[::17], ids=lambda prompt: prompt.id)
def test_criteria_are_twenty_each_way_of_mirrored_worth(prompt: PostcardPrompt) -> None:
    criteria = criteria_for(prompt)
    good = [c.worth for c in criteria if c.worth > 0]
    bad = [c.worth for c in criteria if c.worth < 0]
    assert len(good) == len(bad) == 20
    assert good == [-worth for worth in bad]
    assert len({c.criterion for c in criteria}) == 40


def reference_quality(prompt: PostcardPrompt, text: str) -> float:
    signed = np.array([c.worth for c in criteria_for(prompt)])
    met = np.array([reference(c.criterion, text) for c in criteria_for(prompt)])
    gain, loss = signed.clip(min=0), (-signed).clip(min=0)
    return float(Fraction(int(gain @ met) - int(loss @ met), int(gain.sum())))


def test_true_quality_is_worth_won_less_worth_lost(
    corpus: dict[PostcardPrompt, list[str]],
) -> None:
    for prompt, texts in corpus.items():
        for text in texts[:2]:
            assert true_quality(prompt, text) == pytest.approx(reference_quality(prompt, text))


@given(st.sampled_from(PROMPTS), st.text() | st.lists(PIECES).map(" ".join))
def test_true_quality_of_any_text_is_within_one(prompt: PostcardPrompt, text: str) -> None:
    assert -1.0 <= true_quality(prompt, text) <= 1.0


def perfect(prompt: PostcardPrompt, *, good: bool) -> str:
    """Write the postcard that meets every criterion of one way and none of the other."""
    wanted = [c.criterion for c in criteria_for(prompt) if (c.worth > 0) == good]
    sights = [c.removeprefix("mentions the ") for c in wanted if c.startswith("mentions the ")]
    if good:
        said = f"dear {prompt.recipient}, happy {prompt.occasion}, thank you, red, 7, hug, Friday"
        return ", ".join([said, *sights]) + "."
    said = "the WOW, something, money, work, headache, gonna, very very"
    return ", ".join([said, *sights]) + "?"


@pytest.mark.parametrize("prompt", PROMPTS[::31], ids=lambda prompt: prompt.id)
def test_true_quality_reaches_both_ends(prompt: PostcardPrompt) -> None:
    assert true_quality(prompt, perfect(prompt, good=True)) == 1.0
    assert true_quality(prompt, perfect(prompt, good=False)) == -1.0


def test_world_is_direction_neutral(corpus: dict[PostcardPrompt, list[str]]) -> None:
    qualities = [true_quality(prompt, text) for prompt, texts in corpus.items() for text in texts]
    assert abs(np.mean(qualities)) < 0.03, "the start texts point somewhere"
    assert np.std(qualities) > 0.1, "the start texts are all alike"


def test_good_criteria_are_met_as_often_as_the_bad_ones_they_mirror(
    corpus: dict[PostcardPrompt, list[str]],
) -> None:
    met = np.zeros(40)
    for prompt, texts in corpus.items():
        for place, criterion in enumerate(c.criterion for c in criteria_for(prompt)):
            met[place] += sum(bool(check(criterion, text)) for text in texts)
    rates = met / (len(corpus) * TEXTS_PER_PROMPT)
    assert np.abs(rates[:20] - rates[20:]).max() < 0.1, rates.round(2).tolist()
    assert abs(rates[:20].mean() - rates[20:].mean()) < 0.02
