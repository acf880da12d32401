"""The lattice: what is shared, what a changed number touches, and that cells.yaml is the plan."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamicrubric.config import Config, parse_config
from dynamicrubric.errors import UserError
from dynamicrubric.lattice import MOST_NAMED
from dynamicrubric.plan import (
    CellRecipe,
    Plan,
    differing,
    expand,
    load_plan,
    parse_recipe,
    plan_document,
    read_structure,
    stage_structure,
    write_plan,
)
from dynamicrubric.selection import select
from dynamicrubric.yamlio import load_yaml

ROOT = Path(__file__).resolve().parents[2]
STUDY = Path(__file__).parent / "study.yaml"
BASE = load_yaml(STUDY)


@pytest.fixture
def document() -> dict[str, Any]:
    return copy.deepcopy(BASE)


def plan_of(document: dict[str, Any]) -> Plan:
    return expand(Config.model_validate(document))


def entries(plan: Plan) -> dict[str, Any]:
    """Return every cell's entry as DVC sees it."""
    document = plan_document(plan)
    return {**document["starts"], **document["cells"]}


def touched(before: Plan, after: Plan) -> set[str]:
    """Return the keys of the cells that DVC would run anew: changed entries and new ones."""
    old = entries(before)
    return {key for key, entry in entries(after).items() if old.get(key) != entry}


def study(
    base: dict[str, Any], updates: dict[str, str], rounds: int = 3, seeds: tuple[int, ...] = (1,)
) -> dict[str, Any]:
    """Return params with one dynamic arm for each kind of generator update."""
    arms = {
        name: {"question": f"What does {name} do?", "generator": {"update": update}}
        for name, update in updates.items()
    }
    return {**base, "study": {"rounds": rounds, "seeds": list(seeds), "arms": arms}}


def test_plan_round_one_of_fresh_stale_and_once_is_one_cell(document: dict[str, Any]) -> None:
    updates = {"coevolved": "fresh", "stale": "stale", "once": "once"}
    paths = plan_of(study(document, updates)).paths
    assert {paths[(arm, 1)][:2] for arm in updates} == {("coevolved-s1-r0", "coevolved-s1-r1")}
    assert len({paths[(arm, 1)][2] for arm in updates}) == 3


def test_plan_four_arm_study_has_eleven_cells_and_two_starts(document: dict[str, Any]) -> None:
    plan = plan_of(document)
    # 4 arms x 3 rounds, less the first round that coevolved and stale share.
    assert (plan.num_arm_rounds, len(plan.cells)) == (12, 11)
    assert set(plan.starts) == {"coevolved-s1-r0", "static-s1-r0"}
    assert plan.arms_of("coevolved-s1-r1") == ("coevolved", "stale")
    assert plan.arms_of("static-s1-r2") == ("static",)


@settings(max_examples=30)
@given(
    updates=st.sets(st.sampled_from(["none", "once", "stale", "fresh"]), min_size=1),
    rounds=st.integers(1, 5),
    seeds=st.sets(st.integers(0, 2**31), min_size=1, max_size=3),
)
def test_plan_cell_count_is_the_product_less_what_is_shared(
    updates: set[str], rounds: int, seeds: set[int]
) -> None:
    named = {f"arm_{update}": update for update in sorted(updates)}
    plan = expand(Config.model_validate(study(BASE, named, rounds, tuple(seeds))))
    # Arms that train a generator part after round 1; `none` goes its own way from the start.
    shared = max(len(updates - {"none"}) - 1, 0) * len(seeds)
    product = len(updates) * len(seeds) * rounds
    assert plan.num_arm_rounds == product
    assert len(plan.cells) == product - shared
    assert len(plan.starts) == len(seeds)
    assert len({cell.id for cell in plan.cells.values()}) == len(plan.cells)


