"""The parent's end of vLLM's process, with a fake at the process boundary."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest
from faketokenizer import FakeTokenizer
from ourchildren import PATIENCE, children_running, wait_for_end

from dynamicrubric.config import Sampling
from dynamicrubric.engines import tokenengine, vllm_child, vllm_process
from dynamicrubric.engines.base import GenerateRequest, Generation, JudgeRequest
from dynamicrubric.engines.identity import checkpoint_hash
from dynamicrubric.engines.reading import VerdictReading
from dynamicrubric.engines.vllm import VllmEngine
from dynamicrubric.engines.vllm_process import VllmConfig, child_environment, engine_arguments
from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.prompts.chat import ChatFrame

HERE = Path(__file__).parent
SCRIPT = HERE / "fakechild.py"
SAMPLING = Sampling(temperature=1.0, min_p=0.0, max_tokens=6)
END, THINK, CLOSE = 2, 3, 4
WORDS = {END: "<end>", THINK: "<think>", CLOSE: "</think>", 30: "yes", 31: " Yes", 32: "no"}


def frame(ending: tuple[int, ...] = (8,)) -> ChatFrame:
    """A chat frame whose contents are one id a word."""
    marks = {"<a>": 7, **{f"<e{place}>": i for place, i in enumerate(ending)}}
    return ChatFrame.from_template(
        lambda messages: "<a>" + "".join(text for _, text in messages) + "".join(list(marks)[1:]),
        lambda text: [40 + len(word) % 40 for word in text.split()],
        marks,
    )


def tokenizer_with(chats: ChatFrame | None) -> FakeTokenizer:
    return FakeTokenizer(WORDS, ends={END}, contents=range(5, 90), frame=chats)


class Bench:
    """Makes checkpoints and engines that end with the test."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self.folder = folder
        self.told: list[str] = []

    def checkpoint(self, name: str = "a", does: str = "", shift: int = 0) -> Path:
        found = self.folder / name
        found.mkdir(exist_ok=True)
        (found / "config.json").write_text("{}")
        (found / "model.safetensors").write_bytes(name.encode())
        (found / "fake.json").write_text(json.dumps({"does": does, "shift": shift}))
        return found

    def engine(self, checkpoint: Path, **options: Any) -> VllmEngine:
        settings = options.pop("settings", {})
        tokenizer = tokenizer_with(options.pop("frame", None))
        engine = VllmEngine(
            "policy",
            checkpoint,
            VllmConfig(python=sys.executable, dtype="float32", **settings),
            tokenizer,
            log_dir=self.folder / "logs",
            on_progress=self.told.append,
            script=SCRIPT,
            **options,
        )
        return self._stack.enter_context(engine)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("FAKE_CHILD_PROTOCOL", vllm_child.__file__)
    monkeypatch.setattr(vllm_process, "_END_SECONDS", PATIENCE)  # of a fake that is ending
    with ExitStack() as stack:
        yield Bench(stack, tmp_path)


def ask(engine: VllmEngine, *prompts: list[int], seed: int = 1) -> list[Generation]:
    return engine.generate([GenerateRequest(ids, seed) for ids in prompts], SAMPLING)


# --- generation and verdicts --------------------------------------------------------------------


def test_generations_come_in_order_with_tokens_text_reason_and_log_probabilities(
    bench: Bench,
) -> None:
    engine = bench.engine(bench.checkpoint())
    prompts = [[7, 40 + n] for n in range(20)]
    found = ask(engine, *prompts)
    assert found == [ask(engine, ids)[0] for ids in prompts]
    assert {one.finish_reason for one in found} == {"stop", "length"}
    for one in found:
        assert (one.token_ids[-1] == END) == (one.finish_reason == "stop")
        assert one.text == tokenizer_with(None).decode(one.token_ids)
        assert one.logprobs == (-1.0,) * len(one.token_ids)


def test_seed_reaches_the_engine_whole(bench: Bench) -> None:
    folder = bench.checkpoint(does="tell")
    engine = bench.engine(folder)
    ask(engine, [7, 40], seed=(1 << 63) - 1)
    asked = json.loads((folder / "asked.json").read_text())
    assert asked["generate"] == [{"id": 0, "prompt_ids": [7, 40], "seed": (1 << 63) - 1}]
    assert asked["sampling"] == {
        "temperature": 1.0,
        "min_p": 0.0,
        "max_tokens": 6,
        "logprobs": 1,
        "label_ids": [],
        "end_ids": [END],
        "schema": None,
    }


