"""A step's engines: opened as its recipe says, shared by roles, closed with it."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="the optional extra `openai` is not installed")

from chatmodel import save_chat_model
from fakeendpoint import Answer, Asked, FakeEndpoint, chat, serving
from ourchildren import children_running
from tinyadapter import save_adapter

from dynamicrubric.config import Sampling, VerifierConfig
from dynamicrubric.engines import vllm_child
from dynamicrubric.engines.base import GenerateRequest, JudgeRequest, Verifier
from dynamicrubric.engines.chattokenizer import ChatTokenizer
from dynamicrubric.engines.choice import Engines
from dynamicrubric.engines.identity import checkpoint_hash
from dynamicrubric.engines.models import Models
from dynamicrubric.engines.places import EnginePlaces
from dynamicrubric.engines.reference import probe_of
from dynamicrubric.engines.transformers import sequence_logprobs
from dynamicrubric.engines.verifier import PROBES, LanguageModelVerifier
from dynamicrubric.engines.vllm import PROBE_TOLERANCE
from dynamicrubric.enginesettings import InProcess, OpenAI, Vllm
from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.worlds.base import BaseModelFiles

HERE = Path(__file__).parent
SAMPLING = Sampling(temperature=1.0, min_p=0.0, max_tokens=5)
SETTINGS = Vllm(kind="vllm", dtype="float32", max_model_len=600)
REQUEST = JudgeRequest("Dear Anna", ("It greets.", "It thanks."), 1, prompt="Write")
YES = {"yes": -0.2, "no": -2.0}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = save_chat_model(tmp_path_factory.mktemp("base") / "base", seed=1)
    return Models(BaseModelFiles(folder, "float32"))


@pytest.fixture(scope="module")
def adapters(models: Models, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Adapters that change what the base says, as trained ones do."""
    folder = tmp_path_factory.mktemp("adapters")
    return {
        role: save_adapter(models, folder / role, seed)
        for seed, role in enumerate(("policy", "generator"))
    }


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnginePlaces:
    """The place of an environment in which transformers stands for vLLM."""
    monkeypatch.setenv("FAKE_CHILD_PROTOCOL", vllm_child.__file__)
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "hfchild.py"}" "$3" "$4" "$5"\n'
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return EnginePlaces.model_validate(
        {"vllm": {"python": str(python)}, "log_dir": str(tmp_path / "logs")}
    )


def verifier(**engine: Any) -> VerifierConfig:
    return VerifierConfig.model_validate(
        {
            "kind": "language_model", "error_rate": 0.0, "failure_rate": 0.0,
            "max_unscored_rate": 1.0, "coverage_floor": 0.0, "engine": engine,
        }
    )  # fmt: skip


def children() -> list[int]:
    return children_running("hfchild.py")


# --- vLLM ---------------------------------------------------------------------------------------


def test_roles_share_one_child_and_each_answers_by_its_own_adapter(
    models: Models, adapters: dict[str, Path], vllm: EnginePlaces, tmp_path: Path
) -> None:
    with Engines(models, vllm) as engines:
        samplers = {role: engines.sampler(role, SETTINGS, adapters[role]) for role in adapters}
        judge = engines.verifier(verifier(kind="vllm", dtype="float32", max_model_len=600))
        assert len(children()) == 1
        for role, (engine, tokenizer) in samplers.items():
            prompt = tokenizer.policy_prompt("Write to Anna")
            (found,) = engine.generate([GenerateRequest(prompt, 7)], SAMPLING)
            expected = [
                sequence_logprobs(model, [prompt], [found.token_ids], tokenizer.pad_id, 1.0)[0]
                for model in (models.load(adapters[role]), models.base())
            ]
            assert math.fsum(found.logprobs or ()) == pytest.approx(expected[0], abs=1e-3)
            assert abs(expected[0] - expected[1]) > 0.01
        here = Engines(models).verifier(verifier(kind="transformers"))
        for theirs, ours in zip(judge.judge([REQUEST])[0], here.judge([REQUEST])[0], strict=True):
            assert theirs.p_yes == pytest.approx(ours.p_yes, abs=1e-3)
        engines.write(tmp_path, with_cost=True)
    assert children() == []
    document = json.loads((tmp_path / "engines.json").read_text("utf-8"))
    base = checkpoint_hash(models.base_folder)
    assert [(one["role"], one["checkpoint"]) for one in document["engines"]] == [
        *((role, f"{base}+{checkpoint_hash(folder)}") for role, folder in adapters.items()),
        ("verifier", base),
    ]
    assert "cost" not in document


@pytest.mark.parametrize(
    ("told_before", "number"), [(True, 1), pytest.param(False, 2, marks=pytest.mark.slow)]
)
def test_role_that_is_kept_to_a_form_shares_a_child_that_was_started_for_it(
    models: Models,
    adapters: dict[str, Path],
    vllm: EnginePlaces,
    told_before: bool,
    number: int,
) -> None:
    generator = adapters["generator"]
    with Engines(models, vllm) as engines:
        if told_before:
            engines.make_room(SETTINGS, generator, constrained=True)
        engines.sampler("policy", SETTINGS, adapters["policy"])
        engines.sampler("generator", SETTINGS, generator, constrained=True)
        engines.sampler("generator", SETTINGS, generator)
        assert len(children()) == number
    assert children() == []


