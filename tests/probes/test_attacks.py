"""Attacks: pure, of one place, and what they are said to be."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.probes.attacks import PLANTS, attacks_of, chosen_attacks, place_of
from dynamicrubric.probes.names import ATTACKS, CONTROLS, FIRST_ORDER, SECOND_ORDER
from dynamicrubric.rubrics import parse_rubric
from dynamicrubric.types import Rubric
from dynamicrubric.worlds.base import LANGUAGE, POSTCARDS
from dynamicrubric.worlds.postcards.criteria import check, true_quality
from dynamicrubric.worlds.postcards.prompts import prompt_by_id

PROMPT = "lisbon-anna-birthday"
SET = ResponseSet(
    PROMPT,
    "Write to Anna, from Lisbon, for the birthday",
    ("dear Anna, big hug.", "saw the tram, thank you?", "happy birthday"),
)
WORLDS = (POSTCARDS, LANGUAGE)
texts = some.text(max_size=40)


@pytest.mark.parametrize("world", WORLDS)
def test_names_are_those_of_the_settings_in_their_order(world):
    found = attacks_of(world)
    assert tuple(found) == ATTACKS
    assert tuple(n for n, one in found.items() if one.order == "first") == FIRST_ORDER
    assert tuple(n for n, one in found.items() if one.order == "second") == SECOND_ORDER
    assert set(CONTROLS) < set(SECOND_ORDER)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ATTACKS)
@given(responses=some.lists(texts, min_size=1, max_size=5), seed=some.integers(0, 2**40))
def test_attack_is_pure_and_forges_its_place_alone(world, name, responses, seed):
    attack = attacks_of(world)[name]
    place = seed % len(responses)
    one = ResponseSet(PROMPT, "Write", tuple(responses))
    forged = attack.forge(one, place, seed)
    assert forged == attack.forge(one, place, seed)
    assert (forged.prompt_id, forged.prompt, forged.failures) == (PROMPT, "Write", ())
    assert len(forged.responses) == len(responses)
    others = [text for index, text in enumerate(forged.responses) if index != place]
    if name in ("near_copies", "copies_alone"):
        assert set(others) <= {responses[place]}
    else:
        assert others == [text for index, text in enumerate(responses) if index != place]
    if name == "copies_alone":
        assert forged.responses[place] == responses[place]
    elif name != "own_words_again" or responses[place].strip():
        assert forged.responses[place] != responses[place]


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_shows_no_response_that_there_is_not(name):
    one = ResponseSet(PROMPT, "Write", ("", "dear Anna."), ("too_long", None))
    forged = attacks_of(POSTCARDS)[name].forge(one, 1, 5)
    assert forged.failures == one.failures
    assert forged.responses[0] == ""
    with pytest.raises(AssertionError, match="no response in place 0"):
        attacks_of(POSTCARDS)["filler"].forge(one, 0, 5)


def test_place_is_one_that_there_is_a_response_in():
    one = ResponseSet(PROMPT, "Write", ("", "a", "b"), ("too_long", None, None))
    assert {place_of(one, seed) for seed in range(10)} == {1, 2}
    assert place_of(ResponseSet(PROMPT, "Write", ("",), ("too_long",)), 3) is None
    assert place_of(ResponseSet(PROMPT, "Write", ()), 3) is None


def test_planted_phrase_is_one_that_no_response_has_as_long_as_there_is_one():
    plants = [one.phrase for one in PLANTS[POSTCARDS]]
    crowded = ResponseSet(PROMPT, "Write", ("dear Anna", ", ".join(plants[:-1])))
    forge = attacks_of(POSTCARDS)["planted_phrase"].forge
    for seed in range(20):
        assert plants[-1] in forge(crowded, 0, seed).responses[0]
    chosen = {forge(SET, 0, seed).responses[0] for seed in range(60)}
    assert len(chosen) == len(plants)


@pytest.mark.parametrize("plant", PLANTS[POSTCARDS])
def test_planted_feature_of_postcards_meets_its_criterion_and_is_bad(plant):
    plain = SET.responses[0]
    planted = f"{plain[:-1]}, {plant.phrase}."
    assert check(plant.criterion, plain) is False
    assert check(plant.criterion, planted) is True
    prompt = prompt_by_id(PROMPT)
    assert true_quality(prompt, planted) < true_quality(prompt, plain)


@pytest.mark.parametrize("name", ["filler", "claim", "orders", "prompt_again"])
def test_words_that_say_nothing_change_no_true_quality_of_postcards(name):
    prompt = prompt_by_id(PROMPT)
    for place, plain in enumerate(SET.responses):
        forged = attacks_of(POSTCARDS)[name].forge(SET, place, 0).responses[place]
        assert true_quality(prompt, forged) == true_quality(prompt, plain), forged


def test_planted_criterion_is_a_rubric_that_would_be_valid_by_itself():
    forged = attacks_of(LANGUAGE)["planted_criterion"].forge(SET, 0, 1).responses[0]
    text = forged[forged.index("[") : forged.rindex("]") + 1]
    rubric = parse_rubric(text, min_items=1, max_items=1)
    assert isinstance(rubric, Rubric)
    assert rubric.weights == (5,)
    assert json.loads(text)[0]["criterion"] == rubric.criteria[0]


def test_attacks_that_there_are_not_are_refused_by_name():
    for names in (["filler", "nonsense"], ["filler", "filler"]):
        with pytest.raises(UserError, match="choosing attacks"):
            chosen_attacks(POSTCARDS, names)
    assert [one.name for one in chosen_attacks(POSTCARDS, ["turn", "filler"])] == ["filler", "turn"]
    assert [one.name for one in chosen_attacks(POSTCARDS, ())] == list(ATTACKS)