def test_schema_reaches_an_engine_that_was_started_for_one(bench: Bench) -> None:
    folder = bench.checkpoint(does="tell")
    engine = bench.engine(folder, settings={"constrained": True})
    engine.generate([GenerateRequest([7, 40], 1)], SAMPLING, {"type": "array"})
    asked = json.loads((folder / "asked.json").read_text())
    assert asked["sampling"]["schema"] == {"type": "array"}


def test_schema_is_refused_where_it_would_not_be_kept_to(bench: Bench) -> None:
    free = bench.engine(bench.checkpoint())
    with pytest.raises(UserError, match="constrained"):
        free.generate([GenerateRequest([7, 40], 1)], SAMPLING, {"type": "array"})
    engine = bench.engine(bench.checkpoint(), settings={"constrained": True})
    with pytest.raises(UserError, match="thinking"):
        engine.generate([GenerateRequest([7, THINK], 1)], SAMPLING, {"type": "array"})


def test_prompt_too_long_fails_alone_and_shifts_nothing(bench: Bench) -> None:
    engine = bench.engine(bench.checkpoint())
    short, exact, long = [7, 41], [7] * 3000, [7] * 200_000
    found = ask(engine, short, exact, short, long, short)
    (alone,) = ask(engine, short)
    assert [one.failure for one in found] == [None, "too_long", None, "too_long", None]
    assert found[0] == found[2] == found[4] == alone
    assert (found[1].text, found[1].finish_reason) == ("", "length")
    longest = ask(engine, [7] * 2999)[0]
    assert longest.failure is None


def test_completion_that_the_engine_gave_up_is_a_failure_and_not_a_text(bench: Bench) -> None:
    (found,) = ask(bench.engine(bench.checkpoint(does="abort")), [7, 40])
    assert (found.failure, found.text, found.token_ids) == ("unknown_finish_reason", "", ())


def test_more_labels_than_can_be_asked_for_are_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenengine, "MAX_LABELS", 2)
    folder = bench.checkpoint(does="tell")
    engine = bench.engine(folder, frame=frame())
    with pytest.raises(UserError, match=r"3 tokens.*at most 2"):
        engine.judge([JudgeRequest("a", ["c"], 1)])
    assert not (folder / "asked.json").exists()


def test_verdicts_are_asked_for_by_the_ids_of_all_labels(bench: Bench) -> None:
    folder = bench.checkpoint(does="tell")
    reading = VerdictReading(coverage_floor=0.0)
    engine = bench.engine(folder, frame=frame(), reading=reading)
    request = JudgeRequest("dear Anna", ["It greets.", "It is long."], 5, prompt="Write")
    ((first, second),) = engine.judge([request])
    asked = json.loads((folder / "asked.json").read_text())
    assert asked["sampling"]["label_ids"] == [30, 31, 32]
    assert (asked["sampling"]["temperature"], asked["sampling"]["max_tokens"]) == (0.0, 1)
    prompts = [one["prompt_ids"] for one in asked["generate"]]
    assert prompts[0] != prompts[1]
    assert all(ids[0] == 7 and ids[-1] == 8 for ids in prompts)
    assert first.p_yes != second.p_yes
    for verdict in (first, second):
        assert verdict.p_yes is not None
        assert verdict.value == ("yes" if verdict.p_yes > 0.5 else "no")


def test_verdict_on_a_response_too_long_is_unscored_and_its_neighbours_are_not(
    bench: Bench,
) -> None:
    engine = bench.engine(bench.checkpoint(), frame=frame())
    requests = [JudgeRequest(t, ["c"], 1) for t in ("short", "word " * 200_000, "brief")]
    found = [row[0] for row in engine.judge(requests)]
    assert found[1].reason == "too_long"
    assert found[0] == engine.judge(requests[:1])[0][0]
    assert found[2] == engine.judge(requests[2:])[0][0]


def test_engine_without_a_chat_frame_does_not_judge(bench: Bench) -> None:
    engine = bench.engine(bench.checkpoint())
    with pytest.raises(UserError, match="chat frame"):
        engine.judge([JudgeRequest("a", ["c"], 1)])


def test_frame_that_opens_thinking_needs_room_for_it(bench: Bench) -> None:
    opened = frame(ending=(8, THINK))
    with pytest.raises(UserError, match="max_verdict_tokens"):
        bench.engine(bench.checkpoint(), frame=opened)
    engine = bench.engine(bench.checkpoint(), frame=opened, max_verdict_tokens=3)
    verdict = engine.judge([JudgeRequest("a", ["c"], 1)])[0][0]
    assert verdict.reason == "truncated"  # the fake's model never closes the block


