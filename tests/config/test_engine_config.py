"""Which engine serves a role: what is refused with which words, and what is part of an identity."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from dynamicrubric.config import Config, merge, parse_config, resolve_arm
from dynamicrubric.engines.places import EnginePlaces, places_document
from dynamicrubric.plan import engine_identity, expand, parse_recipe
from dynamicrubric.problems import all_problems
from dynamicrubric.runtime import RuntimeConfig
from tasks.training import generator_identity

ROOT = Path(__file__).resolve().parents[2]
PROFILE = (ROOT / "profiles" / "smollm2.yaml").read_text(encoding="utf-8")
PLACE = {"base_url": "https://models.example/v1", "key_variable": "JUDGE_KEY"}
JUDGE = {"kind": "openai", "model": "judge-1"}
VLLM = {"kind": "vllm", "dtype": "float32"}


@pytest.fixture
def document() -> dict[str, Any]:
    """The profile as a mapping, with the address of a model."""
    found: dict[str, Any] = YAML(typ="safe").load(PROFILE)
    found["runtime"]["endpoints"] = {"judge-1": dict(PLACE)}
    return found


def changed(document: dict[str, Any], **values: object) -> dict[str, Any]:
    """Return a copy with values at paths whose parts have `__` between them."""
    found = copy.deepcopy(document)
    for key, value in values.items():
        *parents, last = key.split("__")
        section = found
        for name in parents:
            section = section.setdefault(name, {})
        section[last] = value
    return found


def refused(document: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate(document)
    return " | ".join(str(part) for part in all_problems(caught.value, Config))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that a plan of the language world looks at."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text("one\n", encoding="utf-8")


def cell_ids(document: dict[str, Any]) -> set[str]:
    found = changed(document, world__anchors=["a.jsonl"], backbone__checkpoint="base")
    plan = expand(Config.model_validate(found))
    return {cell.id for cell in (*plan.starts.values(), *plan.cells.values())}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recipe__verifier__engine": {"kind": "sglang"}},
         ["recipe.verifier.engine.kind = 'sglang'", "'vllm'", "'vllm_server'", "'openai'"]),
        ({"recipe__verifier__engine": {"dtype": "float32"}},
         ["no key recipe.verifier.engine.kind"]),
        ({"recipe__verifier__engine": {"kind": "vllm", "dtype": "int4"}},
         ["recipe.verifier.engine.dtype = 'int4'", "'bfloat16'"]),
        ({"recipe__verifier__engine": {"kind": "vllm", "dtypo": "float32"}},
         ["unknown key recipe.verifier.engine.dtypo", "did you mean dtype"]),
        ({"recipe__verifier__engine": {"kind": "openai"}}, ["no key recipe.verifier.engine.model"]),
        ({"recipe__verifier__engine": {**JUDGE, "top_logprobs": 50}},
         ["recipe.verifier.engine.top_logprobs = 50", "less than or equal to 20"]),
        ({"recipe__verifier__engine": {"kind": "openai", "model": "judge-2"}},
         ["recipe: verifier.engine.model is 'judge-2'", "runtime.endpoints", "it has 'judge-1'"]),
        ({"recipe__policy__engine": JUDGE},
         ["recipe.policy.engine.kind = 'openai'", "'transformers', 'vllm'"]),
        ({"recipe__policy__engine": {"kind": "vllm_server", "model": "judge-1"}},
         ["recipe.policy.engine.kind = 'vllm_server'"]),
        ({"recipe__generator__engine": JUDGE},
         ["recipe.generator: engine.kind is 'openai' with update 'fresh'", "only be 'none'"]),
        ({"recipe__policy__engine": {**VLLM, "max_model_len": 64}},
         ["recipe.policy: engine.max_model_len is 64 with max_tokens 64", "has to be more"]),
        ({"backbone__lora__rank": 600, "recipe__policy__engine": VLLM},
         ["recipe: policy.engine.kind is 'vllm' with backbone.lora.rank 600", "at most 512"]),
        ({"runtime__endpoints__judge-1__base_url": "http://models.example/v1"},
         ["runtime.endpoints.judge-1: base_url http://models.example/v1", "https"]),
        ({"runtime__endpoints__judge-1__base_url": "https://me:secret@models.example/v1"},
         ["runtime.endpoints.judge-1: base_url https://models.example/v1", "no name or key"]),
        ({"runtime__endpoints__judge-1__key": "sk-123"},
         ["unknown key runtime.endpoints.'judge-1'.key", "one of base_url, key_variable"]),
        ({"runtime__endpoints__judge-1__apikey": "sk-123"},
         ["unknown key runtime.endpoints.'judge-1'.apikey"]),
        ({"runtime__endpoints__judge-1__api-key": "sk-123"},
         ["unknown key runtime.endpoints.'judge-1'.'api-key'"]),
        ({"runtime__endpoints__judge-1__base_url": "https://models.example/v1?api-key=sk-123"},
         ["a query or fragment, which is not shown"]),
        ({"runtime__endpoints__judge-1__key_variable": "sk-123"},
         ["runtime.endpoints.'judge-1'.key_variable", "name of an environment variable"]),
        ({"runtime__vllm__pyton": "x"}, ["unknown key runtime.vllm.pyton", "did you mean python"]),
        ({"recipe__verifier__kind": "programmatic", "recipe__verifier__engine": JUDGE,
          "recipe__verifier__coverage_floor": 0.5},
         ["engine is OpenAIVerifier", "kind 'programmatic'", "leave it out"]),
    ],
)  # fmt: skip
def test_engine_that_cannot_serve_is_refused_with_key_value_and_rule(
    document: dict[str, Any], changes: dict[str, Any], said: list[str]
) -> None:
    message = refused(changed(document, **changes))
    assert [part for part in said if part not in message] == []
    assert "secret" not in message
    assert "sk-123" not in message


def test_postcards_has_no_engine_but_its_own_process(params_text: str) -> None:
    postcards: dict[str, Any] = YAML(typ="safe").load(params_text)
    message = refused(changed(postcards, recipe__policy__engine=VLLM))
    assert "policy.engine.kind is 'vllm' with world.name 'postcards'" in message
    assert "only be 'transformers'" in message


def test_engines_at_their_default_are_in_no_document(params_text: str) -> None:
    config = parse_config(params_text, "params.yaml")
    plan = expand(config)
    for cell in (*plan.starts.values(), *plan.cells.values()):
        recipe = cell.recipe.model_dump(mode="json")
        assert "policy_engine" not in recipe
        assert "engine" not in recipe["rubrics"]
        assert "engine" not in recipe["verifier"]
        assert engine_identity(cell.recipe.policy_engine) == {}
    assert not {"vllm", "endpoints"} & config.model_dump(mode="json")["runtime"].keys()


@pytest.mark.parametrize(
    ("role", "engine", "other"),
    [
        ("verifier", VLLM, {**VLLM, "dtype": "bfloat16"}),
        ("verifier", VLLM, {**VLLM, "max_model_len": 2048}),
        ("verifier", JUDGE, {**JUDGE, "model": "judge-2"}),
        ("generator", VLLM, {"kind": "transformers"}),
        ("policy", VLLM, {"kind": "vllm", "dtype": "float16"}),
    ],
)
@pytest.mark.usefixtures("here")
def test_kind_format_and_model_of_an_engine_make_other_cells(
    document: dict[str, Any], role: str, engine: dict[str, Any], other: dict[str, Any]
) -> None:
    document["runtime"]["endpoints"]["judge-2"] = dict(PLACE)
    key = f"recipe__{role}__engine"
    first, second = (cell_ids(changed(document, **{key: value})) for value in (engine, other))
    assert not first & second


@pytest.mark.usefixtures("here")
def test_engine_of_the_generator_leaves_a_training_as_it_is_that_does_not_write_with_it(
    document: dict[str, Any],
) -> None:
    chosen = changed(
        document,
        world__anchors=["a.jsonl"],
        backbone__checkpoint="base",
        study__arms__kept={
            "question": "Once a prompt?", "evaluator": "static", "generator": {"update": "upfront"},
        },
        study__run=["coevolved", "kept"],
    )  # fmt: skip
    plans = [
        expand(Config.model_validate(one)).cells.values()
        for one in (chosen, changed(chosen, recipe__generator__engine=VLLM))
    ]
    evaluators = set()
    for first, second in zip(*plans, strict=True):
        evaluator = first.recipe.rubrics.evaluator
        evaluators.add(evaluator)
        same = generator_identity(first.recipe) == generator_identity(second.recipe)
        assert same == (evaluator == "dynamic"), first.key
    assert evaluators == {"dynamic", "static"}


@pytest.mark.usefixtures("here")
def test_place_pace_and_price_of_an_engine_make_no_other_cells(document: dict[str, Any]) -> None:
    chosen = changed(document, recipe__verifier__engine=JUDGE, recipe__policy__engine=VLLM)
    moved = changed(
        chosen,
        runtime__vllm={"python": "elsewhere/python", "kv_cache_gib": 9.0, "eager": False},
        runtime__endpoints={
            "judge-1": {
                "base_url": "http://127.0.0.1:8000/v1",
                "key_variable": "OTHER_KEY",
                "max_concurrency": 64,
                "timeout_seconds": 5,
                "price_per_million_prompt_tokens": 0.25,
                "price_per_million_completion_tokens": 1,
            }
        },
    )
    assert cell_ids(chosen) == cell_ids(moved)


@pytest.mark.parametrize(
    ("slots", "processes", "share"), [(1, 1, (60.0, 8)), (2, 2, (15.0, 2)), (16, 1, (3.75, 1))]
)
def test_processes_share_what_may_be_asked_of_an_endpoint(
    document: dict[str, Any], slots: int, processes: int, share: tuple[float, int]
) -> None:
    place = {**PLACE, "requests_per_minute": 60.0, "max_concurrency": 8}
    document["runtime"] |= {"slots": slots, "processes": processes, "endpoints": {"judge-1": place}}
    runtime = RuntimeConfig.model_validate(document["runtime"])
    given = EnginePlaces.model_validate(places_document(runtime, Path("logs"))).endpoint("judge-1")
    assert (given.requests_per_minute, given.max_concurrency) == share


def test_arm_with_an_engine_of_another_kind_keeps_no_key_of_the_first(
    document: dict[str, Any],
) -> None:
    found = changed(
        document,
        recipe__verifier__engine={**VLLM, "max_model_len": 2048},
        study__arms__judged={"question": "Whose verdicts?", "verifier": {"engine": JUDGE}},
        study__arms__coarse={
            "question": "In which format?", "verifier": {"engine": {"dtype": "bfloat16"}},
        },
    )  # fmt: skip
    config = Config.model_validate(found)
    judged, coarse = (resolve_arm(config, name).verifier.engine for name in ("judged", "coarse"))
    assert judged.model_dump(include={"kind", "model"}) == JUDGE
    assert coarse.model_dump(include={"kind", "dtype", "max_model_len"}) == {
        "kind": "vllm", "dtype": "bfloat16", "max_model_len": 2048,
    }  # fmt: skip


@pytest.mark.usefixtures("here")
def test_recipe_with_engines_reads_back_as_it_was_written(document: dict[str, Any]) -> None:
    chosen = changed(
        document,
        world__anchors=["a.jsonl"],
        backbone__checkpoint="base",
        recipe__verifier__engine={"kind": "vllm_server", "model": "judge-1", "dtype": "float16"},
        recipe__generator__engine=VLLM,
        recipe__policy__engine=VLLM,
    )
    plan = expand(Config.model_validate(chosen))
    for cell in plan.cells.values():
        assert parse_recipe(cell.recipe.model_dump(mode="json")) == cell.recipe


def test_generator_that_nobody_trains_may_be_an_endpoint_s_model(document: dict[str, Any]) -> None:
    found = changed(document, study__arms__frozen__generator={"update": "none", "engine": JUDGE})
    assert resolve_arm(Config.model_validate(found), "frozen").generator.engine.kind == "openai"


def test_example_in_the_docs_is_valid(document: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "real-models.md").read_text(encoding="utf-8")
    example = text.partition("```yaml\nrecipe:")[2].partition("```")[0]
    found: dict[str, Any] = YAML(typ="safe").load(f"recipe:{example}")
    config = Config.model_validate(merge(document, found))
    assert config.recipe.verifier.engine.kind == "openai"
    assert config.recipe.policy.engine.kind == "vllm"
    assert config.runtime.endpoints["judge-1"].key_variable == "JUDGE_KEY"
