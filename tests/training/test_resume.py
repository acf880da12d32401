"""A killed training goes on from its last complete checkpoint and ends with the same bytes."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from dynamicrubric.errors import InstrumentError
from dynamicrubric.training import grpo
from dynamicrubric.training.checkpoints import last_complete_checkpoint
from dynamicrubric.training.rollout import RolloutBatch, RowGroup

SIX_STEPS: dict[str, Any] = {"policy_training": {"steps": 6}, "every": 2}


class KilledError(Exception):
    """What stands for a kill: nothing in the product catches it."""


@dataclass
class Rollouts:
    """Counts the steps that roll out, does something at some, and ends the training at one."""

    kill_at: int | None
    steps: list[int]
    at: dict[int, Callable[[], None]]

    def of(self, rollout: Any) -> Any:
        def roll_out(groups: Sequence[RowGroup], engine: Any, step: int) -> RolloutBatch:
            if step == self.kill_at:
                raise KilledError
            self.at.get(step, lambda: None)()
            self.steps.append(step)
            batch: RolloutBatch = rollout(groups, engine, step)
            return batch

        return roll_out


def train(
    tiny,
    where: Path,
    *,
    kill_at: int | None = None,
    role: str = "policy",
    at: dict[int, Callable[[], None]] | None = None,
    **changed: Any,
):
    """Train, and say which steps were rolled out; None in place of a run that was killed."""
    rollouts = Rollouts(kill_at, [], at or {})
    whole = grpo._rollout_function
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo, "_rollout_function", lambda r, *rest: whole(rollouts.of(r), *rest))
        make = tiny.train_policy if role == "policy" else tiny.train_generator
        try:
            return make(where, **(SIX_STEPS | changed)), rollouts.steps
        except KilledError:
            return None, rollouts.steps


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The artefact of a training that nobody interrupted."""
    run, steps = train(tiny, tmp_path_factory.mktemp("whole"))
    assert steps == [1, 2, 3, 4, 5, 6]
    return run.bytes


@pytest.mark.parametrize(
    ("kill_at", "again"),
    [
        (4, [3, 4, 5, 6]),
        pytest.param(2, [1, 2, 3, 4, 5, 6], marks=pytest.mark.slow),
        pytest.param(5, [5, 6], marks=pytest.mark.slow),
    ],
)
def test_killed_training_goes_on_and_ends_with_the_same_bytes(
    tiny, whole: dict[str, bytes], tmp_path: Path, kill_at: int, again: list[int]
) -> None:
    run, steps = train(tiny, tmp_path, kill_at=kill_at)
    assert run is None
    assert steps == list(range(1, kill_at))
    run, steps = train(tiny, tmp_path)
    assert steps == again
    assert run.bytes == whole


def test_training_killed_twice_ends_with_the_same_bytes(
    tiny, whole: dict[str, bytes], tmp_path: Path
) -> None:
    train(tiny, tmp_path, kill_at=4)
    train(tiny, tmp_path, kill_at=6)
    run, steps = train(tiny, tmp_path)
    assert steps == [5, 6]
    assert run.bytes == whole