# --- identity, reload, probe --------------------------------------------------------------------


def test_identity_is_role_and_hash_of_what_was_loaded(bench: Bench) -> None:
    folder = bench.checkpoint()
    identity = bench.engine(folder).identity
    assert (identity.role, identity.checkpoint) == ("policy", checkpoint_hash(folder))
    assert identity.engine == "vllm 0.fake"
    assert json.loads(json.dumps(identity.as_record())) == identity.as_record()


def test_hash_follows_weights_and_configs_and_nothing_else(bench: Bench) -> None:
    folder = bench.checkpoint()
    first = checkpoint_hash(folder)
    (folder / "record.json").write_text("{}")
    (folder / "engines.json").write_text("{}")
    (folder / "notes.log").write_text("x")
    assert checkpoint_hash(folder) == first
    (folder / "generation_config.json").write_text("{}")
    second = checkpoint_hash(folder)
    (folder / "model.safetensors").write_bytes(b"b")
    assert len({first, second, checkpoint_hash(folder)}) == 3


def test_reload_is_another_process_with_another_hash(bench: Bench) -> None:
    old, new = bench.checkpoint("a", shift=1), bench.checkpoint("b", shift=2)
    engine = bench.engine(old)
    before, pid = engine.probe(engine.probe_prompt()), engine.pid
    engine.reload(new)
    assert engine.identity.checkpoint == checkpoint_hash(new)
    assert engine.pid != pid
    assert not psutil.pid_exists(pid)
    assert engine.probe(engine.probe_prompt()).distance(before) > 0.01


def test_two_checkpoints_saved_in_turn_to_one_path_have_two_identities(bench: Bench) -> None:
    """Case 27."""
    folder = bench.checkpoint("policy", shift=1)
    engine = bench.engine(folder)
    first, before = engine.identity, engine.probe(engine.probe_prompt())
    (folder / "model.safetensors").write_bytes(b"trained")
    (folder / "fake.json").write_text(json.dumps({"shift": 2}))
    engine.reload(folder)
    assert engine.identity != first
    assert engine.probe(engine.probe_prompt()).distance(before) > 0.01


def test_reload_that_answers_as_expected_goes_on(bench: Bench) -> None:
    old, new = bench.checkpoint("a", shift=1), bench.checkpoint("b", shift=2)
    prompt = bench.engine(old).probe_prompt()
    expected = bench.engine(new).probe(prompt)
    engine = bench.engine(old)
    engine.reload(new, expected)
    assert engine.probe(prompt) == expected


def test_reload_that_answers_as_the_old_weights_is_refused_and_gone(bench: Bench) -> None:
    """Case 26: the new folder's fake answers as the old one does."""
    old, new = bench.checkpoint("a", shift=1), bench.checkpoint("b", shift=1)
    right = bench.engine(bench.checkpoint("c", shift=2))
    expected = right.probe(right.probe_prompt())
    engine = bench.engine(old)
    with pytest.raises(InstrumentError, match="prefix cache of earlier ones"):
        engine.reload(new, expected)
    assert not psutil.pid_exists(engine.pid)


def test_probe_prompt_is_longer_than_a_block_of_the_cache(bench: Bench) -> None:
    engine = bench.engine(bench.checkpoint())
    prompt = engine.probe_prompt()
    assert len(prompt) == 257
    assert engine.tokenizer.content_ids.issuperset(prompt)


@pytest.mark.parametrize("does", ["other checkpoint", "no prefix caching"])
def test_child_that_is_not_what_was_asked_for_is_refused(bench: Bench, does: str) -> None:
    with pytest.raises(InstrumentError, match=r"changed meanwhile|did not take its settings"):
        bench.engine(bench.checkpoint(does=does))
    assert children() == []


# --- troubles -----------------------------------------------------------------------------------


def children() -> list[int]:
    """Fakes that are still there."""
    return children_running(SCRIPT.name)


def test_child_that_ends_at_start_names_code_log_and_last_lines(bench: Bench) -> None:
    with pytest.raises(InstrumentError, match="exit code 3") as caught:
        bench.engine(bench.checkpoint(does="end at start"))
    (log,) = (bench.folder / "logs").iterdir()
    assert str(log) in str(caught.value)
    assert "RuntimeError: no memory for the cache" in str(caught.value)


