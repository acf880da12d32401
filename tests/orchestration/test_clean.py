from __future__ import annotations

import subprocess

import pytest

from dynamicrubric.errors import InstrumentError, UserError
from tasks.clean import clean, say_clean
from tasks.locks import exclusive
from tasks.record import BuildDirs, StepRequest, load_artefact, run_step
from tasks.study import Study

HOLD = """
import sys
from pathlib import Path
from tasks.locks import SlotLock
with SlotLock(Path(sys.argv[1]), 1).acquire("training elsewhere"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def study(tmp_path):
    """A published step, an earlier one at the same place, one stopped half-way, a retired cell."""
    study = Study(tmp_path)
    (tmp_path / "params.yaml").touch()
    out = tmp_path / "data/runs/coevolved-s1-r1/policy"
    for version in (1, 2):
        run_step(StepRequest("train_policy", version, {}, {}), out, study.work / "steps", build)
    with pytest.raises(InstrumentError):
        run_step(
            StepRequest("train_policy", 3, {}, {}),
            tmp_path / "data/runs/coevolved-s1-r2/policy",
            study.work / "steps",
            stopped,
        )
    retired = study.work / "retired/stale-s1-r1"
    retired.mkdir(parents=True)
    (retired / "weights.bin").write_bytes(b"x" * 1000)
    return study


def build(dirs: BuildDirs) -> None:
    (dirs.out / "weights.bin").write_bytes(b"x" * 1000)


def stopped(dirs: BuildDirs) -> None:
    (dirs.checkpoints / "weights.bin").write_bytes(b"x" * 1000)
    raise InstrumentError("the verifier is down")


def versions(study):
    """Return which versions of the step have a work folder."""
    steps = study.work / "steps"
    names = {path.name for path in steps.iterdir()}
    asked = {v: StepRequest("train_policy", v, {}, {}).identity_hash[:16] for v in (1, 2, 3)}
    return {version for version, name in asked.items() if name in names}


def test_clean_by_default_lists_and_removes_nothing(study):
    said: list[str] = []
    say_clean(study, unfinished=False, remove=False, say=said.append)
    assert len(said) == 4
    assert "a train_policy that is published nowhere in data" in said[0]
    assert "work/retired/stale-s1-r1" in said[1]
    assert "only estimates read it" in said[1]
    assert "in 2 folders; nothing is removed without --remove" in said[2]
    assert "restored from DVC's cache, .dvc/cache, or else from its finished steps" in said[3]
    assert versions(study) == {1, 2, 3}
    assert (study.work / "retired/stale-s1-r1").is_dir()


@pytest.mark.parametrize(("unfinished", "left"), [(False, {2, 3}), (True, {2})])
def test_clean_keeps_what_is_published_and_what_was_stopped_unless_told(study, unfinished, left):
    clean(study, unfinished=unfinished, remove=True)
    assert versions(study) == left
    assert not (study.work / "retired/stale-s1-r1").exists()
    assert load_artefact(study.root / "data/runs/coevolved-s1-r1/policy").record.step_version == 2


def test_clean_leaves_a_step_that_another_process_makes(study, bench):
    name = StepRequest("train_policy", 3, {}, {}).identity_hash[:16]
    holder = bench.python(HOLD, study.work / "steps" / name, stdin=subprocess.PIPE)
    assert holder.stdout.readline() == "held\n"
    clean(study, unfinished=True, remove=True)
    assert versions(study) == {2, 3}


def test_clean_beside_a_running_study_is_refused(study):
    lock = study.work / "locks/study.lock"
    with exclusive(lock, "the study"), pytest.raises(UserError, match="the study"):
        clean(study, unfinished=False, remove=True)
    assert versions(study) == {1, 2, 3}


def test_clean_of_a_folder_that_is_no_study_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no params\.yaml in .*folder of a study"):
        say_clean(Study(tmp_path), unfinished=False, remove=False, say=print)
