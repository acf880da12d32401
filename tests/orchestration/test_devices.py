from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from dynamicrubric.errors import UserError
from tasks import devices
from tasks.devices import gpu_slots, visible_gpus
from tasks.gpu import Usage, close_hosts, launch
from tasks.locks import SlotLock
from tasks.record import StepRequest
from tasks.study import Study

HOLD = """
import sys
from pathlib import Path
from tasks.locks import SlotLock
with SlotLock.at([Path(sys.argv[1])]).acquire("train_policy of another clone"):
    print("held", flush=True)
    sys.stdin.read()
"""
A, B = "GPU-aaaa1111-0000", "GPU-bbbb2222-0000"


@pytest.fixture
def two_gpus(tmp_path, monkeypatch):
    """A machine whose nvidia-smi knows two GPUs, and whose user has no lock folder yet."""
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho '0, {A}'\necho '1, {B}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    monkeypatch.setattr(devices, "SHARED_DIR", tmp_path)
    devices._uuids.cache_clear()
    yield tmp_path / f"dynamicrubric-{os.getuid()}"
    devices._uuids.cache_clear()


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        ("0,1", [A, B]),
        ("1", [B]),
        (f" {B} , 0", [B, A]),
        ("GPU-aaaa", [A]),
        ("MIG-3, 7", ["MIG-3", "7"]),
        ("1,-1,0", [B]),
        ("-1", []),
        ("", []),
    ],
)
def test_visible_gpus_are_named_by_uuid_where_it_is_known(two_gpus, monkeypatch, visible, found):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus() == found


def test_visible_gpus_without_a_driver_keep_the_names_given(tmp_path, monkeypatch):
    devices._uuids.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    assert visible_gpus() == ["0", "3"]
    devices._uuids.cache_clear()


def test_gpu_slots_of_two_settings_share_the_lock_of_a_gpu(two_gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    first = gpu_slots(4)
    assert [slot.device for slot in first] == [A, B, A, B]
    assert len({slot.lock for slot in first}) == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", B)
    assert gpu_slots(1) == [first[1]]
    assert two_gpus.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["readable by others", "a link"])
def test_gpu_slots_in_a_folder_that_is_not_ours_alone_are_refused(two_gpus, monkeypatch, kind):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    if kind == "a link":
        two_gpus.symlink_to(two_gpus.parent)
    else:
        two_gpus.mkdir()
        two_gpus.chmod(0o755)
    with pytest.raises(UserError, match=str(two_gpus)):
        gpu_slots(1)


def test_gpu_slots_without_a_gpu_are_none_and_make_no_folder(two_gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu_slots(2) == []
    assert not two_gpus.exists()


def test_gpu_steps_of_two_clones_take_the_same_lock(two_gpus, tmp_path, params_text, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    clones = [Study(tmp_path / name) for name in ("one", "two")]
    for study in clones:
        study.root.mkdir()
        text = params_text.replace("slots: 2", "slots: 1")
        (study.root / "params.yaml").write_text(text)
        assert study.config.runtime.slots == 1
    asked: list[dict[str, object]] = []

    def launched(_: str, arguments: dict[str, str], **options: object) -> Usage:
        asked.append(options)
        (tmp_path / arguments["out_dir"] / "weights.bin").write_text("x")
        return Usage(1.0, 0.0, 0)

    monkeypatch.setattr("tasks.study.launch", launched)
    for study in clones:
        study.run_gpu_step(
            StepRequest("train_policy", 1, {}, {}),
            study.root / "data/policy",
            lambda dirs: {"out_dir": str(dirs.out)},
            group="cell",
        )
    assert asked[0]["locks"] == asked[1]["locks"] == [two_gpus / f"gpu-{B}-0.lock"]
    assert asked[0]["devices"] == [B]


@pytest.mark.parametrize("processes", [1, 2])
def test_gpu_step_of_a_study_with_two_processes_holds_both_gpus_and_shows_what_it_needs(
    two_gpus, tmp_path, params_text, monkeypatch, processes
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    text = params_text.replace("slots: 2", "slots: 1\n  processes: 2")
    (tmp_path / "params.yaml").write_text(text)
    study = Study(tmp_path)
    asked: list[dict[str, object]] = []

    def launched(target: str, arguments: dict[str, Any], **options: object) -> Usage:
        asked.append({"target": target, "given": arguments, **options})
        given = arguments if processes == 1 else arguments["kwargs"]
        (tmp_path / given["out_dir"] / "weights.bin").write_text("x")
        return Usage(1.0, 0.0, 0)

    monkeypatch.setattr("tasks.study.launch", launched)
    study.run_gpu_step(
        StepRequest("train_policy", 1, {}, {}),
        study.root / "data/policy",
        lambda dirs: {"out_dir": str(dirs.out)},
        group="cell",
        processes=processes,
    )
    (job,) = asked
    assert job["locks"] == [two_gpus / f"gpu-{A}-0.lock"]
    assert job["more_locks"] == [(two_gpus / f"gpu-{B}-0.lock",)]
    assert job["devices"] == [A if processes == 1 else f"{A},{B}"]
    if processes == 2:
        assert job["target"] == "tasks.ranks:run_in_ranks"
        assert job["given"]["target"] == "dynamicrubric.steps:train_policy"
        assert job["given"]["num_processes"] == 2


def test_gpu_slots_of_several_processes_have_a_gpu_for_each(two_gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    first, second = gpu_slots(2, 2)
    assert [slot.visible(2) for slot in (first, second)] == [f"{A},{B}"] * 2
    assert first.visible(1) == A
    single = {slot.device: slot.lock for slot in gpu_slots(2)}
    assert (first.lock, *first.other_locks) == (single[A], single[B])
    assert not {first.lock, *first.other_locks} & {second.lock, *second.other_locks}


def test_gpu_slots_of_more_processes_than_gpus_are_refused(two_gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(UserError, match=r"runtime\.processes 3 and 2 GPUs"):
        gpu_slots(1, 3)


@pytest.mark.parametrize("held", ["own", "another"])
def test_launch_takes_the_locks_it_is_given(bench, tmp_path, held):
    lock = tmp_path / "machine" / "gpu-x-0.lock"
    another = lock.with_name("gpu-y-0.lock")
    lock.parent.mkdir()
    holder = bench.python(HOLD, lock if held == "own" else another, stdin=subprocess.PIPE)
    assert holder.stdout.readline() == "held\n"
    told: list[str] = []

    def end_holder(text: str) -> None:
        told.append(text)
        holder.kill()

    path = tmp_path / "facts"
    launch(
        "jobs:report_environment",
        {"path": str(path)},
        log_path=tmp_path / "job.log",
        deadline_seconds=600,
        slots_dir=tmp_path / "slots",
        num_slots=1,
        what="a job",
        devices=["GPU-x,GPU-y"],
        locks=[lock],
        more_locks=[[another]],
        on_wait=end_holder,
    )
    close_hosts()
    assert "train_policy of another clone" in told[0]
    assert '"devices": "GPU-x,GPU-y"' in path.read_text()
    for path in (lock, another):
        SlotLock.at([path]).acquire("next").release()
