"""The command: what it says of a profile, and what it refuses."""

from __future__ import annotations

import json
import re
import sys
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from dynamicrubric.cli import app
from dynamicrubric.config import Config, merge
from dynamicrubric.preflight.batches import tasks_on_one
from dynamicrubric.preflight.checks import preflight
from dynamicrubric.preflight.facts import GIB, Check, Report
from dynamicrubric.preflight.machine import Device
from dynamicrubric.yamlio import dump_yaml, load_yaml

ROOT = Path(__file__).resolve().parents[2]
SHAPE = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
    "max_position_embeddings": 1024, "tie_word_embeddings": True,
}  # fmt: skip
GPU = Device("GPU", 1, 80 * GIB)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with ranked answers and a tiny checkpoint's config, on a disk with room enough."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dynamicrubric.preflight.checks.free_disk", lambda root: 1e13)
    (tmp_path / "data" / "raw").mkdir(parents=True)
    (tmp_path / "data" / "raw" / "anchors").write_text("{}\n")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(SHAPE))
    return tmp_path


def document(**changes: Any) -> dict[str, Any]:
    found = load_yaml(ROOT / "profiles" / "smollm2.yaml")
    found["backbone"] |= {"checkpoint": "tiny", "shape": SHAPE}
    study = found["study"]  # other arms bind the verifier
    study["groups"] = {"default": study["groups"]["default"]}
    named = {arm for selection in study["groups"]["default"] for arm in selection["arms"]}
    study["arms"] = {arm: diff for arm, diff in study["arms"].items() if arm in named}
    return merge(found, changes)


def report_of(device: Device = GPU, **changes: Any) -> Report:
    return preflight(Config.model_validate(document(**changes)), "tiny.yaml", device, Path())


def problems(report: Report) -> dict[str, Check]:
    return {check.area: check for check in report.problems}


def test_profile_that_fits_can_run(project: Path) -> None:
    report = report_of()
    assert problems(report) == {}
    assert report.model is not None
    assert report.source == "tiny"
    steps = [phase.step for phase in report.phases]
    assert steps == [
        "warm_start generator", "sample_responses", "train_generator", "train_policy",
        "evaluate_round",
    ]  # fmt: skip
    assert all(one.seconds is None for one in report.work)


def test_gpu_that_is_too_small_is_a_problem_that_says_what_would_do(project: Path) -> None:
    recipe = {"policy": {"max_tokens": 400}}  # long rows: the backward pass needs most
    report = report_of(Device("GPU", 1, 0.05 * GIB), recipe=recipe)
    memory = [check for check in report.problems if check.area == "memory"]
    found = {check.found.split(" needs ")[0]: check for check in memory}
    by_step = {phase.step: phase for phase in report.phases}
    assert found.keys() == {phase.step for phase in report.phases if phase.all > 0.045}
    ways = ("runtime.rows_per_pass", "runtime.recompute_activations", "bfloat16", "runtime.slots")
    largest = found["train_generator"]
    assert [one for one in ways if one not in largest.change] == []
    phase = by_step["train_generator"]
    needs = f"needs 2 x {phase.one:.2f} = {2 * phase.one:.2f} GiB"
    assert needs in largest.found
    assert f"a GPU of {ceil(phase.one / 0.9)} GiB" in largest.change
    # What a change is said to come to is what it comes to.
    for words, change in (
        ("set runtime.recompute_activations", {"recompute_activations": True}),
        ("set runtime.rows_per_pass to 1", {"rows_per_pass": 1}),
        ("lower runtime.slots to 1", {"slots": 1}),
    ):
        after = {one.step: one for one in report_of(GPU, recipe=recipe, runtime=change).phases}
        assert f"{words} ({after['train_generator'].all:.2f} GiB then)" in largest.change
    cured = {"slots": 1, "rows_per_pass": 1, "recompute_activations": True}
    before, after = (
        {phase.step: phase.moments.get("forward and backward", 0.0) for phase in one.phases}
        for one in (report, report_of(GPU, recipe=recipe, runtime=cured))
    )
    for step in ("train_generator", "train_policy"):
        assert after[step] < before[step] / 8