def test_plan_path_walks_from_the_warm_start_through_its_own_cells(
    document: dict[str, Any],
) -> None:
    plan = plan_of(document)
    for keys in plan.paths.values():
        cells = [plan.cell(key) for key in keys]
        assert [cell.recipe.round for cell in cells] == [0, 1, 2, 3]
        before = ["data/warm", "data/warm", cells[1].directory, cells[2].directory]
        assert [cell.prev for cell in cells] == before
        assert [cell.before for cell in cells] == [None, *(cell.directory for cell in cells[:-1])]


def test_plan_cells_come_after_the_cell_they_start_from(document: dict[str, Any]) -> None:
    seen = {"data/warm"}
    for cell in plan_of(document).cells.values():
        assert cell.prev in seen
        seen.add(cell.directory)


def test_plan_round_zero_trains_nothing(document: dict[str, Any]) -> None:
    for cell in plan_of(document).starts.values():
        assert cell.recipe.generator_training is None
        assert cell.recipe.policy_training is None
        assert "train_policy" not in cell.recipe.versions


@pytest.mark.parametrize(
    ("update", "sources"),
    [
        ("none", [None, None, None]),
        ("once", ["current", None, None]),
        ("stale", ["current", "start", "start"]),
        ("fresh", ["current", "current", "current"]),
    ],
)
def test_plan_update_kind_decides_whose_responses_the_generator_trains_on(
    document: dict[str, Any], update: str, sources: list[str | None]
) -> None:
    plan = plan_of(study(document, {"arm": update}))
    training = [plan.cell(key).recipe.generator_training for key in plan.paths[("arm", 1)][1:]]
    assert [step.responses if step else None for step in training] == sources


def test_plan_reverted_arm_shares_round_one_and_then_starts_from_the_untrained_generator(
    document: dict[str, Any],
) -> None:
    plan = plan_of(study(document, {"coevolved": "fresh", "reverted": "reverted"}))
    first, second = plan.paths[("reverted", 1)][1:3]
    assert first == "coevolved-s1-r1"
    assert plan.cell(first).generator_dir == "data/warm/generator"
    cell = plan.cell(second)
    assert (cell.prev, cell.generator_dir) == ("data/runs/coevolved-s1-r1", "data/warm/generator")
    assert cell.recipe.generator_training is None
    # Beside it, an arm that keeps its trained generator goes on from that.
    kept = plan_of(study(document, {"once": "once"})).cell("once-s1-r2")
    assert kept.generator_dir == "data/runs/once-s1-r1/generator"
    assert kept.recipe != cell.recipe


def test_plan_settings_that_came_later_are_in_no_recipe_at_their_default(
    document: dict[str, Any],
) -> None:
    later = {"weights", "anchor_swap_rate", "generator_from"}
    document["study"]["arms"] |= {
        "plain": {"question": "Do weights add anything?", "weights": "equal"},
        "noisy": {"question": "Does label noise hurt?", "anchor_swap_rate": 0.3},
    }
    recipes = {
        key: json.dumps(entry["recipe"]) for key, entry in entries(plan_of(document)).items()
    }
    found = {key: {name for name in later if f'"{name}"' in text} for key, text in recipes.items()}
    assert found["plain-s1-r0"] == found["plain-s1-r1"] == {"weights"}
    assert found["noisy-s1-r1"] == {"anchor_swap_rate"}
    assert {key for key, names in found.items() if names} == {
        *(f"plain-s1-r{number}" for number in range(4)),
        *(f"noisy-s1-r{number}" for number in range(1, 4)),
    }


def test_plan_name_and_id_of_a_cell_do_not_depend_on_which_arms_are_run(
    document: dict[str, Any],
) -> None:
    whole = plan_of(document)
    document["study"]["run"] = ["stale"]
    alone = plan_of(document)
    # Round 1 is named after coevolved, which is not run.
    assert alone.paths == {("stale", 1): whole.paths[("stale", 1)]}
    assert entries(alone).items() <= entries(whole).items()
    assert set(plan_document(alone)["arms"]) == {"stale"}