def test_engines_of_this_process_are_recorded_by_role_and_checkpoint_once_each(
    models: Models, adapters: dict[str, Path], tmp_path: Path
) -> None:
    here = InProcess()
    with Engines(models) as engines:
        for _ in range(2):
            engines.sampler("policy", here, adapters["policy"])
        engines.sampler("generator", here, adapters["generator"])
        judge = engines.verifier(verifier(kind="transformers"))
        engines.write(tmp_path, with_cost=True)
    document = json.loads((tmp_path / "engines.json").read_text("utf-8"))
    base = checkpoint_hash(models.base_folder)
    assert [(one["role"], one["checkpoint"]) for one in document["engines"]] == [
        *((role, f"{base}+{checkpoint_hash(folder)}") for role, folder in adapters.items()),
        ("verifier", base),
    ]
    assert isinstance(judge, LanguageModelVerifier)
    band = document["engines"][-1]["settings"]["undecided_band"]
    assert band == judge.undecided_band


def test_adapter_that_vllm_takes_and_does_not_apply_is_a_broken_instrument(
    models: Models,
    adapters: dict[str, Path],
    vllm: EnginePlaces,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_CHILD_IGNORES_ADAPTERS", "1")
    with (
        pytest.raises(InstrumentError, match=r"the policy's engine .* does not answer"),
        Engines(models, vllm) as engines,
    ):
        engines.sampler("policy", SETTINGS, adapters["policy"])
    assert children() == []


@pytest.mark.parametrize("ignored", [False, True])
def test_adapter_that_does_less_than_the_number_format_s_tolerance_is_missed_all_the_same(
    models: Models,
    vllm: EnginePlaces,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ignored: bool,
) -> None:
    small = save_adapter(models, tmp_path / "small", seed=3, size=0.005)
    prompt = ChatTokenizer.load(models.base_folder).policy_prompt("Write to Anna")
    answers = [probe_of(model, tuple(prompt)) for model in (models.load(small), models.base())]
    assert 0.0 < answers[0].distance(answers[1]) < PROBE_TOLERANCE["bfloat16"] / 2
    if ignored:
        monkeypatch.setenv("FAKE_CHILD_IGNORES_ADAPTERS", "1")
    settings = SETTINGS.model_copy(update={"dtype": "bfloat16"})
    with Engines(models, vllm) as engines:
        if ignored:
            with pytest.raises(InstrumentError, match=r"the policy's engine .* does not answer"):
                engines.sampler("policy", settings, small)
        else:
            engine, _ = engines.sampler("policy", settings, small)
            assert len(engine.generate([GenerateRequest(prompt, 7)], SAMPLING)) == 1


def test_prompt_beyond_the_context_is_a_failure_and_not_a_text(
    models: Models, adapters: dict[str, Path], vllm: EnginePlaces
) -> None:
    with Engines(models, vllm) as engines:
        engine, tokenizer = engines.sampler("policy", SETTINGS, adapters["policy"])
        prompts = [tokenizer.policy_prompt(text) for text in ("Write", "to Anna " * 400)]
        found = engine.generate([GenerateRequest(ids, 1) for ids in prompts], SAMPLING)
    assert [one.failure for one in found] == [None, "too_long"]


def test_missing_environment_of_vllm_says_how_to_build_it(
    models: Models, adapters: dict[str, Path], tmp_path: Path
) -> None:
    places = EnginePlaces.model_validate(
        {"vllm": {"python": str(tmp_path / "none")}, "log_dir": str(tmp_path)}
    )
    with pytest.raises(UserError, match="make vllm"), Engines(models, places) as engines:
        engines.sampler("policy", SETTINGS, adapters["policy"])


# --- endpoints ----------------------------------------------------------------------------------


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    def answer(asked: Asked, _: int) -> Answer:
        if asked.body.get("logprobs"):
            return Answer(chat("yes", tokens=[("yes", YES)]))
        return Answer(chat('[{"criterion":"greets","weight":2}]'))

    with serving(answer) as found:
        yield found


@pytest.fixture
def places(endpoint: FakeEndpoint, tmp_path: Path) -> Callable[..., EnginePlaces]:
    def make(**options: Any) -> EnginePlaces:
        place = {"base_url": endpoint.url, "key_variable": "TEST_KEY", **options}
        return EnginePlaces.model_validate(
            {"endpoints": {"judge-1": place}, "log_dir": str(tmp_path)}
        )

    return make


def test_endpoint_s_verdicts_are_billed_and_its_key_is_in_no_file(
    models: Models,
    places: Callable[..., EnginePlaces],
    endpoint: FakeEndpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-not-to-be-told")
    priced = places(price_per_million_prompt_tokens=3.0, price_per_million_completion_tokens=10.0)
    with Engines(models, priced) as engines:
        judge = engines.verifier(verifier(kind="openai", model="judge-1"))
        assert engines.verifier(verifier(kind="openai", model="judge-1")) is judge
        opening = engines.spent()
        assert opening["cost/calls"] > 0, "the undecided band is measured"
        (row,) = judge.judge([REQUEST])
        assert [verdict.value for verdict in row] == ["yes", "yes"]
        assert engines.spent() == {
            "cost/calls": 2.0, "cost/prompt_tokens": 20.0, "cost/completion_tokens": 4.0,
            "cost/price": pytest.approx(20 * 3e-6 + 4 * 10e-6),
        }  # fmt: skip
        assert engines.spent()["cost/calls"] == 0.0
        engines.write(tmp_path, with_cost=True)
    text = (tmp_path / "engines.json").read_text("utf-8")
    assert "sk-not-to-be-told" not in text
    assert endpoint.asked[0].headers["authorization"] == "Bearer sk-not-to-be-told"
    document = json.loads(text)
    assert document["engines"][0]["checkpoint"] == "named:judge-1"
    assert document["cost"]["cost/calls"] == opening["cost/calls"] + 2


def test_price_that_is_not_known_is_no_metric(
    models: Models, places: Callable[..., EnginePlaces]
) -> None:
    with Engines(models, places(price_per_million_prompt_tokens=3.0)) as engines:
        engines.verifier(verifier(kind="openai", model="judge-1"))
        assert "cost/price" not in engines.spent()


@contextmanager
def opened_verifier(
    models: Models, answer: Callable[[Asked, int], Answer], log_dir: Path, **settings: Any
) -> Iterator[tuple[Engines, Verifier]]:
    """Open an endpoint that gives these answers as the verifier."""
    with serving(answer) as fake:
        places = EnginePlaces.model_validate(
            {
                "endpoints": {"judge-1": {"base_url": fake.url, "max_concurrency": 1}},
                "log_dir": str(log_dir),
            }
        )
        config = verifier(kind="openai", model="judge-1").model_copy(update=settings)
        with Engines(models, places) as engines:
            yield engines, engines.verifier(config)


def test_measured_band_is_recorded_and_seen_below_the_coverage_floor(
    models: Models, tmp_path: Path
) -> None:
    num_probes = sum(len(request.criteria) for request in PROBES)

    def answer(_: Asked, place: int) -> Answer:
        """Give little to yes and no; the second time a probe is asked, log-odds are 0.4 more."""
        top = {"yes": -5.0, "no": -5.2 if place < num_probes else -5.6}
        return Answer(chat("yes", tokens=[("yes", top)]))

    with opened_verifier(models, answer, tmp_path, coverage_floor=0.5) as (engines, judge):
        assert [verdict.reason for verdict in judge.judge([REQUEST])[0]] == ["low_coverage"] * 2
        engines.write(tmp_path, with_cost=False)
    (found,) = json.loads((tmp_path / "engines.json").read_text("utf-8"))["engines"]
    assert found["settings"]["undecided_band"] == pytest.approx(2 * 0.4 / 4)
    assert found["settings"]["verdicts_from"] == "probabilities"


def test_given_band_is_not_measured(
    models: Models, places: Callable[..., EnginePlaces], endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    settings = verifier(kind="openai", model="judge-1").model_copy(update={"undecided_band": 0.45})
    with Engines(models, places()) as engines:
        judge = engines.verifier(settings)
        assert endpoint.asked == []
        assert [verdict.reason for verdict in judge.judge([REQUEST])[0]] == ["undecided"] * 2
        engines.write(tmp_path, with_cost=False)
    (found,) = json.loads((tmp_path / "engines.json").read_text("utf-8"))["engines"]
    assert found["settings"]["undecided_band"] == 0.45


def test_endpoint_writes_for_a_conversation(
    models: Models, places: Callable[..., EnginePlaces], endpoint: FakeEndpoint
) -> None:
    with Engines(models, places()) as engines:
        engine = engines.chat(OpenAI(kind="openai", model="judge-1"))
        (found,) = engine.generate([GenerateRequest((), 5, [("user", "A rubric")])], SAMPLING)
    assert found.text.startswith("[{")
    assert endpoint.bodies()[0]["messages"] == [{"role": "user", "content": "A rubric"}]


def test_model_without_an_address_is_named(models: Models) -> None:
    with (
        pytest.raises(UserError, match=r"'judge-9'.*runtime\.endpoints"),
        Engines(models) as opened,
    ):
        opened.verifier(verifier(kind="openai", model="judge-9"))


def test_step_in_which_no_engine_answers_writes_no_file(models: Models, tmp_path: Path) -> None:
    with Engines(models) as engines:
        assert engines.spent() == {}
        engines.write(tmp_path, with_cost=True)
    assert os.listdir(tmp_path) == []