def test_every_problem_says_what_would_have_to_change(project: Path) -> None:
    changed = {
        "world": {"anchors": ["nowhere.jsonl"], "max_response_letters": 9000},
        "study": {"arms": {"frozen": {"policy": {"engine": {"kind": "vllm"}}}}},
        "runtime": {"vllm": {"python": "no/such/python"}},
    }
    report = report_of(Device("GPU", 1, 0.05 * GIB), **changed)
    assert {check.area for check in report.problems} == {"sources", "engines", "context", "memory"}
    assert all(check.change for check in report.problems)
    with pytest.raises(AssertionError):
        Check("memory", "problem", "it does not fit")


@pytest.mark.parametrize(
    "profile", sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml"))
)
def test_tables_of_every_profile_add_up(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    run = CliRunner().invoke(app, ["preflight", profile, "--gpu-memory", "139"])
    assert run.exit_code == (2 if "PROBLEM" in run.output else 0), run.output
    lines = [line.split() for line in run.output.splitlines()]

    def rows(title: str, end: str, columns: slice) -> list[list[float]]:
        start = next(n for n, words in enumerate(lines) if words[:1] == [title])
        stop = next(n for n, words in enumerate(lines) if n > start and words[:1] == [end])
        numbers = [[w for w in words if re.fullmatch(r"[\d.,]+|-", w)] for words in lines]
        found = [
            [0.0 if w == "-" else float(w.replace(",", "")) for w in row[columns]]
            for row in numbers[start + 2 : stop + (end == "total")]
        ]
        return [row for row in found if row]

    for *parts, one, tasks, together in rows("Memory", "Work", slice(None)):
        assert sum(parts) == pytest.approx(one, abs=1e-6)
        assert one * tasks == pytest.approx(together, abs=1e-6)
    *steps, total = rows("Work", "total", slice(0, 6))
    assert [sum(column) for column in zip(*steps, strict=True)] == total
    *parts, (disk,) = rows("Disk,", "total", slice(0, 1))
    assert sum(part for (part,) in parts) == pytest.approx(disk, abs=1e-6)


def test_tasks_that_share_a_gpu_add_up(project: Path) -> None:
    alone = report_of(runtime={"slots": 1})
    need = max(phase.one for phase in alone.phases) * GIB
    device = Device("GPU", 1, 1.5 * need / 0.9)
    assert not problems(report_of(device, runtime={"slots": 1}))
    assert "needs 2 x " in problems(report_of(device, runtime={"slots": 2}))["memory"].found
    assert not problems(report_of(Device("GPU", 2, 1.5 * need / 0.9), runtime={"slots": 2}))


def test_context_that_is_too_short_names_the_role(project: Path) -> None:
    shape = {**SHAPE, "max_position_embeddings": 256}
    (project / "tiny" / "config.json").write_text(json.dumps(shape))
    report = report_of(backbone={"shape": shape})
    roles = {check.found.partition(":")[0] for check in report.problems}
    assert roles == {"generator", "verifier"}


def test_engine_that_could_not_be_opened_is_a_problem_before_the_run_refuses_it(
    project: Path,
) -> None:
    arms = {"frozen": {"policy": {"engine": {"kind": "vllm"}}}}
    runtime = {"vllm": {"python": "no/such/python"}}
    found = problems(report_of(study={"arms": arms}, runtime=runtime))
    assert "no/such/python" in found["engines"].found
    assert "runtime.vllm.python" in found["engines"].change
    assert problems(report_of(runtime=runtime)) == {}  # nobody asks for vLLM


def test_limit_of_an_arms_engine_is_its_context(project: Path) -> None:
    engine = {"kind": "vllm", "max_model_len": 128}
    arms = {"frozen": {"generator": {"engine": engine}}}
    runtime = {"vllm": {"python": sys.executable}}
    found = problems(report_of(study={"arms": arms}, runtime=runtime))
    assert set(found) == {"context"}
    assert found["context"].found.startswith("generator: ")
    assert "generator.engine.max_model_len is 128 (in frozen)" in found["context"].found
    assert "raise generator.engine.max_model_len" in found["context"].change
    engine["max_model_len"] = 4096  # more than the model was made for: that is the limit then
    report = report_of(study={"arms": arms}, runtime=runtime)
    assert problems(report) == {}
    (line,) = [c.found for c in report.checks if c.found.startswith("generator: at most")]
    assert line.endswith("the model was made for 1,024")


def test_thinking_of_a_verifier_needs_room_in_its_engine(project: Path) -> None:
    engine = {"kind": "vllm", "max_model_len": 1024, "max_verdict_tokens": 1}
    runtime = {"vllm": {"python": sys.executable}}
    study = {"arms": {"stale": {"verifier": {"engine": engine}}}}
    assert problems(report_of(study=study, runtime=runtime)) == {}
    engine["max_verdict_tokens"] = 1000
    found = problems(report_of(study=study, runtime=runtime))["context"]
    assert found.found.startswith("verifier: ")


def test_engines_elsewhere_are_named_with_the_arms_that_have_them(project: Path) -> None:
    arms = {"stale": {"verifier": {"engine": {"kind": "vllm", "max_model_len": 1024}}}}
    report = report_of(study={"arms": arms}, runtime={"vllm": {"python": sys.executable}})
    (found,) = [check for check in report.checks if check.area == "engines"]
    assert (found.level, found.found.partition(":")[0]) == ("ok", "verifier")
    assert found.found.endswith("(in stale)")


def test_cache_of_vllm_that_holds_no_whole_text_is_a_problem(project: Path) -> None:
    # Two layers, two key heads of 16 numbers, keys and values, in vLLM's format: the base's is
    # float32.
    token = 2 * 2 * 16 * 2 * 2
    engine = {"kind": "vllm", "dtype": "bfloat16", "max_model_len": 1024}
    gib = 1024 * token / GIB

    def report(cache: float) -> Report:
        runtime = {"vllm": {"python": sys.executable, "kv_cache_gib": cache}}
        return report_of(recipe={"policy": {"engine": engine}}, runtime=runtime)

    assert problems(report(1.01 * gib)) == {}
    found = problems(report(0.99 * gib))["context"]
    assert "1,024 tokens (engine.max_model_len)" in found.found
    assert "raise runtime.vllm.kv_cache_gib" in found.change


def test_fewer_gpus_than_a_training_has_processes_is_a_problem(project: Path) -> None:
    runtime = {"slots": 1, "processes": 2}
    found = problems(report_of(Device("GPU", 1, 80 * GIB), runtime=runtime))
    assert set(found) == {"batches"}
    assert "runtime.processes is 2 with 1 GPUs" in found["batches"].found
    assert problems(report_of(Device("GPU", 2, 80 * GIB), runtime=runtime)) == {}


@pytest.mark.parametrize(
    ("slots", "gpus", "ends"),
    [(1, 2, []), (2, 2, ["2 tasks share a GPU"]), (1, 3, ["1 idle"]), (2, 5, ["1 idle"])],
)
def test_gpus_are_shared_or_idle_by_whole_sets(
    project: Path, slots: int, gpus: int, ends: list[str]
) -> None:
    report = report_of(Device("GPU", gpus, 80 * GIB), runtime={"slots": slots, "processes": 2})
    notes = [check.found for check in report.checks if "slots" in check.found]
    assert len(notes) == len(ends)
    assert all(note.endswith(end) for note, end in zip(notes, ends, strict=True))


def test_processes_of_a_cpu_multiply_trainings_alone(project: Path) -> None:
    device = Device("CPU", 0, 4 * GIB)
    runtime = {"slots": 2, "processes": 2}
    report = report_of(device, runtime=runtime)
    (line,) = [check.found for check in report.checks if check.area == "memory"]
    assert re.match(r"train_\w+ needs 4 x ", line)
    settings = Config.model_validate(document(runtime=runtime)).runtime
    assert tasks_on_one(settings, device, "train_policy") == 4
    assert tasks_on_one(settings, device, "evaluate_round") == 2


def test_shape_that_is_not_the_checkpoints_is_a_problem(project: Path) -> None:
    found = problems(report_of(backbone={"shape": {**SHAPE, "vocab_size": 301}}))
    assert "vocab_size is 301" in found["backbone"].found


def test_anchors_and_checkpoint_that_are_not_there_are_problems_beside_the_rest(
    project: Path,
) -> None:
    changed = document(world={"anchors": ["nowhere.jsonl"]}, backbone={"checkpoint": "./nowhere"})
    del changed["backbone"]["shape"]
    report = preflight(Config.model_validate(changed), "x", GPU, Path())
    assert {check.area for check in report.problems} == {"sources", "backbone"}
    assert report.model is None
    assert report.phases == ()
    assert report.work


def test_disk_that_is_too_small_is_a_problem(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynamicrubric.preflight.checks.free_disk", lambda root: 1e6)
    assert "0.0 GB free" in problems(report_of())["disk"].found


def test_base_of_the_hub_lies_in_its_cache_and_in_the_prepared_data(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = report_of()
    hub = report_of(backbone={"checkpoint": "me/model"})
    assert sum(hub.storage.values()) - sum(local.storage.values()) == pytest.approx(
        hub.storage["base, copied into the prepared data"]
    )
    snapshot = project / "cache" / "models--me--model" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(SHAPE))
    (snapshot / "model.safetensors").write_text("")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(project / "cache"))
    cached = report_of(backbone={"checkpoint": f"me/model@{'a' * 40}"})
    assert cached.storage == local.storage


def test_step_that_takes_longer_than_its_deadline_is_a_problem(project: Path) -> None:
    config = Config.model_validate(document(runtime={"task_deadline_minutes": 1}))
    for name, step, seconds, identity in (
        ("warm/generator", "warm_start", 5, {"backbone": config.backbone.model_dump(mode="json")}),
        ("runs/a/responses", "sample_responses", 600, {"responses_per_set": 4}),
    ):
        folder = project / "data" / name
        folder.mkdir(parents=True)
        record = {"step": step, "identity": identity, "provenance": {"seconds": seconds}}
        (folder / "record.json").write_text(json.dumps(record))
    report = preflight(config, "x", GPU, project)
    assert "sample_responses takes about 10.0 min" in problems(report)["time"].found
    assert "task_deadline_minutes" in problems(report)["time"].change


def test_command_prints_tables_and_exits_with_2_where_it_cannot_run(project: Path) -> None:
    dump_yaml(document(), project / "params.yaml")
    run = CliRunner().invoke(app, ["preflight", "--gpu-memory", "80"])
    assert run.exit_code == 0, run.output
    for words in ("LlamaForCausalLM", "train_generator", "unknown", "It can run here."):
        assert words in run.output
    dump_yaml(document(world={"anchors": ["nowhere.jsonl"]}), project / "other.yaml")
    run = CliRunner().invoke(app, ["preflight", "other.yaml", "--gpu-memory", "80"])
    assert run.exit_code == 2
    assert "It cannot run here: 1 problem." in run.output


def test_command_takes_a_profiles_name_and_writes_json(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    run = CliRunner().invoke(app, ["preflight", "postcards", "--json", "--gpu-memory", "80"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.output)
    assert found["can_run"] is True
    assert found["profile"] == "profiles/postcards.yaml"
    assert found["model"]["num_params"] == 2 * (4 * 96**2 + 3 * 96 * 256 + 2 * 96) + 1025 * 96
    assert {one["step"] for one in found["memory_bytes"]} >= {"train_generator", "train_policy"}
