"""Rounds and whole small studies through the commands a person gives: real Prefect, DVC, TRL."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sys
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.metrics import ROUND_METRICS
from tasks.publish_metrics import CURVES

pytestmark = pytest.mark.slow
CELL = "coevolved-s1-r1"
START = "coevolved-s1-r0"
FOLDER = f"data/runs/{CELL}"
ARTEFACTS = ("responses", "generator", "policy", "evaluation")
Wait = Callable[..., Any]
StagesRun = Callable[[str], list[str]]


@pytest.fixture
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this test start a server of their own, in a home of their own."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect-home"))


def ask(server: str, path: str, **body: Any) -> list[dict[str, Any]]:
    request = urllib.request.Request(
        f"{server}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=240) as reply:
        found: list[dict[str, Any]] = json.load(reply)
    return found


def test_round_without_a_server_makes_every_artefact_and_again_makes_none(
    prepared, tmp_path: Path, no_server: None
) -> None:
    project = prepared.copy(tmp_path / "project")
    project.flow("start", START)  # a round measures its generator on the responses before it too
    project.flow("round", CELL)
    for name in ARTEFACTS:
        assert project.record(f"{FOLDER}/{name}")["step"]
    metrics = json.loads((project.root / FOLDER / "metrics.json").read_text())
    assert set(metrics) == set(ROUND_METRICS)
    with (project.root / FOLDER / "training.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["step", *CURVES]
    assert [int(row["step"]) for row in rows] == list(range(1, 25))

    before = {name: project.files(f"{FOLDER}/{name}") for name in ARTEFACTS}
    logs = project.files("work/logs")
    project.flow("round", CELL)
    assert {name: project.files(f"{FOLDER}/{name}") for name in ARTEFACTS} == before
    steps = {f"{CELL}/{name}.log" for name in ("train_generator", "train_policy")}
    again = project.files("work/logs")
    assert {name: again[name] for name in steps} == {name: logs[name] for name in steps}


def test_checkpoint_with_one_byte_changed_is_named_and_not_used(finished, tmp_path: Path) -> None:
    project = finished.copy(tmp_path / "project")
    path = project.root / "data" / "warm" / "policy" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.unlink()  # a link into DVC's cache, perhaps
    path.write_bytes(content)
    shutil.rmtree(project.root / FOLDER / "policy")
    text = project.flow("round", CELL, fails=True)
    said = [line for line in text.splitlines() if line.startswith("error:")]
    assert len(said) == 1, text
    assert "data/warm/policy/model.safetensors was altered" in said[0]
    assert "sha256" in said[0]
    assert "Traceback" not in text
    assert not (project.root / FOLDER / "policy").exists()


def test_unknown_cell_is_a_sentence_that_names_those_there_are(finished) -> None:
    text = finished.flow("round", "coevolved-s9-r9", fails=True)
    said = [line for line in text.splitlines() if line.startswith("error:")]
    assert len(said) == 1
    assert CELL in said[0]
    assert "Traceback" not in text


def test_repro_of_a_finished_study_runs_nothing(finished, stages_run: StagesRun) -> None:
    assert stages_run(finished.repro()) == []


def test_study_has_its_results(finished) -> None:
    with (finished.root / "results" / "metrics.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["arm"] for row in rows} == {"coevolved", "frozen"}
    assert {row["round"] for row in rows} == {"0", "1"}
    assert {row["metric"] for row in rows} == set(ROUND_METRICS)
    assert (finished.root / "results" / "study.png").stat().st_size > 10_000
    assert "coevolved" in (finished.root / "results" / "table.md").read_text()


def test_changed_learning_rate_of_one_arm_runs_that_arms_cells_alone(
    finished, tmp_path: Path, stages_run: StagesRun
) -> None:
    project = finished.copy(tmp_path / "project")
    before = project.record(f"{FOLDER}/policy")
    project.change(study__arms__frozen__policy__learning_rate=7e-4)
    assert stages_run(project.repro()) == ["plan", "round@frozen-s1-r1", "compare"]
    assert project.record(f"{FOLDER}/policy") == before


def test_round_shows_its_table_and_its_rubrics_in_prefect(finished, server: str) -> None:
    slug = CELL.replace("_", "-")
    found = {row["key"]: row for row in ask(server, "/artifacts/filter", limit=100)}
    table, rubrics = found[f"{slug}-metrics"], found[f"{slug}-rubrics"]
    assert (table["type"], rubrics["type"]) == ("table", "markdown")
    shown = {row["metric"] for row in json.loads(table["data"])}
    assert shown == set(ROUND_METRICS)
    assert "rubric" in rubrics["data"].lower()


def test_round_shows_every_task_run_and_its_logs_in_prefect(finished, server: str) -> None:
    # Other tests run the same cell on this server: those runs found everything done, or failed.
    runs = ask(server, "/flow_runs/filter", flow_runs={"name": {"any_": [CELL]}})
    completed = {"any_": [run["id"] for run in runs if run["state_type"] == "COMPLETED"]}
    tasks = ask(server, "/task_runs/filter", flow_runs={"id": completed})
    assert {task["state_type"] for task in tasks} == {"COMPLETED"}
    assert {task["name"] for task in tasks} == {
        "sample_responses", "train_generator", "train_policy", "evaluate_round",
        "publish_metrics", "track_round",
    }  # fmt: skip
    logs = ask(server, "/logs/filter", logs={"flow_run_id": completed})
    assert any("step 24/24" in line["message"] for line in logs)


HALT = """
import os, signal
sync = os.fsync
def halt_after_the_mark(descriptor):
    sync(descriptor)
    if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/checkpoint-6/complete.json"):
        while True:
            signal.pause()
os.fsync = halt_after_the_mark
"""
"""Every interpreter's start: it stands still once step 6 is on the disk. The generator takes 3."""


def kill_in_policy_training(project: Any, wait: Wait, folder: Path) -> None:
    """Start a round and kill it half-way in the policy's training, where it stands still."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HALT)
    process = project.start(sys.executable, "-m", "flows", "round", CELL, first=folder)
    steps = project.root / "work" / "steps"

    def half_way() -> bool:
        if process.poll() is not None:
            return True
        with suppress(FileNotFoundError):  # a finished step removes its checkpoints meanwhile
            return any(steps.glob("*/checkpoints/checkpoint-6/complete.json"))
        return False

    try:
        wait(half_way, "a checkpoint of the policy's training")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        text = process.communicate()[0]
    assert process.returncode == -signal.SIGKILL, text


def test_policy_training_killed_outright_goes_on_and_ends_with_the_same_content(
    prepared, finished, tmp_path: Path, wait: Wait
) -> None:
    project = prepared.copy(tmp_path / "project")
    project.flow("start", START)
    kill_in_policy_training(project, wait, tmp_path / "halt")
    assert not (project.root / FOLDER / "policy").exists()
    generator = project.files(f"{FOLDER}/generator")

    project.flow("round", CELL)
    assert "resuming at step 6 of 24" in project.log(CELL, "train_policy")
    assert project.files(f"{FOLDER}/generator") == generator
    for name in ARTEFACTS:
        ours, theirs = (p.record(f"{FOLDER}/{name}")["content_hash"] for p in (project, finished))
        assert ours == theirs, name
