"""Each filter removes what it names, and leaves what only looks like it."""

from __future__ import annotations

import pytest

from dynamicrubric.data.filters import FilterName, filter_of
from dynamicrubric.data.rows import AnchorRow
from dynamicrubric.data.settings import FilterSettings

PROMPT = "Please explain how rain comes about, for a child of ten years, in a few sentences."
BEST = "Water rises as vapour when the sun warms the sea; high up it cools, and falls as drops."
SENTENCES = " ".join(f"Here is sentence number {n} about rain and what it does." for n in range(40))


def row(
    *,
    prompt: str = PROMPT,
    best: str = BEST,
    others: tuple[str, ...] = ("b", "c", "d", "e", "f", "g"),
    tiers: tuple[int, ...] | None = None,
) -> AnchorRow:
    responses = (best, *others)
    return AnchorRow("r", (prompt,), responses, tiers or (1,) * len(responses), "made up", "CC0")


def test_filter_keeps_a_good_row() -> None:
    assert filter_of(row(), FilterSettings()) is None


REMOVED = [
    (row(others=("b", "c")), FilterName.FEW_RESPONSES),
    (row(tiers=(7,)), FilterName.ALL_TIED),
    (row(others=("b", "c", "d", "e", "f", " \n")), FilterName.EMPTY_RESPONSE),
    (row(others=("b", "B!", "d", "e", "f", "g")), FilterName.SELF_CONTRADICTORY),
    (
        row(others=("b", "B!", "d", "e", "f", "g"), tiers=(1, 2, 1, 1, 1, 1)),
        FilterName.REPEATED_RESPONSE,
    ),
    (row(prompt="Why?"), FilterName.SHORT_PROMPT),
    (row(prompt="why " * 7000), FilterName.LONG_PROMPT),
    (row(best="Because."), FilterName.SHORT_BEST),
    (row(others=("b", "c", "d", "e", "f", "g" * 25_000)), FilterName.LONG_RESPONSE),
    (row(prompt=PROMPT + "\ufffd"), FilterName.BROKEN_TEXT),
    (row(best=BEST + "\x07"), FilterName.BROKEN_TEXT),
    (row(best=BEST + " It\xe2\u20ac\u2122s caf\xc3\xa9\xc2."), FilterName.BROKEN_TEXT),
    (
        row(best="It rains because the water in the cloud is heavy. " * 30),
        FilterName.REPETITION_LOOP,
    ),
    (row(best=BEST + " ha" + "a" * 80), FilterName.REPETITION_LOOP),
    (
        row(best="I'm sorry, but I can't help with that. Please ask me something else instead."),
        FilterName.REFUSAL,
    ),
    (
        row(best="As an AI language model, I cannot form an opinion about rain or the weather."),
        FilterName.REFUSAL,
    ),
    (
        row(best="Hello there! It is nice to meet you on this fine day. How can I help you today?"),
        FilterName.GREETING,
    ),
    (
        row(
            best="Interesting! Could you please provide more details about the rain that you mean?"
        ),
        FilterName.CLARIFYING_QUESTION,
    ),
]


@pytest.mark.parametrize(("found", "name"), REMOVED)
def test_filter_removes_what_it_names(found: AnchorRow, name: FilterName) -> None:
    assert filter_of(found, FilterSettings()) is name


def test_every_filter_has_a_row_that_it_removes() -> None:
    assert {name for _, name in REMOVED} | {FilterName.OTHER_SCRIPT} == set(FilterName)


@pytest.mark.parametrize(
    "best",
    [
        "Sorry, that is a common mistake! Rain comes from clouds, which are made of small drops.",
        "Hello! Rain is water that falls from clouds, once their drops are too heavy to float.",
        "Did you know that rain is old? The drops that fall today fell on dinosaurs, long ago.",
        "I cannot say it shorter than this: " + SENTENCES,
        "caf\xe9, na\xefve, \xc3lvaro, \u201cquotes\u201d \u2013 and letters, just letters.",
        "| a | b |\n| --- | --- |\n" + "\n".join(f"| {n} | {n * n} |" for n in range(60)),
        "Step one\tis to\r\nwait for the sun; step two is to wait for a cloud, and then for rain.",
    ],
)
def test_filter_keeps_what_only_looks_bad(best: str) -> None:
    assert filter_of(row(best=best), FilterSettings()) is None


def test_filter_of_text_looks_at_the_best_tier_alone() -> None:
    worse = "I'm sorry, but I can't help with that. Please ask me something else instead."
    others = (worse, "c", "d", "e", "f", "g")
    assert filter_of(row(others=others), FilterSettings()) is None
    tied = row(others=others, tiers=(2, 1, 1, 1, 1, 1))
    assert filter_of(tied, FilterSettings()) is FilterName.REFUSAL


def test_filter_of_script_is_off_until_it_is_asked_for() -> None:
    russian = row(best="\u0414\u043e\u0436\u0434\u044c \u0438\u0434\u0451\u0442, " * 8)
    assert filter_of(russian, FilterSettings()) is None
    asked = FilterSettings(min_latin_share=0.9)
    assert filter_of(russian, asked) is FilterName.OTHER_SCRIPT
    assert filter_of(row(), asked) is None
