"""Anchors as arms may change them: fewer of a list, and lists from another distribution."""

from __future__ import annotations

import itertools
import statistics

import pytest

from dynamicrubric.seeds import generator_for
from dynamicrubric.worlds.noise import shuffled_anchors, spread_over
from dynamicrubric.worlds.postcards.anchors import make_anchors
from dynamicrubric.worlds.postcards.criteria import true_quality
from dynamicrubric.worlds.postcards.prompts import all_prompts, prompt_by_id
from dynamicrubric.worlds.postcards.shifted import shifted_anchors

PREPARED = {
    prompt.id: make_anchors(prompt, 7, generator_for("anchors", prompt.id)).responses
    for prompt in all_prompts()[::4]
}


def qualities(lists: dict[str, tuple[str, ...]]) -> list[list[float]]:
    return [[true_quality(prompt_by_id(k), t) for t in texts] for k, texts in lists.items()]


@pytest.mark.parametrize("length", [2, 3, 7, 12])
def test_fewer_anchors_keep_both_ends_the_order_and_are_distinct(length: int) -> None:
    texts = [str(n) for n in range(length)]
    for number in range(2, length + 1):
        found = spread_over(texts, number)
        assert len(set(found)) == number
        assert (found[0], found[-1]) == (texts[0], texts[-1])
        assert list(found) == sorted(found, key=texts.index)
    assert spread_over(texts, length) == tuple(texts)


@pytest.mark.parametrize("number", [1, 8])
def test_more_anchors_than_there_are_or_none_to_compare_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match=f"{number} of 7 anchors"):
        spread_over("abcdefg", number)


@pytest.mark.parametrize(("source", "sign"), [("strong", 1), ("weak", -1)])
def test_lists_of_strong_or_weak_writers_are_ranked_by_this_prompt_and_lie_to_one_side(
    source: str, sign: int
) -> None:
    lists = shifted_anchors(source, PREPARED)
    assert lists.keys() == PREPARED.keys()
    for own in qualities(lists):
        assert len(own) == 7
        assert all(better > worse for better, worse in itertools.pairwise(own))
    means = [statistics.fmean(own) for own in qualities(lists)]
    assert statistics.fmean(means) * sign > 0.6
    assert abs(statistics.fmean(statistics.fmean(own) for own in qualities(PREPARED))) < 0.1
    assert shifted_anchors(source, PREPARED) == lists


def test_lists_from_elsewhere_are_of_another_place_and_not_always_in_this_ones_order() -> None:
    lists = shifted_anchors("elsewhere", PREPARED)
    homes = {texts: key for key, texts in PREPARED.items()}
    wrong = pairs = 0
    for key, texts in lists.items():
        home = prompt_by_id(homes[texts])
        assert home.place != prompt_by_id(key).place
        own = [true_quality(prompt_by_id(key), text) for text in texts]
        wrong += sum(better < worse for better, worse in itertools.combinations(own, 2))
        pairs += 21
    assert 0.0 < wrong / pairs < 0.2


def test_lists_from_elsewhere_keep_reader_and_occasion_where_another_place_has_them() -> None:
    everything = {p.id: (p.id,) for p in all_prompts()}
    for key, (home,) in shifted_anchors("elsewhere", everything).items():
        one, other = prompt_by_id(key), prompt_by_id(home)
        assert (one.recipient, one.occasion) == (other.recipient, other.occasion)
    two = {"lisbon-anna-birthday": ("a",), "oslo-ben-wedding": ("b",)}
    assert shifted_anchors("elsewhere", two)["lisbon-anna-birthday"] == ("b",)


def test_shuffled_lists_have_half_of_their_pairs_wrong_and_come_one_by_one() -> None:
    lists = {f"p{n}": tuple("abcdefg") for n in range(400)}
    shuffled = {rate: shuffled_anchors(lists, rate, seed=1) for rate in (0.0, 0.3, 0.6, 1.0)}
    assert shuffled[0.0] == lists
    for rate, found in shuffled.items():
        assert all(sorted(own) == sorted("abcdefg") for own in found.values())
        wrong = sum(a > b for own in found.values() for a, b in itertools.combinations(own, 2))
        # Of a random order half of the 21 pairs are wrong; a list's share spreads by about 1/6.
        assert abs(wrong / (400 * 21) - rate / 2) < 4 * (0.17 + 0.25) / 20
    changed = {rate: {k for k in lists if found[k] != lists[k]} for rate, found in shuffled.items()}
    assert changed[0.3] < changed[0.6] < changed[1.0]
    assert all(shuffled[0.3][key] == shuffled[1.0][key] for key in changed[0.3])
    assert shuffled_anchors(lists, 1.0, seed=2) != shuffled[1.0]


def test_no_other_source_is_known() -> None:
    with pytest.raises(KeyError):
        shifted_anchors("nowhere", PREPARED)