def test_plan_arms_of_other_rounds_and_seeds_share_the_cells_they_have_in_common(
    document: dict[str, Any],
) -> None:
    whole = plan_of(document)
    document["study"]["run"] = [
        {"arms": ["coevolved"], "rounds": 6},
        {"arms": ["stale"], "seeds": [1, 2], "rounds": 2},
        "static",
    ]
    mixed = plan_of(document)
    assert {place: len(keys) - 1 for place, keys in mixed.paths.items()} == {
        ("coevolved", 1): 6, ("stale", 1): 2, ("stale", 2): 2, ("static", 1): 3,
    }  # fmt: skip
    assert mixed.paths[("coevolved", 1)][:4] == whole.paths[("coevolved", 1)]
    assert mixed.paths[("stale", 1)][1] == "coevolved-s1-r1"
    before, after = entries(whole), entries(mixed)
    assert [key for key in before.keys() & after.keys() if before[key] != after[key]] == []
    # 6 + 2 + 2 + 3 rounds, less round 1 of seed 1 that coevolved and stale share.
    assert (mixed.num_arm_rounds, len(mixed.cells)) == (13, 12)


def test_plan_upfront_training_is_that_of_the_arms_own_rounds(document: dict[str, Any]) -> None:
    document["study"]["run"] = [{"arms": ["static"], "rounds": 5}, "frozen"]
    training = plan_of(document).cell("static-s1-r1").recipe.generator_training
    assert training is not None
    assert training.steps == 61 + 4 * 60


def test_plan_of_the_whole_study_shares_first_rounds() -> None:
    config = Config.model_validate(load_yaml(ROOT / "profiles/postcards.yaml") | {})
    chosen = config.model_copy(update={"study": config.study.model_copy(update={"run": "study"})})
    plan = expand(chosen)
    # 7 arms x 5 seeds and 10 x 3, each 3 rounds; round 1 of coevolved is also that of once, stale
    # (5 seeds) and reverted (3).
    assert plan.num_arm_rounds == (7 * 5 + 10 * 3) * 3
    assert len(plan.cells) == plan.num_arm_rounds - (2 * 5 + 3)


def test_plan_static_arm_gets_all_rounds_steps_in_its_first(document: dict[str, Any]) -> None:
    plan = plan_of(document)
    first, *later = (plan.cell(key).recipe for key in plan.paths[("static", 1)][1:])
    assert first.generator_training is not None
    assert first.generator_training.responses == "anchors"
    generator = document["recipe"]["generator"]
    assert first.generator_training.steps == generator["first_steps"] + 2 * generator["steps"]
    assert [recipe.generator_training for recipe in later] == [None, None]


def set_key(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *parents, last = key.split(".")
        section = document
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value

    return change


STATIC = {f"static-s1-r{number}" for number in (1, 2, 3)}
FROZEN = {f"frozen-s1-r{number}" for number in (1, 2, 3)}


@pytest.mark.parametrize(
    ("key", "value", "keys"),
    [
        ("study.arms.static.policy.learning_rate", 1e-4, STATIC),
        ("study.arms.frozen.policy.kl_beta", 0.5, FROZEN),
        # Its own first round now, which it shared before.
        (
            "study.arms.stale.generator.learning_rate",
            1e-4,
            {"stale-s1-r1", "stale-s1-r2", "stale-s1-r3"},
        ),
        # Measurement is part of a cell: round 0 as well.
        ("study.arms.static.verifier.error_rate", 0.1, {*STATIC, "static-s1-r0"}),
        # A limit is the cell's, so that its stage runs again and finds its steps finished.
        ("study.arms.static.policy.max_invalid_rate", 0.25, STATIC),
        ("study.arms.static.question", "Is it another question?", set()),
        ("runtime.slots", 8, set()),
        ("runtime.task_deadline_minutes", 5, set()),
    ],
)
def test_plan_changed_key_touches_exactly_its_cells(
    document: dict[str, Any], key: str, value: object, keys: set[str]
) -> None:
    before = plan_of(document)
    set_key(key, value)(document)
    assert touched(before, plan_of(document)) == keys


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("evaluation.sets_per_prompt", 7),
        ("evaluation.max_invalid_rate", 0.123),
        ("recipe.policy.max_invalid_rate", 0.123),
        ("recipe.generator.max_invalid_rate", 0.123),
        ("recipe.verifier.max_unscored_rate", 0.123),
    ],
)
def test_plan_changed_measurement_or_limit_keeps_what_training_computes(
    document: dict[str, Any], key: str, value: object
) -> None:
    before = plan_of(document)
    set_key(key, value)(document)
    after = plan_of(document)
    hashes = [{k: c.training_hash for k, c in plan.cells.items()} for plan in (before, after)]
    assert hashes[0] == hashes[1]
    assert touched(before, after), "the cell itself has to change, so that DVC runs its stage"


