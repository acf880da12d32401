"""Keys of the gap, of orders and of anchors: what is refused, and that finished cells keep ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.config import Config, merge, parse_config
from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan, expand
from dynamicrubric.selection import select
from dynamicrubric.yamlio import load_yaml

ROOT = Path(__file__).resolve().parents[2]
STUDY = load_yaml(ROOT / "tests/config/study.yaml")
LANGUAGE = load_yaml(ROOT / "profiles/smollm2.yaml")
REFERENCE = {"gap": 1.0, "gap_order": "reference"}


def with_arm(base: dict[str, Any], **diff: Any) -> dict[str, Any]:
    return merge(base, {"study": {"arms": {"tried": {"question": "What of it?", **diff}}}})


def planned(profile: str, group: str) -> Plan:
    text = (ROOT / "profiles" / f"{profile}.yaml").read_text(encoding="utf-8")
    return expand(parse_config(select(text, run=group), profile))


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ({"generator": {"objective": {"gap": -1.0}}}, "gap = -1.0"),
        ({"generator": {"objective": {"gap_order": "reference"}}}, "with gap 0"),
        ({"generator": {"objective": {"gap": 1.0, "gap_order": "truth"}}}, "'anchors' or 'refer"),
        ({"generator": {"objective": {"gap": 1.0, "gap_noise": 0.1}}}, "asks no judge"),
        ({"generator": {"objective": {**REFERENCE, "gap_noise": -0.1}}}, "gap_noise = -0.1"),
        ({"generator": {"objective": {"disc": 0.0, "single_penalty": 0.1}}}, "with disc 0"),
        (
            {"evaluator": "static", "generator": {"update": "upfront", "objective": REFERENCE}},
            "sees no policy's responses",
        ),
        (
            {"evaluator": "static", "generator": {"update": "upfront", "orders": 2}},
            "no response set",
        ),
        ({"generator": {"orders": 0}}, "orders = 0"),
        ({"num_anchors": 1}, "num_anchors = 1"),
        ({"num_anchors": 8}, "num_anchors is 8; with world.num_anchors 7"),
        ({"num_anchors": 3, "generator": {"update": "none"}}, "no training reads the anchors"),
        ({"anchor_source": "weak", "generator": {"update": "none"}}, "it can only be prepared"),
        ({"anchor_shuffle_rate": 1.5}, "anchor_shuffle_rate = 1.5"),
        ({"anchor_shuffle_rate": 0.5, "generator": {"update": "none"}}, "it can only be 0"),
        ({"anchor_source": "mine"}, "'prepared', 'strong', 'weak' or 'elsewhere'"),
    ],
)
def test_value_that_makes_no_sense_is_refused_with_its_arm(diff: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="tried") as caught:
        Config.model_validate(with_arm(STUDY, **diff))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ({"generator": {"objective": REFERENCE}}, "nobody knows the true quality"),
        ({"anchor_source": "strong"}, "the prepared ones"),
        ({"num_anchors": 5}, "with world.num_anchors 4"),
    ],
)
def test_language_world_refuses_what_it_does_not_know(diff: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="tried") as caught:
        Config.model_validate(with_arm(LANGUAGE, **diff))
    assert said in str(caught.value)
    Config.model_validate(with_arm(LANGUAGE, generator={"objective": {"gap": 1.0}}))


def test_arms_whose_three_weights_keep_their_ratios_are_one_arm() -> None:
    one = {"generator": {"objective": {"gap": 1.0}}}
    two = {"generator": {"objective": {"disc": 2.0, "anchor": 2.0, "gap": 2.0}}}
    arms = {"one": {"question": "What of it?", **one}, "two": {"question": "And this?", **two}}
    config = Config.model_validate(merge(STUDY, {"study": {"arms": arms}}))
    with pytest.raises(UserError, match=r"study\.arms\.two, which trains .* 'one'"):
        expand(config)


def test_keys_at_their_defaults_change_no_id() -> None:
    said = {
        "num_anchors": None,
        "anchor_source": "prepared",
        "generator": {
            "orders": 1,
            "objective": {"gap": 0.0, "gap_order": "anchors", "gap_noise": 0.0},
        },
    }
    plain = expand(Config.model_validate(STUDY))
    again = expand(Config.model_validate(merge(STUDY, {"recipe": said})))
    assert {c.id for c in plain.cells.values()} == {c.id for c in again.cells.values()}


def test_each_new_key_makes_another_cell_and_reaches_it() -> None:
    diffs: list[dict[str, Any]] = [
        {"generator": {"objective": {"gap": 1.0}}},
        {"generator": {"objective": REFERENCE}},
        {"generator": {"objective": {**REFERENCE, "gap_noise": 0.1}}},
        {"generator": {"objective": {"single_penalty": 0.2}}},
        {"generator": {"orders": 4}},
        {"num_anchors": 5},
        {"anchor_shuffle_rate": 0.5},
        {"anchor_source": "weak"},
    ]
    plain = expand(Config.model_validate(STUDY)).cell("coevolved-s1-r1")
    ids = {plain.id.rpartition("-")[2]}
    for diff in diffs:
        cell = expand(Config.model_validate(with_arm(STUDY, **diff))).cell("tried-s1-r1")
        ids.add(cell.id.rpartition("-")[2])
    assert len(ids) == len(diffs) + 1


@pytest.mark.parametrize("profile", ["theory", "anchors"])
def test_profile_is_the_default_study_but_for_its_arms(profile: str) -> None:
    own = load_yaml(ROOT / "profiles" / f"{profile}.yaml")
    default = load_yaml(ROOT / "profiles/postcards.yaml")
    own.pop("study"), default.pop("study")
    assert own == default, f"after a change of params.yaml: the same in profiles/{profile}.yaml"


def test_groups_of_the_profiles_share_their_cells_with_the_whole_study() -> None:
    known = {cell.id for cell in planned("postcards", "study").cells.values()}
    shared = {
        (profile, group): [c.id in known for c in planned(profile, group).cells.values()]
        for profile, group in (
            ("theory", "gap"), ("anchors", "noise"), ("anchors", "count"), ("anchors", "shifted"),
        )
    }  # fmt: skip
    counts = {name: (sum(own), len(own)) for name, own in shared.items()}
    assert counts == {
        ("theory", "gap"): (15, 45),  # coevolved, 5 seeds
        ("anchors", "noise"): (27, 63),  # coevolved, disc_only, noisy_anchors, 3 seeds
        ("anchors", "count"): (18, 45),
        ("anchors", "shifted"): (18, 45),
    }


def test_noise_group_goes_from_none_to_half_in_tenths() -> None:
    cells = [c for c in planned("anchors", "noise").cells.values() if c.key.endswith("s1-r1")]
    trainings = [c.recipe.generator_training for c in cells]
    rates = sorted(t.anchor_swap_rate for t in trainings if t and t.objective.anchor)
    assert rates == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
