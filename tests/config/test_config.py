"""What params.yaml may hold, and what is said about what it may not."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.config import Config, load_config, merge, resolve_arm
from dynamicrubric.errors import UserError
from dynamicrubric.yamlio import dump_yaml, load_yaml

ROOT = Path(__file__).resolve().parents[2]
STUDY = Path(__file__).parent / "study.yaml"
BASE = load_yaml(STUDY)
DELETE = object()
ARM: dict[str, Any] = {"question": "What is this arm for?"}


@pytest.fixture
def study_text() -> str:
    return STUDY.read_text(encoding="utf-8")


@pytest.fixture
def document() -> dict[str, Any]:
    return copy.deepcopy(BASE)


def changed(document: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    """Return the document with one dotted key set, or deleted."""
    *parents, last = key.split(".")
    section = document
    for parent in parents:
        section = section[parent]
    if value is DELETE:
        del section[last]
    else:
        section[last] = value
    return document


def load(tmp_path: Path, document: dict[str, Any]) -> Config:
    path = tmp_path / "params.yaml"
    dump_yaml(document, path)
    return load_config(path)


def load_text(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def test_a_folder_in_place_of_a_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"got a folder; expected a YAML file\. Name a file in it"):
        load_config(tmp_path)


def test_a_profile_that_is_not_there_is_answered_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError, match=r"\(there are anchors, .*qwen3-8b, smollm2, theory\)"):
        load_config(tmp_path / "qwen4")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"copy a profile to params\.yaml\.$"):
        load_config(tmp_path / "qwen4")


def test_a_file_that_is_not_utf8_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_bytes(b"world: \xff\xfe")
    with pytest.raises(UserError, match=r"expected UTF-8 text\. Mend the file"):
        load_config(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        # unknown keys
        ("recipe.foo", 1, ["recipe.foo = 1", "unknown key", "responses_per_set"]),
        ("recipe.generator.updte", "stale", ["recipe.generator.updte", "did you mean update?"]),
        ("recipe.policy.top_p", 0.9, ["recipe.policy.top_p = 0.9", "unknown key"]),
        ("wrold", {}, ["unknown key wrold", "did you mean world?"]),
        ("study.arms.stale.recipe", 1, ["study.arms.stale", "unknown key recipe = 1"]),
        (
            "study.arms.stale.generator",
            {"update": "stale", "lerning_rate": 1.0},
            ["study.arms.stale", "generator.lerning_rate = 1.0", "did you mean learning_rate?"],
        ),
        # missing keys
        ("recipe.max_rubric_items", DELETE, ["no key recipe.max_rubric_items"]),
        ("study.arms.stale.question", " " * 9, ["study.arms.stale.question", "at least 8"]),
        ("study.groups", {"a": [{"arm": 1}]}, ["unknown key study.groups.a.0.arm = 1", "arms?"]),
        ("study.run", [1], ["entry 1: 1; expected a mapping"]),
        ("study.seeds", list(range(201)), ["study.seeds", "at most 200 items"]),
        ("study.arms.stale.question", DELETE, ["no key study.arms.stale.question"]),
        ("world", DELETE, ["no key world"]),
        # wrong types
        ("study.rounds", "3", ["study.rounds = '3'", "a valid integer"]),
        ("study.rounds", 3.0, ["study.rounds = 3.0", "a valid integer"]),
        ("study.rounds", True, ["study.rounds = true", "a valid integer"]),
        ("study.seeds", 1, ["study.seeds = 1", "a list"]),
        ("study.seeds", [1, "two"], ["study.seeds.1 = 'two'", "a valid integer"]),
        ("world", 5, ["world = 5", "a mapping"]),
        ("study.arms.stale", None, ["study.arms.stale = null", "a mapping"]),
        ("study.arms.stale.generator", 5, ["study.arms.stale", "generator = 5", "a mapping"]),
        ("recipe.verifier.error_rate", "low", ["recipe.verifier.error_rate = 'low'", "number"]),
        # impossible numbers
        ("study.rounds", 0, ["study.rounds = 0", "greater than or equal to 1"]),
        ("study.rounds", -1, ["study.rounds = -1", "greater than or equal to 1"]),
        ("study.seeds", [], ["study.seeds = []", "at least 1 item"]),
        ("study.seeds", [1, 2, 1], ["seeds lists 1 more than once"]),
        ("study.seeds", [-1], ["study.seeds.0 = -1", "greater than or equal to 0"]),
        ("study.arms", {}, ["study.arms = {}", "at least 1 item"]),
        ("recipe.responses_per_set", 1, ["recipe.responses_per_set = 1", "or equal to 2"]),
        ("recipe.responses_per_set", 6, ["policy.batch_size is 64", "6", "has to be 48"]),
        ("recipe.generator.group_size", 1, ["recipe.generator.group_size = 1", "equal to 2"]),
        ("recipe.generator.group_size", 7, ["generator.batch_size is 64", "has to be 56"]),
        ("recipe.policy.batch_size", 60, ["policy.batch_size is 60", "has to be 64"]),
        ("recipe.policy.steps", 0, ["recipe.policy.steps = 0", "or equal to 1"]),
        ("recipe.policy.kl_beta", float("nan"), ["recipe.policy.kl_beta = nan", "finite"]),
        ("recipe.policy.kl_beta", float("inf"), ["recipe.policy.kl_beta = inf", "finite"]),
        ("recipe.policy.learning_rate", 0, ["learning_rate = 0", "greater than 0"]),
        ("recipe.policy.temperature", 0, ["recipe.policy.temperature = 0", "greater than 0"]),
        ("recipe.policy.min_p", 1, ["recipe.policy.min_p = 1", "less than 1"]),
        ("recipe.policy.min_p", -0.1, ["recipe.policy.min_p = -0.1", "or equal to 0"]),
        ("recipe.max_rubric_items", 41, ["max_rubric_items is 41", "40 criteria"]),
        (
            "recipe.verifier.failure_rate",
            0.2,
            ["failure_rate 0.2 is above", "max_unscored_rate 0.1"],
        ),
        ("recipe.verifier.max_unscored_rate", 2, ["max_unscored_rate = 2", "or equal to 1"]),
        ("recipe.verifier.failure_rate", 1.5, ["failure_rate = 1.5", "or equal to 1"]),
        ("recipe.generator.objective", {"disc": 0, "anchor": 0}, ["both 0"]),
        ("backbone.num_heads", 5, ["hidden_size 96", "num_heads 5"]),
        ("backbone.num_heads", 32, ["hidden_size 96", "num_heads 32", "even"]),
        ("runtime.slots", 0, ["runtime.slots = 0", "or equal to 1"]),
        ("runtime.processes", 3, ["prompts_per_step is 8", "runtime.processes 3", "whole"]),
        ("runtime.rows_per_pass", 7, ["runtime.rows_per_pass is 7", "64 rows", "divide"]),
        ("runtime.processes", 16, ["prompts_per_step is 8", "runtime.processes 16", "whole"]),
        # more prompts in a step than the world has for training: 240 - 48
        (
            "recipe.generator",
            BASE["recipe"]["generator"] | {"prompts_per_step": 193, "batch_size": 193 * 8},
            ["recipe: generator.prompts_per_step is 193", "num_heldout_prompts 48", "at most 192"],
        ),
        (
            "study.arms.stale.policy",
            {"prompts_per_step": 193, "batch_size": 193 * 8},
            ["study.arms.stale: policy.prompts_per_step is 193", "at most 192"],
        ),
        # names of kinds
        ("recipe.evaluator", "dynamo", ["recipe.evaluator = 'dynamo'", "'dynamic', 'static', "]),
        (
            "study.arms.static.evaluator",
            "gpt",
            ["study.arms.static", "evaluator = 'gpt'", "'dynamic', 'static', "],
        ),
        ("recipe.generator.update", "always", ["update = 'always'", "'none', 'once', 'stale'"]),
        ("study.arms.static.generator.update", "fresh", ["study.arms.static", "'upfront'"]),
        ("recipe.generator.update", "upfront", ["update is 'upfront'", "'fresh' or 'reverted'"]),
        (
            "study.arms.static.evaluator",
            "oracle",
            ["study.arms.static", "'upfront' with evaluator 'oracle'", "can be 'none'"],
        ),
        (
            "study.arms.static.evaluator",
            "rule_based",
            ["study.arms.static", "with evaluator 'rule_based'", "it has no generator"],
        ),
        (
            "study.arms.frozen",
            ARM | {"evaluator": "oracle", "generator": {"update": "none"}, "weights": "equal"},
            ["study.arms.frozen", "weights is 'equal' with evaluator 'oracle'"],
        ),
        (
            "study.arms.frozen.anchor_swap_rate",
            0.3,
            ["study.arms.frozen", "anchor_swap_rate is 0.3", "no training reads the anchors"],
        ),
        ("recipe.anchor_swap_rate", 1.2, ["recipe.anchor_swap_rate = 1.2", "or equal to 1"]),
        ("recipe.weights", "none", ["recipe.weights = 'none'", "'written' or 'equal'"]),
        ("recipe.weights", DELETE, ["no key recipe.weights"]),
        (
            "study.arms.frozen",
            ARM
            | {
                "evaluator": "rule_based",
                "generator": {"update": "none"},
                "min_rubric_items": 6,
                "max_rubric_items": 8,
            },
            ["study.arms.frozen: min_rubric_items is 6", "'rule_based' has 5 items"],
        ),
        # what is run
        ("study.run", "grid", ["run is 'grid', which is no group", "the groups are none"]),
        ("study.run", "stale", ["run is 'stale'", "it is an arm: a list takes arms"]),
        ("study.run", [], ["study.run", "the name of a group, or a list of arms"]),
        ("study.run", 5, ["study.run", "the name of a group, or a list of arms"]),
        ("study.run", ["stale", "sttic"], ["run names the arm 'sttic'", "frozen, static"]),
        ("study.run", ["stale", "stale"], ["run names the arm 'stale' more than once"]),
        ("study.run", [{"arms": ["stale"], "seed": 1}], ["run: entry 1: unknown key seed = 1"]),
        ("study.run", [{"arms": ["stale"], "seeds": [2, 2]}], ["entry 1", "2 more than once"]),
        ("study.groups", {"few": []}, ["study.groups.few = []", "at least 1 item"]),
        ("study.groups", {"few": [{"arms": ["no"]}]}, ["groups.few names the arm 'no'"]),
        (
            "study.groups",
            {"few": [{"arms": ["stale"]}, {"arms": ["stale"], "seeds": [3]}]},
            ["groups.few names the arm 'stale' more than once"],
        ),
        (
            "study.groups",
            {"few": [{"arms": ["stale"], "seeds": [4, 4]}]},
            ["study.groups.few.0", "seeds lists 4 more than once"],
        ),
        ("study.groups", {"few": [{"arms": ["stale"], "rounds": 0}]}, ["few.0.rounds = 0"]),
        ("study.groups", {"a b": [{"arms": ["stale"]}]}, ["'a b'", "study.groups"]),
        ("world.name", "letters", ["world.name = 'letters'", "'postcards'"]),
        # duplicate arms
        ("study.arms.stale.generator.update", "fresh", ["study.arms.stale", "'coevolved'"]),
        ("study.arms.copy", {"question": "Is it the same?"}, ["study.arms.copy", "'coevolved'"]),
    ],
)
def test_config_bad_value_is_refused_with_key_value_and_rule(
    tmp_path: Path, document: dict[str, Any], key: str, value: object, said: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, changed(document, key, value))
    message = str(caught.value)
    assert [part for part in [str(tmp_path / "params.yaml"), *said] if part not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "a/../../b",
        "C:\\x",
        "con",
        "nul",
        "com1",
        "x\0y",
        "a" * 300,
        ".hidden",
        "a b#c?d",
        "",
        "Stale",
        "stale\n",
        "é",
        "a-b",
        1,
        True,
        None,
    ],
)
def test_config_arm_name_that_is_no_slug_is_refused(document: dict[str, Any], name: object) -> None:
    document["study"]["arms"][name] = {"question": "Does it escape?", "responses_per_set": 4}
    with pytest.raises(ValueError, match=r"arms|arm name"):
        Config.model_validate(document)


@pytest.mark.parametrize("name", ["../evil", "C:\\x", "con", ".hidden", "a b#c?d", "a" * 300])
def test_config_bad_arm_name_is_shown_in_one_short_line(
    tmp_path: Path, document: dict[str, Any], name: str
) -> None:
    document["study"]["arms"][name] = {"question": "Does it escape?"}
    with pytest.raises(UserError) as caught:
        load(tmp_path, document)
    message = str(caught.value).replace(str(tmp_path), "")
    assert repr(name)[:40] in message
    assert len(message) < 300
    assert "\n" not in message
    assert [entry.name for entry in tmp_path.iterdir()] == ["params.yaml"]


def test_config_repeated_yaml_key_is_refused_with_its_name_and_lines(
    tmp_path: Path, study_text: str
) -> None:
    with pytest.raises(UserError, match=r'duplicate key "coevolved".*line'):
        load_text(tmp_path, study_text.replace("    stale:\n", "    coevolved:\n"))


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e-5", 1e-5), ("1E-5", 1e-5), ("1.0e-5", 1e-5), ("0.00001", 1e-5), ("3e-4", 3e-4)],
)
def test_config_exponent_without_a_dot_is_read_as_a_number(
    tmp_path: Path, study_text: str, text: str, number: float
) -> None:
    first = study_text.index("learning_rate: 3e-4")
    changed_text = study_text[:first] + study_text[first:].replace("3e-4", text, 1)
    assert load_text(tmp_path, changed_text).recipe.generator.learning_rate == number


@pytest.mark.parametrize("word", ["no", "yes", "on", "off", "y", "n"])
def test_config_word_that_yaml_1_1_reads_as_a_truth_value_is_a_string(
    tmp_path: Path, study_text: str, word: str
) -> None:
    with pytest.raises(UserError, match=f"recipe.generator.update = '{word}'"):
        load_text(tmp_path, study_text.replace("update: fresh", f"update: {word}"))


@pytest.mark.parametrize("zero", ["0", "0.0"])
def test_config_whole_number_for_a_float_is_the_same_as_the_float(
    tmp_path: Path, study_text: str, zero: str
) -> None:
    config = load_text(tmp_path, study_text.replace("kl_beta: 0.01", f"kl_beta: {zero}"))
    assert repr(config.recipe.policy.kl_beta) == "0.0"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "[1, 2]",
        "hello",
        "a: b: c",
        "a: [1, 2",
        "a: 1\n---\nb: 2",
        "a: !!python/object/apply:os.system ['true']",
        "a: !unknown 1",
        'a: "\0"',
        f"a: {'9' * 5000}",
        "a: 2026-13-45",
        f"a: {'[' * 600}{']' * 600}",
        "<<<<<<< HEAD\na: 1\n=======\na: 2\n>>>>>>> other\n",
    ],
)
def test_config_file_that_is_no_mapping_of_yaml_is_refused_in_one_line(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(UserError, match=r"params\.yaml") as caught:
        load_text(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_config_file_in_another_encoding_is_refused(tmp_path: Path, study_text: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_bytes(study_text.encode("utf-16"))
    with pytest.raises(UserError, match="UTF-8"):
        load_config(path)


@pytest.mark.parametrize("name", ["absent.yaml", "."])
def test_config_path_that_is_no_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=str(tmp_path / name)):
        load_config(tmp_path / name)


def test_config_mapping_that_holds_itself_is_refused(tmp_path: Path, study_text: str) -> None:
    looped = study_text.replace("generator: {update: stale}", "generator: &g {objective: *g}")
    with pytest.raises(UserError, match="unknown key"):
        load_text(tmp_path, looped)


def test_config_several_problems_are_all_named_a_line_each(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    document["study"]["rounds"] = 0
    document["runtime"]["slots"] = 0
    document["recipe"]["evaluatr"] = document["recipe"].pop("evaluator")
    with pytest.raises(UserError) as refused:
        load(tmp_path, document)
    lines = str(refused.value).splitlines()
    assert lines[0].endswith("several problems:")
    assert lines[1].startswith("  unknown key recipe.evaluatr = 'dynamic'; expected one of ")
    assert lines[1].endswith("(did you mean evaluator?)")
    assert sorted(lines[2:4]) == [
        "  runtime.slots = 0; expected greater than or equal to 1",
        "  study.rounds = 0; expected greater than or equal to 1",
    ]
    assert lines[4:] == ["Change what is named; profiles/ holds complete examples."]


def test_config_very_many_problems_are_named_up_to_ten(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    document["recipe"]["policy"] = dict.fromkeys((f"k{n}" for n in range(15)), 1)
    with pytest.raises(UserError) as refused:
        load(tmp_path, document)
    lines = str(refused.value).splitlines()
    assert len(lines) == 13
    assert lines[11].endswith(" more")


def test_config_step_may_take_every_training_prompt(document: dict[str, Any]) -> None:
    document["recipe"]["policy"] |= {"prompts_per_step": 192, "batch_size": 192 * 8}
    assert Config.model_validate(document).recipe.policy.prompts_per_step == 192


def test_config_is_frozen(document: dict[str, Any]) -> None:
    config = Config.model_validate(document)
    with pytest.raises(ValueError, match="frozen"):
        config.study.rounds = 5


def test_merge_nested_diff_leaves_the_base_untouched() -> None:
    base = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merge(base, {"a": {"b": 9}}) == {"a": {"b": 9, "c": 2}, "d": 3}
    assert base == {"a": {"b": 1, "c": 2}, "d": 3}


def test_resolve_arm_changes_only_the_keys_of_the_diff(document: dict[str, Any]) -> None:
    config = Config.model_validate(document)
    stale = resolve_arm(config, "stale").model_dump()
    base = config.recipe.model_dump()
    assert stale["generator"].pop("update") == "stale"
    assert base["generator"].pop("update") == "fresh"
    assert stale == base


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").glob("*.yaml")), ids=lambda p: p.stem)
def test_config_every_profile_is_valid(path: Path) -> None:
    assert load_config(path).study.arms


def test_config_there_are_profiles() -> None:
    assert (ROOT / "profiles" / "postcards.yaml").is_file()


CHOICE = ("run", "seeds", "rounds")
"""What `make study` and `make reproduce ARMS=...` write into params.yaml."""


def test_config_postcards_profile_is_params_yaml_but_for_what_is_run() -> None:
    profile, params = (
        load_yaml(ROOT / name) for name in ("profiles/postcards.yaml", "params.yaml")
    )
    for document in (profile, params):
        for key in CHOICE:
            document["study"].pop(key)
    assert profile == params, "after a change: cp params.yaml profiles/postcards.yaml"


def test_default_study_has_the_four_arms_three_rounds_and_one_seed() -> None:
    study = load_config(ROOT / "profiles/postcards.yaml").study
    assert study.run == "default"
    assert [run.arm for run in study.runs] == ["coevolved", "stale", "frozen", "static"]
    assert {(run.rounds, run.seeds) for run in study.runs} == {(3, (1,))}


def test_default_studys_groups_are_those_of_the_study() -> None:
    config = load_config(ROOT / "profiles/postcards.yaml")
    seeds = {arm: one.seeds for one in config.study.groups["study"] for arm in one.arms}
    (evaluators,) = config.study.groups["evaluators"]
    others = {"scalar", "scalar_set", "length", "random"}
    assert others < set(evaluators.arms)
    assert seeds.keys() | others == config.study.arms.keys()
    assert not seeds.keys() & others
    five = {"coevolved", "once", "stale", "frozen", "static", "disc_only", "anchor_only"}
    assert {arm for arm, own in seeds.items() if own == (1, 2, 3, 4, 5)} == five
    assert {seeds[arm] for arm in seeds.keys() - five} == {(1, 2, 3)}
    (long,), (grid,) = config.study.groups["long"], config.study.groups["grid"]
    assert (set(long.arms), long.seeds, long.rounds) == (
        {"coevolved", "stale", "once"},
        (1, 2, 3),
        6,
    )
    assert (set(grid.arms), grid.rounds) == ({"coevolved", "once", "stale", "reverted"}, 2)


def test_config_without_run_runs_every_arm_with_the_studys_seeds(document: dict[str, Any]) -> None:
    study = Config.model_validate(document).study
    assert [(run.arm, run.seeds, run.rounds) for run in study.runs] == [
        (arm, (1,), 3) for arm in document["study"]["arms"]
    ]


def test_config_run_takes_arms_with_seeds_and_rounds_of_their_own(document: dict[str, Any]) -> None:
    document["study"]["run"] = ["static", {"arms": ["stale"], "seeds": [4, 2], "rounds": 5}]
    runs = Config.model_validate(document).study.runs
    # In the order of study.arms, whatever the order asked in.
    assert [(run.arm, run.seeds, run.rounds) for run in runs] == [
        ("stale", (4, 2), 5),
        ("static", (1,), 3),
    ]
