"""From options to an evaluator: what each option means, over a real endpoint on loopback."""

from __future__ import annotations

import doctest
import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fakeendpoint import Answer, Asked, FakeEndpoint, chat, failure
from fakeendpoint import serving as endpoint_serving

from dynamicrubric.config import load_config
from dynamicrubric.doors.documents import document_of, set_of
from dynamicrubric.doors.opening import EvaluatorOptions, open_evaluator, profile_path, spec_of
from dynamicrubric.errors import InstrumentError, UserError

ROOT = Path(__file__).parents[2]
POSTCARDS, SMOLLM2 = ROOT / "profiles/postcards.yaml", ROOT / "profiles/smollm2.yaml"
RUBRIC = [{"criterion": "names a prime", "weight": 3}, {"criterion": "is brief", "weight": 1}]


@pytest.mark.parametrize("name", ["documents", "messages"])
def test_module_examples_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"dynamicrubric.doors.{name}"))
    assert (result.failed, result.attempted > 0) == (0, True)


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    """One model that writes rubrics, and as a judge says yes to what has "even" in it."""

    def answer(asked: Asked, place: int) -> Answer:
        text = json.dumps(asked.body["messages"])
        if not asked.body.get("top_logprobs"):
            return Answer(chat(json.dumps(RUBRIC)))
        said = "yes" if "even" in text else "no"
        other = "no" if said == "yes" else "yes"
        return Answer(chat(said, tokens=[(said, {said: -0.01, other: -6.0})]))

    with endpoint_serving(answer) as found:
        yield found


def test_endpoint_as_generator_and_verifier_scores_any_prompt_without_prepared_data(
    endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    options = EvaluatorOptions(
        profile=SMOLLM2, generator="openai:big", verifier="openai:judge",
        base_url=endpoint.url, prepared=tmp_path / "none",
    )  # fmt: skip
    asked = set_of("Name a prime.", ["Seven, or seventeen.", "Nine.", None])
    with open_evaluator(options) as opened:
        [scored] = opened.evaluator.score([asked], [1])
    found = document_of(asked, scored, opened.evaluator.name)
    assert found.scores == [1.0, 0.0, None]
    assert [item.model_dump() for item in found.rubric or []] == RUBRIC
    assert found.cost.calls == 5
    assert found.cost.verdicts == 4
    assert {asked.body["model"] for asked in endpoint.asked} == {"big", "judge"}
    assert opened.identity["evaluator"]["generator_engine"]["model"] == "big"


def test_endpoint_that_is_down_is_a_broken_instrument(tmp_path: Path) -> None:
    options = EvaluatorOptions(
        profile=SMOLLM2, generator="openai:big", verifier="program", prepared=tmp_path / "none"
    )
    with endpoint_serving(lambda asked, place: failure("no such model", status=404)) as fake:
        there = replace(options, base_url=fake.url)
        with open_evaluator(there) as opened, pytest.raises((InstrumentError, UserError)):
            opened.evaluator.score([set_of("Why?", ["a", "b"])], [1])


def test_spec_has_the_profiles_sizes_sampling_and_verifier_and_no_limit_that_stops() -> None:
    config = load_config(POSTCARDS)
    spec = spec_of(EvaluatorOptions(profile=POSTCARDS, generator=None), config)
    assert (spec.min_items, spec.max_items) == (3, 5)
    assert spec.sampling == config.recipe.generator.sampling
    assert spec.verifier.max_unscored_rate == 1.0
    assert spec.verifier.kind == "programmatic"
    named = spec_of(EvaluatorOptions(profile=POSTCARDS, verifier="base"), config)
    assert named.verifier.kind == "language_model"


def test_identity_of_scores_names_the_world_and_the_weights_of_the_base(
    endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "model.safetensors").write_bytes(b"weights")
    profile = tmp_path / "params.yaml"
    text = SMOLLM2.read_text(encoding="utf-8")
    profile.write_text(re.sub(r"(checkpoint:) \S+", rf"\1 {base}", text, count=1))
    options = EvaluatorOptions(
        profile=profile, generator="openai:big", verifier="openai:judge",
        base_url=endpoint.url, prepared=tmp_path / "none",
    )  # fmt: skip
    with open_evaluator(options) as opened:
        identity = json.loads(json.dumps(opened.identity))
    assert identity["world"] == "language"
    assert identity["generator"] is None
    assert identity["base"]["files"]["model.safetensors"][0] == len(b"weights")


def test_profile_is_a_file_or_the_name_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert profile_path(Path("smollm2")) == Path("profiles/smollm2.yaml")
    assert profile_path(Path("params.yaml")) == Path("params.yaml")


def test_programmatic_evaluator_takes_a_rubric_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rubric.json"
    criteria = ["greets the reader", "is never vague", "sends a wish"]
    path.write_text(json.dumps([{"criterion": c, "weight": 1} for c in criteria]))
    options = EvaluatorOptions("programmatic", POSTCARDS, rubric=path, prepared=tmp_path)
    with open_evaluator(options) as opened:
        [scored] = opened.evaluator.score([set_of("Hi", ["Dear Emma, hello."])], [1])
    assert scored.judged is not None
    assert scored.judged.num_verdicts == 3


def test_prepared_data_of_another_world_are_refused(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text("")
    (tmp_path / "world.json").write_text('{"name": "language"}')
    options = EvaluatorOptions("length", POSTCARDS, prepared=tmp_path)
    refused = pytest.raises(UserError, match="prepared data of the world 'language'")
    with refused, open_evaluator(options):
        pass


def test_generator_folder_of_the_hub_is_fetched_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    config = load_config(POSTCARDS)
    spec = spec_of(EvaluatorOptions(generator=f"hub:{tmp_path}"), config)
    assert spec.generator == str(tmp_path)


@pytest.mark.parametrize(
    ("kind", "verifier", "said"),
    [
        ("dynamic", "base", "a program gives the verdicts there"),
        ("static", "openai:judge", "a program gives the verdicts there"),
        ("programmatic", "base", "program, which reads its rubric"),
        ("length", "program", "length, oracle, random, scalar, scalar_set ask no verifier"),
        ("scalar", "openai:judge", "Leave --verifier out"),
    ],
)
def test_verifier_that_would_not_be_asked_is_refused(
    kind: str, verifier: str, said: str, tmp_path: Path
) -> None:
    options = EvaluatorOptions(kind, POSTCARDS, verifier=verifier, prepared=tmp_path)
    with pytest.raises(UserError, match=said), open_evaluator(options):
        pass
