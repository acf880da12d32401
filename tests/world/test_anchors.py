"""Anchor lists and the generator's prior rubrics."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from dynamicrubric.rubrics import parse_rubric, render_rubric
from dynamicrubric.seeds import generator_for
from dynamicrubric.types import Rubric
from dynamicrubric.worlds.noise import noisy_anchors, swap_adjacent
from dynamicrubric.worlds.postcards.anchors import make_anchors
from dynamicrubric.worlds.postcards.criteria import check, criteria_for, true_quality
from dynamicrubric.worlds.postcards.prompts import PostcardPrompt, all_prompts
from dynamicrubric.worlds.postcards.rubric_prior import prior_rubric
from dynamicrubric.worlds.postcards.texts import compose

PROMPTS = all_prompts()


@pytest.mark.parametrize("num_anchors", [2, 7, 12])
def test_anchors_without_noise_fall_strictly_in_true_quality(num_anchors: int) -> None:
    for prompt in PROMPTS[::10]:
        anchors = make_anchors(prompt, num_anchors, generator_for("anchors", prompt.id))
        quality = [true_quality(prompt, text) for text in anchors.responses]
        assert len(quality) == num_anchors
        assert all(better > worse for better, worse in itertools.pairwise(quality))


def test_swapped_anchors_are_swapped_at_the_rate_asked_for() -> None:
    rate, num_anchors = 0.3, 7
    inverted = pairs = 0
    clean = {
        prompt.id: make_anchors(prompt, num_anchors, generator_for("noise", prompt.id)).responses
        for prompt in PROMPTS
    }
    noisy = noisy_anchors(clean, rate, seed=1)
    for prompt in PROMPTS:
        quality = [true_quality(prompt, text) for text in noisy[prompt.id]]
        inverted += sum(first < second for first, second in itertools.pairwise(quality))
        pairs += num_anchors - 1
    sigma = (rate * (1 - rate) / pairs) ** 0.5
    # A text carried down by several swaps in a row leaves one inversion behind, not several.
    assert 0.5 * rate < inverted / pairs <= rate + 4 * sigma


def test_swapped_anchors_are_the_same_texts_in_another_order() -> None:
    texts = ("a", "b", "c", "d")
    assert swap_adjacent(texts, 0.0, generator_for(1)) == texts
    assert swap_adjacent(texts, 1.0, generator_for(1)) == ("b", "c", "d", "a")
    assert sorted(swap_adjacent(texts, 0.5, generator_for(2))) == sorted(texts)


def test_noise_is_of_the_prompt_and_the_seed_alone() -> None:
    lists = {f"p{number}": tuple("abcdefg") for number in range(20)}
    first = noisy_anchors(lists, 0.5, seed=1)
    alone = noisy_anchors({"p7": lists["p7"]}, 0.5, seed=1)
    assert alone["p7"] == first["p7"]
    assert first != noisy_anchors(lists, 0.5, seed=2)
    assert len(set(first.values())) > 5


def rubrics(
    num_responses: int, num_items: tuple[int, int]
) -> list[tuple[PostcardPrompt, list[str], Rubric]]:
    found = []
    for prompt in PROMPTS[::2]:
        rng = generator_for("prior", prompt.id, num_responses)
        responses = [compose(prompt, rng) for _ in range(num_responses)]
        found += [
            (prompt, responses, prior_rubric(prompt, responses, num_items, rng)) for _ in range(6)
        ]
    return found


@pytest.mark.parametrize("num_responses", [0, 8])
def test_prior_rubrics_are_valid_and_about_their_prompt(num_responses: int) -> None:
    sizes = set()
    for prompt, _, rubric in rubrics(num_responses, (2, 4)):
        parsed = parse_rubric(render_rubric(rubric), min_items=2, max_items=4)
        assert parsed == rubric
        assert set(rubric.criteria) <= {c.criterion for c in criteria_for(prompt)}
        assert all(check(criterion, "") is not None for criterion in rubric.criteria)
        sizes.add(len(rubric.items))
    assert sizes == {2, 3, 4}


@pytest.mark.parametrize("num_responses", [0, 8])
def test_prior_rubrics_point_nowhere(num_responses: int) -> None:
    worths, weights = [], Counter[int]()
    for prompt, _, rubric in rubrics(num_responses, (1, 4)):
        worth = {c.criterion: c.worth for c in criteria_for(prompt)}
        worths += [worth[item.criterion] * item.weight for item in rubric.items]
        weights.update(rubric.weights)
    # Items of one set's rubrics are drawn from one pool: the bound is for draws on their own.
    assert abs(np.mean(np.sign(worths))) < 4 / len(worths) ** 0.5
    assert abs(np.mean(worths)) < 4 * np.std(worths) / len(worths) ** 0.5
    assert set(weights) == {1, 2, 3, 4, 5}
    assert min(weights.values()) > 0.75 * max(weights.values())


def test_prior_rubrics_have_more_items_that_discriminate_than_chance() -> None:
    """Half of the items are drawn from those that discriminate, the rest from all."""
    own, any_item = [], []
    for prompt, responses, rubric in rubrics(8, (1, 4)):
        useful = {
            c.criterion: 0 < sum(bool(check(c.criterion, r)) for r in responses) < 8
            for c in criteria_for(prompt)
        }
        own += [useful[criterion] for criterion in rubric.criteria]
        any_item.append(float(np.mean([*useful.values()])))
    assert 0.0 < np.mean(any_item) < np.mean(own) < 1.0