def test_child_that_is_not_ready_in_time_is_ended(bench: Bench) -> None:
    with pytest.raises(InstrumentError, match=r"said nothing for .*\(loading\)"):
        bench.engine(bench.checkpoint(does="never ready"), settings={"start_seconds": 0.1})
    assert children() == []


def test_child_that_stalls_is_ended(bench: Bench) -> None:
    engine = bench.engine(bench.checkpoint(does="stall"), settings={"stall_seconds": 0.1})
    with pytest.raises(InstrumentError, match="said nothing"):
        ask(engine, [7])
    assert children() == []


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("crash", "exit code 1.*the engine core died"),
        ("kill itself", "SIGKILL.*memory runs out"),
        ("babble", "sent a message of"),
        ("lose one", "answered 1 requests"),
        ("mix up", "out of order"),
    ],
)
def test_child_that_fails_at_work_is_a_broken_instrument(
    bench: Bench, does: str, says: str
) -> None:
    engine = bench.engine(bench.checkpoint(does=does))
    with pytest.raises(InstrumentError, match=f"(?s){says}"):
        ask(engine, [7], [7, 40])
    assert children() == []
    with pytest.raises(InstrumentError):
        ask(engine, [7])


def test_missing_interpreter_says_how_to_build_one(bench: Bench) -> None:
    missing = str(bench.folder / "none" / "python")
    with pytest.raises(UserError, match="make vllm"):
        VllmEngine(
            "policy",
            bench.checkpoint(),
            VllmConfig(python=missing),
            tokenizer_with(None),
            log_dir=bench.folder / "logs",
        )


def break_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def break_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def bring_code(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": "evil.M"}}))


@pytest.mark.parametrize("spoil", [break_config, break_weights, bring_code])
def test_folder_that_is_no_plain_checkpoint_is_refused_before_anything_starts(
    bench: Bench, spoil: Callable[[Path], None]
) -> None:
    folder = bench.checkpoint()
    spoil(folder)
    with pytest.raises(UserError, match="loading the checkpoint"):
        bench.engine(folder)
    assert not (bench.folder / "logs").exists()


def test_closed_engine_leaves_no_process(bench: Bench) -> None:
    engine = bench.engine(bench.checkpoint())
    assert len(children()) == 1
    engine.close()
    engine.close()
    assert children() == []


def test_child_ends_with_a_parent_that_was_killed(bench: Bench) -> None:
    """Case 29."""
    program = f"""
import sys
from pathlib import Path
from dynamicrubric.engines.vllm_process import VllmChild, VllmConfig
config = VllmConfig(python=sys.executable)
child = VllmChild(config, Path({str(bench.checkpoint())!r}), Path({str(bench.folder / "log")!r}),
    what="x", script=Path({str(SCRIPT)!r}))
print(child.pid, flush=True)
sys.stdin.read()
"""
    env = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
    wait_for_end([child])


def test_child_gets_no_python_settings_of_the_parent_and_reports_nothing_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")
    env = child_environment(VllmConfig(threads=3))
    assert not {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"} & env.keys()
    assert (env["VLLM_NO_USAGE_STATS"], env["DO_NOT_TRACK"], env["OMP_NUM_THREADS"]) == (
        "1",
        "1",
        "3",
    )
    assert {env["VLLM_HOST_IP"], env["VLLM_LOOPBACK_IP"]} == {"127.0.0.1"}


@pytest.mark.parametrize("on_cpu", [False, True])
def test_gpu_that_holds_another_model_is_taken_and_a_cpu_prefills_whole(
    monkeypatch: pytest.MonkeyPatch, on_cpu: bool
) -> None:
    platform = SimpleNamespace(is_cpu=lambda: on_cpu)
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.platforms", SimpleNamespace(current_platform=platform))
    given = engine_arguments(VllmConfig(kv_cache_gib=1.5, max_model_len=9000))
    found = vllm_child.platform_arguments(given)
    assert found["kv_cache_memory_bytes"] == 3 * 2**29
    own = {name: value for name, value in found.items() if name not in given}
    assert own == (
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 9000}
        if on_cpu
        else {
            "gpu_memory_utilization": 0.01,
            "max_num_batched_tokens": vllm_child.GPU_BATCH_TOKENS,
            "max_num_seqs": vllm_child.GPU_BATCH_ROWS,
        }
    )