def test_plan_changed_training_changes_its_training_hash_and_those_after(
    document: dict[str, Any],
) -> None:
    before = plan_of(document)
    set_key("study.arms.static.policy.learning_rate", 1e-4)(document)
    after = plan_of(document)
    changed = {
        k for k, c in after.cells.items() if c.training_hash != before.cells[k].training_hash
    }
    assert changed == STATIC


def test_plan_arms_that_differ_in_nothing_that_a_round_reads_are_refused(
    document: dict[str, Any],
) -> None:
    document["study"]["arms"]["frozen_again"] = {
        "question": "Is it the same?",
        "generator": {"update": "none", "learning_rate": 1e-6},
    }
    with pytest.raises(UserError, match=r"study\.arms\.frozen_again, which trains .* 'frozen'"):
        plan_of(document)


def test_plan_arm_whose_objective_keeps_its_ratio_is_refused(document: dict[str, Any]) -> None:
    # Each reward is normalised, and the sum again: twice both weights are the same advantages.
    document["study"]["arms"]["twice"] = {
        "question": "Is it the same?",
        "generator": {"objective": {"disc": 2.0, "anchor": 2.0}},
    }
    with pytest.raises(UserError, match=r"study\.arms\.twice, which trains .* 'coevolved'"):
        plan_of(document)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"verifier": {"max_unscored_rate": 0.3}}),
        ({}, {"policy": {"max_invalid_rate": 0.9}}),
        (
            {"evaluator": "oracle", "generator": {"update": "none"}},
            {
                "evaluator": "oracle",
                "generator": {"update": "none", "temperature": 0.5},
                "verifier": {"error_rate": 0.1},
            },
        ),
        (
            {"evaluator": "rule_based", "generator": {"update": "none"}},
            {"evaluator": "rule_based", "generator": {"update": "none", "temperature": 0.5}},
        ),
    ],
)
def test_plan_arms_that_differ_in_nothing_that_changes_a_result_are_refused(
    document: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    question = {"question": "Is it the same?"}
    document["study"]["arms"] = {"one": question | first, "another": question | second}
    with pytest.raises(UserError, match=r"study\.arms\.another, which trains .* 'one'"):
        plan_of(document)


def test_plan_rule_under_a_noisy_verifier_is_an_arm_of_its_own(document: dict[str, Any]) -> None:
    rules = {"evaluator": "rule_based", "generator": {"update": "none"}}
    noisy = rules | {"verifier": {"error_rate": 0.1}}
    question = {"question": "Is it the same?"}
    document["study"]["arms"] = {"one": question | rules, "another": question | noisy}
    assert len(plan_of(document).cells) == 6


def test_plan_changed_base_recipe_touches_all_training_and_no_round_zero(
    document: dict[str, Any],
) -> None:
    before = plan_of(document)
    set_key("recipe.policy.learning_rate", 1e-4)(document)
    assert touched(before, plan_of(document)) == set(before.cells)


def test_plan_added_arm_or_seed_touches_no_cell_that_is_there(document: dict[str, Any]) -> None:
    before = plan_of(document)
    document["study"]["arms"]["once"] = {
        "question": "Is one generator training enough?",
        "generator": {"update": "once"},
    }
    assert touched(before, plan_of(document)) == {"once-s1-r2", "once-s1-r3"}
    document["study"]["seeds"] = [1, 2]
    again = touched(before, plan_of(document))
    assert {key for key in again if "-s1-" in key} == {"once-s1-r2", "once-s1-r3"}


def test_plan_changed_world_changes_every_id_and_no_entry_but_the_id(
    document: dict[str, Any],
) -> None:
    before = plan_of(document)
    set_key("world.num_anchors", 5)(document)
    after = plan_of(document)
    assert {cell.id for cell in before.cells.values()}.isdisjoint(
        cell.id for cell in after.cells.values()
    )
    assert {key: cell.recipe for key, cell in before.cells.items()} == {
        key: cell.recipe for key, cell in after.cells.items()
    }


def test_plan_ids_are_the_key_and_a_hash_that_is_the_same_in_every_process(
    document: dict[str, Any],
) -> None:
    ids = [cell.id for cell in plan_of(document).cells.values()]
    program = (
        "import json, pathlib, sys; from dynamicrubric.config import load_config; "
        "from dynamicrubric.plan import expand; "
        "plan = expand(load_config(pathlib.Path(sys.argv[1]))); "
        "print(json.dumps([cell.id for cell in plan.cells.values()]))"
    )
    for hash_seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(STUDY)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == ids
    for key, cell in plan_of(document).cells.items():
        assert cell.id.startswith(f"{key}-")
        assert len(cell.id) == len(key) + 9


def test_plan_id_does_not_depend_on_the_order_of_keys_in_the_file(document: dict[str, Any]) -> None:
    def reverse(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: reverse(value[key]) for key in reversed(value)}
        return value

    ids = {cell.id for cell in plan_of(document).cells.values()}
    arms = document["study"]["arms"]
    shuffled = reverse(document)
    shuffled["study"]["arms"] = {name: reverse(arms[name]) for name in arms}
    assert {cell.id for cell in plan_of(shuffled).cells.values()} == ids


def test_plan_recipe_survives_json_and_yaml(document: dict[str, Any], tmp_path: Path) -> None:
    plan = plan_of(document)
    path = tmp_path / "cells.yaml"
    write_plan(plan, path)
    written = load_yaml(path)["cells"]
    for key, cell in plan.cells.items():
        as_json = json.loads(json.dumps(cell.recipe.model_dump(mode="json")))
        assert parse_recipe(as_json) == parse_recipe(written[key]["recipe"]) == cell.recipe


def test_plan_recipe_with_an_unknown_key_is_refused(document: dict[str, Any]) -> None:
    recipe: CellRecipe = next(iter(plan_of(document).cells.values())).recipe
    with pytest.raises(ValueError, match="not a cell recipe"):
        parse_recipe({**recipe.model_dump(mode="json"), "extra": 1})


def test_plan_unknown_cell_is_refused_with_those_there_are(document: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"'nobody-s1-r1'.*coevolved-s1-r0.*static-s1-r3"):
        plan_of(document).cell("nobody-s1-r1")


def test_write_plan_twice_writes_once(document: dict[str, Any], tmp_path: Path) -> None:
    plan, path = plan_of(document), tmp_path / "cells.yaml"
    assert write_plan(plan, path) is True
    first = path.stat().st_mtime_ns, path.read_bytes()
    assert write_plan(plan, path) is False
    assert (path.stat().st_mtime_ns, path.read_bytes()) == first
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cells.json", "cells.yaml"]


def test_write_plan_says_the_same_to_people_and_to_dvc(
    document: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "cells.yaml"
    write_plan(plan_of(document), path)
    assert json.loads((tmp_path / "cells.json").read_text(encoding="utf-8")) == load_yaml(path)


@pytest.mark.parametrize("broken", [None, "{", '{"cells": {}}\n'])
def test_json_of_a_plan_that_is_absent_or_another_is_noticed_and_written_anew(
    document: dict[str, Any], tmp_path: Path, broken: str | None
) -> None:
    config = Config.model_validate(document)
    plan, path = expand(config), tmp_path / "cells.yaml"
    write_plan(plan, path)
    beside = tmp_path / "cells.json"
    if broken is None:
        beside.unlink()
    else:
        beside.write_text(broken, encoding="utf-8")
    with pytest.raises(UserError, match=r"cells\.json.*Run `dynamicrubric plan`"):
        load_plan(config, path)
    assert differing(plan, path) == (beside,)
    assert read_structure(path) == {}
    assert write_plan(plan, path) is True
    assert load_plan(config, path) == plan
    assert read_structure(path) == stage_structure(plan_document(plan))


def test_write_plan_over_a_merge_conflict_writes_the_plan(
    document: dict[str, Any], tmp_path: Path
) -> None:
    plan, path = plan_of(document), tmp_path / "cells.yaml"
    path.write_text("<<<<<<< HEAD\narms: {}\n=======\n", encoding="utf-8")
    assert write_plan(plan, path) is True
    assert differing(plan, path) == ()


def test_load_plan_edited_by_hand_is_refused(document: dict[str, Any], tmp_path: Path) -> None:
    config = Config.model_validate(document)
    path = tmp_path / "cells.yaml"
    write_plan(expand(config), path)
    assert load_plan(config, path).cells == expand(config).cells
    path.write_text(path.read_text().replace("steps: 60", "steps: 61", 1), encoding="utf-8")
    with pytest.raises(UserError, match=r"cells\.yaml.*dynamicrubric plan"):
        load_plan(config, path)


def test_write_plan_finds_what_it_wrote_however_the_file_is_laid_out(
    document: dict[str, Any], tmp_path: Path
) -> None:
    plan, path = plan_of(document), tmp_path / "cells.yaml"
    write_plan(plan, path)
    text = path.read_text(encoding="utf-8")
    path.write_text("".join(text.splitlines(keepends=True)[3:]), encoding="utf-8")
    assert differing(plan, path) == ()  # without its header, as an older version wrote it
    path.write_text(text.replace("steps: 61", "steps: 62", 1), encoding="utf-8")
    assert differing(plan, path) == (path,)  # the header is right, the text is not
    document["study"]["seeds"] = [2]
    path.write_text(text, encoding="utf-8")
    assert differing(plan_of(document), path) == (path, path.with_suffix(".json"))


def test_stage_structure_is_the_same_after_a_change_of_values(document: dict[str, Any]) -> None:
    before = stage_structure(plan_document(plan_of(document)))
    set_key("recipe.policy.steps", 7)(document)
    assert stage_structure(plan_document(plan_of(document))) == before
    document["study"]["rounds"] = 2
    assert stage_structure(plan_document(plan_of(document))) != before


def test_checked_in_cells_are_the_plan_of_the_checked_in_params() -> None:
    plan = plan_of(load_yaml(ROOT / "params.yaml"))
    assert differing(plan, ROOT / "cells.yaml") == (), "run `dynamicrubric plan`"


def test_unknown_cell_is_answered_with_those_there_are_or_of_many_with_the_nearest() -> None:
    text = (ROOT / "profiles/postcards.yaml").read_text(encoding="utf-8")
    small = expand(parse_config(text, "params.yaml"))
    with pytest.raises(UserError) as caught:
        small.cell("coevolved-s1-r9")
    for key in (*small.starts, *small.cells):
        assert key in caught.value.expected
    large = expand(parse_config(select(text, "default", range(1, 6)), "params.yaml"))
    assert len(large.starts) + len(large.cells) > MOST_NAMED
    with pytest.raises(UserError) as caught:
        large.cell("coevolved-s1-r9")
    named = [key for key in (*large.starts, *large.cells) if key in caught.value.expected]
    assert len(named) == 4
    assert "coevolved-s1-r3" in named
