from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamicrubric.errors import UserError
from dynamicrubric.types import Verdict
from dynamicrubric.verdicts import (
    LANGUAGES,
    label_ids,
    read_verdict_text,
    verdict_from_logprobs,
    verdict_from_masses,
)

ALL = tuple(LANGUAGES)
WORDS = frozenset[str]().union(*(words.yes | words.no for words in LANGUAGES.values()))


def read(reply: str, *languages: str) -> Verdict:
    return read_verdict_text(reply, finish_reason="stop", languages=languages or ("en",))


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("**Yes**", "yes"),
        ("yes.", "yes"),
        ("YES!", "yes"),
        ("- no", "no"),
        (" Yes\n", "yes"),
        ('"No."', "no"),
        ("_no_", "no"),
        ("> Yes", "yes"),
        ("ＹＥＳ", "yes"),  # noqa: RUF001 full-width letters are the point
    ],
)
def test_read_verdict_whole_token_is_decided(reply: str, value: str) -> None:
    assert read(reply).value == value


@pytest.mark.parametrize(
    "reply",
    [
        "No errors found, so yes",
        "Yesterday's facts are wrong: no",
        "Not yes",
        "yes/no",
        "Yes, but only partly",
        "yes no",
        "yes\nno",
        "yes?",
        "!yes",
        "~~yes~~",
        "nope",
        "INCORRECT",
        "unsafe.",
        "2",
        '{"answer": "yes"}',
        "A",
    ],
)
def test_read_verdict_prose_is_never_searched(reply: str) -> None:
    assert read(reply, *ALL) == Verdict.unscored("unreadable")


@pytest.mark.parametrize(
    "reply",
    [
        "I'm sorry, I can't help with that.",
        "I\u2019m sorry, but no.",
        "I cannot judge this text.",
        "Sorry, but I can't fulfil this request",
        "As an AI language model, I do not judge.",
        "Lo siento, no puedo ayudar.",
        "很抱歉，我不能。",  # noqa: RUF001 Chinese punctuation
    ],
)
def test_read_verdict_refusal_is_unscored_as_refusal(reply: str) -> None:
    assert read(reply).reason == "refusal"


@pytest.mark.parametrize("reply", ["yes", "No.", "", "I'm sorry"])
def test_read_verdict_cut_at_the_token_limit_is_unscored(reply: str) -> None:
    # Case 6: a short answer survives the cut and a long one does not, so neither is read.
    assert read_verdict_text(reply, finish_reason="length").reason == "truncated"


@pytest.mark.parametrize("reply", ["", " \n", "\u3000"])
def test_read_verdict_empty_reply_is_unscored(reply: str) -> None:
    assert read(reply).reason == "empty"


@pytest.mark.parametrize(
    ("reply", "language", "value"),
    [("Sí", "es", "yes"), ("是", "zh", "yes"), ("いいえ", "ja", "no"), ("Да", "ru", "yes"),
     ("« Oui ! »", "fr", "yes"), ("¡Sí!", "es", "yes"), ("Nein.", "de", "no"),
     ("否。", "zh", "no"), ("S\u0069\u0301", "es", "yes"), ("Нет", "ru", "no")],
)  # fmt: skip
def test_read_verdict_other_language_needs_configuring(
    reply: str, language: str, value: str
) -> None:
    assert read(reply, "en", language).value == value
    assert not read(reply).is_scored


def test_read_verdict_other_language_is_counted_by_name() -> None:
    assert read("Sí").reason == "other_language"
    assert read("No", "de").reason == "other_language"


def test_read_verdict_unknown_language_raises_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'xx'.*de, en, es"):
        read("yes", "en", "xx")
    with pytest.raises(UserError, match="no language"):
        read_verdict_text("yes", finish_reason="stop", languages=())


