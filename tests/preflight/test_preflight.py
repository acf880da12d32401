"""The command: what it says of a profile, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dynamicrubric.cli import app
from dynamicrubric.config import Config, merge
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
    """A folder with ranked answers and a tiny checkpoint's config."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "raw").mkdir(parents=True)
    (tmp_path / "data" / "raw" / "anchors").write_text("{}\n")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(SHAPE))
    return tmp_path


def document(**changes: Any) -> dict[str, Any]:
    found = load_yaml(ROOT / "profiles" / "smollm2.yaml")
    found["backbone"] |= {"checkpoint": "tiny", "shape": SHAPE}
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
    found = problems(report)["memory"]
    ways = ("runtime.rows_per_pass", "runtime.recompute_activations", "bfloat16", "runtime.slots")
    assert [one for one in ways if one not in found.change] == []
    largest = max(phase.total for phase in report.phases)
    assert f"needs {2 * largest / GIB:.1f} GiB" in found.found
    cured = {"slots": 1, "rows_per_pass": 1, "recompute_activations": True}
    before, after = (
        {phase.step: phase.moments.get("forward and backward", 0.0) for phase in one.phases}
        for one in (report, report_of(GPU, recipe=recipe, runtime=cured))
    )
    for step in ("train_generator", "train_policy"):
        assert after[step] < before[step] / 8


def test_tasks_that_share_a_gpu_add_up(project: Path) -> None:
    alone = report_of(runtime={"slots": 1})
    need = max(phase.total for phase in alone.phases)
    device = Device("GPU", 1, 1.5 * need / 0.9)
    assert not problems(report_of(device, runtime={"slots": 1}))
    assert "2 tasks at a time" in problems(report_of(device, runtime={"slots": 2}))["memory"].found
    assert not problems(report_of(Device("GPU", 2, 1.5 * need / 0.9), runtime={"slots": 2}))


def test_context_that_is_too_short_names_the_role(project: Path) -> None:
    shape = {**SHAPE, "max_position_embeddings": 256}
    (project / "tiny" / "config.json").write_text(json.dumps(shape))
    report = report_of(backbone={"shape": shape})
    roles = {check.found.partition(":")[0] for check in report.problems}
    assert roles == {"generator", "verifier"}


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