def test_training_killed_after_its_last_step_rolls_out_nothing_again(
    tiny, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """The checkpoint of step 6 is there, the artefact is not."""
    run, _ = train(tiny, tmp_path)
    shutil.rmtree(run.out)
    run, steps = train(tiny, tmp_path)
    assert steps == []
    assert run.bytes == whole


def test_checkpoint_without_its_mark_is_removed_and_an_older_one_used(
    tiny, whole: dict[str, bytes], tmp_path: Path
) -> None:
    train(tiny, tmp_path, kill_at=5)
    checkpoints = tmp_path / "work" / "checkpoints"
    (checkpoints / "checkpoint-4" / "complete.json").unlink()
    (checkpoints / "checkpoint-4" / "model.safetensors").write_bytes(b"half")
    assert last_complete_checkpoint(checkpoints, 4) == checkpoints / "checkpoint-2"
    assert not (checkpoints / "checkpoint-4").exists()
    run, steps = train(tiny, tmp_path)
    assert steps == [3, 4, 5, 6]
    assert run.bytes == whole


def test_checkpoint_with_no_older_one_to_fall_back_on_starts_anew(
    tiny, whole: dict[str, bytes], tmp_path: Path
) -> None:
    train(tiny, tmp_path, kill_at=4)
    (tmp_path / "work" / "checkpoints" / "checkpoint-2" / "complete.json").unlink()
    run, steps = train(tiny, tmp_path)
    assert steps == [1, 2, 3, 4, 5, 6]
    assert run.bytes == whole


def test_log_line_cut_by_the_kill_does_not_stop_the_resumption(
    tiny, whole: dict[str, bytes], tmp_path: Path
) -> None:
    train(tiny, tmp_path, kill_at=4)
    with (tmp_path / "work" / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 4, "tot')
    (tmp_path / "work" / "rollouts" / "000004.json").write_text("[{")
    run, _ = train(tiny, tmp_path)
    assert run.bytes == whole


def half(work: Path) -> None:
    (work / "rollouts" / "000003.json").write_text("[{")


def gone(work: Path) -> None:
    (work / "rollouts" / "000003.json").unlink()


def unlogged(work: Path) -> None:
    lines = (work / "metrics.jsonl").read_text().splitlines()
    left = [line for line in lines if json.loads(line)["step"] != 3]
    (work / "metrics.jsonl").write_text("".join(f"{line}\n" for line in left))


@pytest.mark.parametrize("damage", [half, gone, unlogged])
def test_checkpoint_whose_log_is_not_whole_is_passed_over_for_an_older_one(
    tiny, whole: dict[str, bytes], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    train(tiny, tmp_path, kill_at=5)
    damage(tmp_path / "work")
    run, steps = train(tiny, tmp_path)
    assert steps == [3, 4, 5, 6]
    assert run.bytes == whole


def test_log_that_loses_a_step_is_not_published_and_the_next_run_mends_it(
    tiny, whole: dict[str, bytes], tmp_path: Path
) -> None:
    with pytest.raises(InstrumentError, match="lacks metrics or rollouts of step 3 of 6"):
        train(tiny, tmp_path, at={5: lambda: gone(tmp_path / "work")})
    assert not (tmp_path / "out" / "rollouts.parquet").exists()
    run, steps = train(tiny, tmp_path)
    assert steps == [1, 2, 3, 4, 5, 6]  # two checkpoints are kept, and both are later
    assert run.bytes == whole


def test_checkpoint_counts_once_its_log_is_on_the_disk(
    tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, int]] = []  # inode and size
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced.append((found.st_ino, found.st_size))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    run, _ = train(tiny, tmp_path, policy_training={"steps": 4})
    log = (run.work / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    for step in (2, 4):
        mark = run.work / "checkpoints" / f"checkpoint-{step}" / "complete.json"
        inodes = [inode for inode, _ in synced]  # a file that is gone may have had the mark's
        before = synced[: len(inodes) - 1 - inodes[::-1].index(mark.stat().st_ino)]
        parts = [run.work / "rollouts" / f"{n:06d}.json" for n in range(1, step + 1)]
        weights = mark.with_name("model.safetensors")
        expected = {(p.stat().st_ino, p.stat().st_size) for p in (*parts, weights)}
        expected.add(((run.work / "metrics.jsonl").stat().st_ino, len(b"".join(log[:step]))))
        assert expected <= set(before)


def test_generator_killed_and_resumed_ends_with_the_same_bytes(tiny, tmp_path: Path) -> None:
    changed = {"role": "generator", "generator_training": {"steps": 4}}
    run, _ = train(tiny, tmp_path / "whole", **changed)
    train(tiny, tmp_path / "cut", kill_at=4, **changed)
    resumed, steps = train(tiny, tmp_path / "cut", **changed)
    assert steps == [3, 4]
    assert resumed.bytes == run.bytes


def test_how_often_checkpoints_are_written_changes_nothing(
    tiny, whole: dict[str, bytes], tmp_path: Path
) -> None:
    run, _ = train(tiny, tmp_path, every=5)
    assert run.bytes == whole


class Evil:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, (str(self.mark), "w")


@pytest.mark.parametrize("name", ["rng_state.pth", "optimizer.pt", "scheduler.pt"])
@pytest.mark.parametrize("archive", [True, False])
def test_checkpoint_with_code_in_it_fails_unrun(
    tiny, tmp_path: Path, name: str, archive: bool
) -> None:
    """Case 52: a pulled checkpoint is data, whatever its files hold."""
    train(tiny, tmp_path, kill_at=4)
    path = tmp_path / "work" / "checkpoints" / "checkpoint-2" / name
    mark = tmp_path / "pwned"
    assert path.is_file()
    if archive:
        torch.save(Evil(mark), path)
    else:
        path.write_bytes(pickle.dumps(Evil(mark)))
    with pytest.raises((pickle.UnpicklingError, InstrumentError)):
        train(tiny, tmp_path)
    assert not mark.exists()