def test_languages_together_give_no_word_two_meanings() -> None:
    yes = frozenset[str]().union(*(words.yes for words in LANGUAGES.values()))
    no = frozenset[str]().union(*(words.no for words in LANGUAGES.values()))
    assert not yes & no
    for words in LANGUAGES.values():
        assert all(read(word, *ALL).value == "yes" for word in words.yes)
        assert all(read(word, *ALL).value == "no" for word in words.no)


@given(st.text(st.characters(), max_size=60))
@settings(max_examples=150)
def test_read_verdict_any_text_never_raises(reply: str) -> None:
    verdict = read(reply, *ALL)
    if verdict.is_scored:
        assert sum(map(str.isalnum, reply)) <= max(map(len, WORDS))


@given(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12))
@settings(max_examples=100)
def test_read_verdict_word_glued_to_yes_is_not_yes(tail: str) -> None:
    assert not read(f"no {tail}").is_scored
    assert not read(f"yes{tail}").is_scored


def test_logprobs_variants_are_summed() -> None:
    verdict = verdict_from_logprobs({" Yes": -1.2, "yes": -1.3, "No": -1.1, "**": -2.0})
    assert verdict.value == "yes"
    assert verdict.p_yes == pytest.approx(0.633, abs=5e-4)


def test_logprobs_of_marked_and_odd_tokens_are_read_by_their_word() -> None:
    top = {"ĠNo": -1.0, "▁No": -2.0, "NO": -3.0, "N": -1.5, "<think>": -2.5, "ĊYes": -4.0}
    no = sum(map(math.exp, (-1.0, -2.0, -3.0)))
    verdict = verdict_from_logprobs(top)
    assert verdict.value == "no"
    assert verdict.p_yes == pytest.approx(math.exp(-4.0) / (math.exp(-4.0) + no))


@pytest.mark.parametrize(
    ("top", "reason"),
    [
        ({"The": -0.01, "A": -5.0}, "low_coverage"),
        ({"Yes": -2.0, "The": -0.2}, "low_coverage"),
        ({"Sí": -0.1, "No": -3.0}, "low_coverage"),
        ({}, "no_usable_probability"),
        ({"Yes": 0.0, "No": -math.inf}, "no_usable_probability"),
        ({"Yes": -0.3, "No": -1.35, "The": -math.inf}, "no_usable_probability"),
        ({"Yes": -math.inf, "No": -math.inf}, "no_usable_probability"),
        ({"Yes": math.nan, "No": -0.1}, "no_usable_probability"),
        ({"Yes": math.inf}, "no_usable_probability"),
        ({"Yes": 900.0}, "no_usable_probability"),
        ({"Yes": -0.1, "No": -0.1}, "no_usable_probability"),
        ({"Yes": -1e9, "No": -1e9}, "no_usable_probability"),
        ({"Yes": -0.7, "No": -0.7}, "undecided"),
    ],
)
def test_logprobs_without_a_decision_are_unscored(top: dict[str, float], reason: str) -> None:
    assert verdict_from_logprobs(top).reason == reason


def test_logprobs_label_outside_top_k_is_small_and_not_zero() -> None:
    verdict = verdict_from_logprobs({"Yes": math.log(0.8), "The": math.log(0.15)})
    # What is left of 1 (0.05) is less than the smallest seen (0.15).
    assert verdict.p_yes == pytest.approx(0.8 / 0.85)
    verdict = verdict_from_logprobs({"No": math.log(0.6), "The": math.log(0.01)})
    assert verdict.p_yes == pytest.approx(0.01 / 0.61)


def test_logprobs_floor_of_zero_without_any_label_is_still_unscored() -> None:
    assert verdict_from_logprobs({"The": -0.1}, coverage_floor=0.0).reason == "low_coverage"


