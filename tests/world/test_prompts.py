"""The split: held-out combinations are new, their words are not."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dynamicrubric.config import WorldConfig
from dynamicrubric.worlds.postcards.prompts import (
    PLACES,
    all_prompts,
    prompt_by_id,
    split_prompts,
)

NUM_PROMPTS = len(all_prompts())


def test_prompts_have_different_ids_and_texts() -> None:
    prompts = all_prompts()
    assert len({p.id for p in prompts}) == len({p.text for p in prompts}) == len(prompts)
    assert all(prompt_by_id(p.id) == p for p in prompts)


@given(st.integers(8, NUM_PROMPTS // 2), st.integers(0, 2**31))
def test_split_shares_the_prompts_out_and_keeps_every_word_in_training(
    num_heldout: int, seed: int
) -> None:
    training, heldout = split_prompts(num_heldout, seed)
    assert len(heldout) == num_heldout
    assert {*training}.isdisjoint(heldout)
    assert {*training, *heldout} == {*all_prompts()}
    known = {word for p in training for word in re.findall(r"\w+", p.text)}
    assert {word for p in heldout for word in re.findall(r"\w+", p.text)} <= known


@given(st.integers(8, NUM_PROMPTS // 2), st.integers(0, 2**31))
def test_split_takes_from_all_places_alike(num_heldout: int, seed: int) -> None:
    counts = Counter(p.place for p in split_prompts(num_heldout, seed)[1])
    assert set(counts) == set(PLACES)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_split_is_the_seeds() -> None:
    assert split_prompts(48, 1) == split_prompts(48, 1)
    assert split_prompts(48, 1) != split_prompts(48, 2)


def test_config_allows_as_many_heldout_prompts_as_the_world_can_spare() -> None:
    fields = {"name": "postcards", "seed": 0, "num_anchors": 7}
    most = WorldConfig.model_validate({**fields, "num_heldout_prompts": NUM_PROMPTS // 2})
    assert len(split_prompts(most.num_heldout_prompts, most.seed)[0]) == NUM_PROMPTS // 2
    with pytest.raises(ValidationError, match="num_heldout_prompts"):
        WorldConfig.model_validate({**fields, "num_heldout_prompts": NUM_PROMPTS // 2 + 1})


@pytest.mark.parametrize("num_heldout", [0, -1, NUM_PROMPTS // 2 + 1, NUM_PROMPTS])
def test_split_that_leaves_too_few_training_prompts_is_refused(num_heldout: int) -> None:
    with pytest.raises(ValueError, match=f"num_heldout_prompts is {num_heldout}"):
        split_prompts(num_heldout, 1)