@pytest.mark.parametrize("noise", [-0.03, 0.0, 0.03])
def test_logprobs_near_tie_in_the_band_is_undecided(noise: float) -> None:
    # Case 28: batch neighbours move log-probabilities by 0.03; the verdict must not flip.
    top = {"Yes": math.log(0.45) + noise, "No": math.log(0.45)}
    verdict = verdict_from_logprobs(top, undecided_band=0.05)
    assert verdict.reason == "undecided"
    assert verdict.p_yes == pytest.approx(0.5, abs=0.01)


def test_logprobs_with_impossible_limits_raise() -> None:
    with pytest.raises(ValueError, match="out of range"):
        verdict_from_logprobs({"Yes": -0.1}, coverage_floor=1.5)
    with pytest.raises(ValueError, match="out of range"):
        verdict_from_logprobs({"Yes": -0.1}, undecided_band=0.5)


tables = st.dictionaries(
    st.sampled_from([" Yes", "yes", "No", " no", "NO", "The", "**", "N"]),
    st.floats(-30.0, 0.0),
    max_size=8,
).map(lambda top: {token: logprob - math.log(8) for token, logprob in top.items()})
SWAP = {" Yes": "No", "yes": " no", "No": " Yes", " no": "yes", "NO": "YES"}


@given(tables, st.floats(0.0, 0.4))
@settings(max_examples=150)
def test_logprobs_swapping_the_labels_swaps_the_verdict(top: dict[str, float], band: float) -> None:
    options = {"coverage_floor": 0.0, "undecided_band": band}
    verdict = verdict_from_logprobs(top, **options)  # type: ignore[arg-type] # floats
    swapped = {SWAP.get(token, token): logprob for token, logprob in top.items()}
    mirrored = verdict_from_logprobs(swapped, **options)  # type: ignore[arg-type] # floats
    opposite = {"yes": "no", "no": "yes", "unscored": "unscored"}
    if verdict.p_yes is None or mirrored.p_yes is None:
        assert verdict.reason == mirrored.reason
        return
    assert mirrored.p_yes == pytest.approx(1.0 - verdict.p_yes)
    if abs(abs(verdict.p_yes - 0.5) - band) > 1e-9:
        assert mirrored.value == opposite[verdict.value]


def test_label_ids_are_all_spellings_of_the_configured_languages() -> None:
    texts = [" Yes", "yes", "YES", "No", "Nope", "Ja", '"No', "да", "", "y", "Note", " no"]
    tokens = dict(enumerate(texts))
    assert label_ids(tokens) == ((0, 1, 2), (3, 6, 11))
    with pytest.raises(UserError, match="2 tokens for yes and 0 for no"):
        label_ids(tokens, languages=("de", "ru"))


@pytest.mark.parametrize(
    ("yes", "no", "expected"),
    [
        (0.6, 0.2, "yes"),
        (0.2, 0.6, "no"),
        (0.3, 0.1, "low_coverage"),
        (0.41, 0.40, "undecided"),
        (0.0, 0.9, "no"),
        (0.0, 0.0, "no_usable_probability"),
        (math.nan, 0.5, "no_usable_probability"),
        (0.9, 0.9, "no_usable_probability"),
    ],
)
def test_masses_decide_above_the_floor_and_outside_the_band(
    yes: float, no: float, expected: str
) -> None:
    verdict = verdict_from_masses(yes, no, coverage_floor=0.5, undecided_band=0.02)
    assert (verdict.reason or verdict.value) == expected
    if verdict.p_yes is not None:
        assert verdict.p_yes == pytest.approx(yes / (yes + no))


@given(tables)
@settings(max_examples=100, deadline=None)
def test_masses_of_a_table_that_has_both_labels_decide_as_the_table_does(
    top: dict[str, float],
) -> None:
    yes, no = (
        math.fsum(math.exp(top[token]) for token in some if token in top)
        for some in ((" Yes", "yes"), ("No", " no", "NO"))
    )
    if yes and no:
        expected = verdict_from_logprobs(top, coverage_floor=0.0).p_yes
        assert verdict_from_masses(yes, no, coverage_floor=0.0).p_yes == pytest.approx(expected)
