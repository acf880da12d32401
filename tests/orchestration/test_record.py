from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dynamicrubric.errors import InstrumentError, UserError
from tasks import record as record_module
from tasks.identity import canonical_json, changed_fields
from tasks.keeping import keep_artefacts
from tasks.record import (
    BuildDirs,
    StepRequest,
    carry,
    differences,
    find_finished,
    keep,
    load_artefact,
    prune_work,
    run_step,
)

REQUEST = StepRequest("train", 1, {"learning_rate": 3e-4, "grpo": {"k": 6}, "seed": 1}, {})


FILE = "weights.bin"


class Builder:
    """A step's function that counts how often it ran."""

    def __init__(self, text: str = "weights") -> None:
        self.text = text
        self.calls = 0

    def __call__(self, dirs: BuildDirs) -> None:
        self.calls += 1
        (dirs.out / "model").mkdir()
        (dirs.out / "model" / "weights.bin").write_text(self.text)
        (dirs.out / "notes.txt").write_text("notes")


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def out(tmp_path):
    return tmp_path / "data" / "cell" / "policy"


@pytest.fixture
def work(tmp_path):
    return tmp_path / "work"


def test_run_step_publishes_a_whole_read_only_artefact(out, work):
    artefact = run_step(REQUEST, out, work, Builder())
    record = json.loads((out / "record.json").read_text())
    assert set(record) == {
        "step",
        "step_version",
        "identity",
        "identity_hash",
        "inputs",
        "files",
        "content_hash",
        "provenance",
    }
    assert set(record["files"]) == {"model/weights.bin", "notes.txt"}
    assert record["identity"] == {"grpo": {"k": 6}, "learning_rate": 3e-4, "seed": 1}
    assert set(record["provenance"]) == {"seconds", "git_commit", "packages", "created"}
    assert artefact.content_hash == load_artefact(out, expected_step="train").content_hash
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) == 3 and all(path.stat().st_mode & 0o777 == 0o444 for path in files)
    assert [path.name for path in out.parent.iterdir()] == ["policy"]  # nothing staged is left
    shutil.rmtree(out)  # as DVC does before it runs a stage again


def test_run_step_again_finds_the_finished_artefact(out, work):
    build = Builder()
    first = run_step(REQUEST, out, work, build)
    stamp = (out / "notes.txt").stat().st_mtime_ns
    second = run_step(REQUEST, out, work, build)
    assert build.calls == 1
    assert second.content_hash == first.content_hash
    assert (out / "notes.txt").stat().st_mtime_ns == stamp


@pytest.mark.parametrize("emptied", [True, False])
def test_run_step_after_the_out_was_wiped_links_it_again(out, work, emptied):
    build = Builder()
    run_step(REQUEST, out, work, build)
    before = (out / "record.json").read_bytes()
    shutil.rmtree(out)
    if emptied:
        out.mkdir()
    run_step(REQUEST, out, work, build)
    assert build.calls == 1
    assert (out / "record.json").read_bytes() == before


def test_run_step_same_content_twice_has_equal_hashes_and_other_content_not(out, work, tmp_path):
    first = run_step(REQUEST, out, work, Builder())
    again = run_step(REQUEST, tmp_path / "b", tmp_path / "work-b", Builder())
    other = run_step(REQUEST, tmp_path / "c", tmp_path / "work-c", Builder("other"))
    assert first.content_hash == again.content_hash != other.content_hash


def test_run_step_with_another_identity_builds_again_and_names_the_field(out, work, caplog):
    build = Builder()
    artefact = run_step(REQUEST, out, work, build)
    changed = replace(REQUEST, step_version=2, identity={**REQUEST.identity, "learning_rate": 1e-3})
    assert differences(artefact.record, changed) == [
        "identity.learning_rate: 0.0003 -> 0.001",
        "step_version: 1 -> 2",
    ]
    with caplog.at_level("INFO"):
        assert find_finished(out, changed) is None
    assert "identity.learning_rate: 0.0003 -> 0.001" in caplog.text
    run_step(changed, out, work, build)
    assert build.calls == 2
    assert load_artefact(out).record.step_version == 2


def test_run_step_back_to_an_earlier_identity_builds_nothing(out, work):
    build = Builder()
    run_step(REQUEST, out, work, build)
    run_step(replace(REQUEST, step_version=2), out, work, build)
    run_step(REQUEST, out, work, build)
    assert build.calls == 2


def test_request_inputs_are_part_of_identity_by_content(out, work, tmp_path):
    policy = run_step(REQUEST, out, work, Builder())
    request = StepRequest("evaluate", 1, {}, {"policy": out})
    assert request.input_hashes == {"policy": policy.content_hash}
    other = tmp_path / "other"
    run_step(replace(REQUEST, identity={"seed": 2}), other, work, Builder("other"))
    assert replace(request, inputs={"policy": other}).identity_hash != request.identity_hash
    elsewhere = tmp_path / "moved"
    out.rename(elsewhere)
    assert replace(request, inputs={"policy": elsewhere}).identity_hash == request.identity_hash


@pytest.mark.parametrize("change", ["flip", "append", "truncate"])
def test_load_artefact_altered_by_one_byte_names_file_and_hashes(out, work, change):
    run_step(REQUEST, out, work, Builder())
    path = out / "model" / "weights.bin"
    path.chmod(0o644)
    content = path.read_bytes()
    new = {"flip": b"W" + content[1:], "append": content + b"x", "truncate": content[:-1]}
    path.write_bytes(new[change])
    with pytest.raises(UserError, match="was altered") as caught:
        load_artefact(out)
    assert str(path) in str(caught.value) and "dvc checkout" in str(caught.value)
    assert ("sha256" if change == "flip" else "bytes") in str(caught.value)
    if change == "flip":
        load_artefact(out, verify=False)  # names and sizes only, by request
    with pytest.raises(UserError, match=r"weights\.bin"):
        StepRequest("evaluate", 1, {}, {"policy": out}).identity_hash  # noqa: B018 - computed here
    with pytest.raises(UserError, match=r"weights\.bin"):
        run_step(REQUEST, out, work, Builder())


def test_run_step_with_a_damaged_kept_copy_builds_again(out, work, caplog):
    build = Builder()
    run_step(REQUEST, out, work, build)
    path = out / "notes.txt"
    path.chmod(0o644)
    path.write_text("NOTES")  # in place: the kept hard link has these bytes too
    shutil.rmtree(out)
    run_step(REQUEST, out, work, build)
    assert build.calls == 2
    assert "notes.txt" in caplog.text
    assert (out / "notes.txt").read_text() == "notes"


@pytest.mark.parametrize("trouble", ["missing", "not in its record"])
def test_load_artefact_with_other_files_names_them(out, work, trouble):
    run_step(REQUEST, out, work, Builder())
    if trouble == "missing":
        (out / "notes.txt").unlink()
    else:
        (out / "extra.py").write_text("print()")
    name = {"missing": "notes.txt", "not in its record": "extra.py"}[trouble]
    with pytest.raises(UserError, match=f"{trouble}: {name}"):
        load_artefact(out, verify=False)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("identity", {"seed": 2}),
        ("step_version", 9),
        ("files", {"../../etc/passwd": {"sha256": "0", "bytes": 1}}),
        ("content_hash", "0" * 64),
        ("surplus", 1),
    ],
)
def test_load_artefact_with_an_edited_record_is_refused(out, work, field, value):
    run_step(REQUEST, out, work, Builder())
    path = out / "record.json"
    path.chmod(0o644)
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(UserError, match=r"record\.json"):
        load_artefact(out)


def test_load_artefact_record_file_name_that_leaves_the_folder_is_refused(out, work):
    run_step(REQUEST, out, work, Builder())
    record = load_artefact(out).record
    escaping = type(record).make(record.fields, {"../x": {"sha256": "0", "bytes": 1}}, {})
    (out / "record.json").chmod(0o644)
    (out / "record.json").write_text(json.dumps(escaping.as_json()))
    with pytest.raises(UserError, match="leaves the artefact"):
        load_artefact(out)


@pytest.mark.parametrize("kind", ["nothing", "empty", "no record", "a file"])
def test_load_artefact_without_a_record_does_not_exist(tmp_path, kind):
    path = tmp_path / "artefact"
    if kind == "a file":
        path.write_text("")
    elif kind != "nothing":
        path.mkdir()
    if kind == "no record":
        (path / "weights.bin").write_text("weights")
    with pytest.raises(UserError, match="does not exist") as caught:
        load_artefact(path)
    assert str(path) in str(caught.value)
    assert find_finished(path, REQUEST) is None


def test_load_artefact_of_another_step_is_refused(out, work):
    run_step(REQUEST, out, work, Builder())
    with pytest.raises(UserError, match="got one made by the step train; expected one made by"):
        load_artefact(out, expected_step="sample_responses")


KILLED = """
import os, sys
from pathlib import Path
from tasks.record import StepRequest, run_step
def build(dirs):
    for step in range(len(list(dirs.checkpoints.iterdir())), 4):
        with dirs.metrics.open("a") as stream:
            print(step, file=stream)
        (dirs.checkpoints / str(step)).touch()
        (dirs.work / "rollouts").mkdir(exist_ok=True)
        (dirs.out / f"{step}.bin").write_text("x")
        if step == int(sys.argv[3]):
            os.kill(os.getpid(), 9)
    (dirs.out / "weights.bin").write_text("done")
request = StepRequest("train", 1, {}, {})
run_step(request, Path(sys.argv[1]), Path(sys.argv[2]), build)
"""


def test_run_step_killed_leaves_no_artefact_and_resumes_from_its_checkpoints(bench, out, work):
    process = bench.python(KILLED, out, work, 1)
    assert process.wait(bench.patience) == -signal.SIGKILL
    assert not out.exists()
    with pytest.raises(UserError, match="does not exist"):
        load_artefact(out)

    again = bench.python(KILLED, out, work, 99)
    assert again.wait(bench.patience) == 0, again.stderr.read()
    # Steps 0 and 1 were not done again, and what the killed attempt left in `out` is gone.
    assert set(load_artefact(out).record.files) == {"2.bin", "3.bin", "weights.bin"}
    assert not list(work.glob("*/rollouts"))
    metrics = next(work.glob("*/metrics.jsonl"))
    assert metrics.read_text().split() == ["0", "1", "2", "3"]
    assert not list(work.glob("*/checkpoints"))


def test_record_seconds_are_those_of_all_attempts_without_waiting(out, work, monkeypatch):
    told = iter([(40.0, 41.5), (2.0, 2.5)])

    def build(dirs: BuildDirs) -> None:
        first, last = next(told)
        dirs.spent.note(first)  # written at once; the later one within a second
        (dirs.out / "weights.bin").write_text("x")
        if first == 40.0:
            raise InstrumentError("the verifier is down")
        dirs.spent.note(last)

    with pytest.raises(InstrumentError):
        run_step(REQUEST, out, work, build)
    assert run_step(REQUEST, out, work, build).record.provenance["seconds"] == 42.5

    clock = Clock()
    monkeypatch.setattr(record_module, "time", clock)

    def silent(dirs: BuildDirs) -> None:
        clock.now += 7.25
        (dirs.out / "weights.bin").write_text("x")

    again = run_step(replace(REQUEST, step_version=2), out, work, silent)
    assert again.record.provenance["seconds"] == 7.25  # not said: what the call took
    assert not list(work.glob("*/seconds"))  # made anew one day, it starts from nothing


def test_run_step_two_processes_at_once_build_once(bench, out, work, tmp_path):
    code = """
import sys
from pathlib import Path
from tasks.record import StepRequest, run_step
def build(dirs):
    with open(sys.argv[3], "a") as stream:
        print("built", file=stream)
    (dirs.out / "weights.bin").write_text("x")
run_step(StepRequest("train", 1, {}, {}), Path(sys.argv[1]), Path(sys.argv[2]), build)
"""
    outs = [tmp_path / "cells" / str(number) for number in range(3)]
    processes = [bench.python(code, path, work, tmp_path / "count") for path in outs]
    assert [process.wait(bench.patience) for process in processes] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "built\n"
    assert len({load_artefact(path).content_hash for path in outs}) == 1


@pytest.mark.parametrize("kind", ["outside", "inside", "dangling", "folder"])
def test_run_step_symbolic_link_is_refused_by_name(out, work, tmp_path, kind):
    secret = tmp_path / "secret"
    secret.write_text("token")
    targets = {"outside": secret, "inside": "notes.txt", "dangling": "nowhere", "folder": tmp_path}

    def build(dirs: BuildDirs) -> None:
        (dirs.out / "notes.txt").write_text("notes")
        (dirs.out / "token").symlink_to(targets[kind])

    with pytest.raises(UserError, match=r"symbolic link .*token -> ") as caught:
        run_step(REQUEST, out, work, build)
    assert ("leaves the artefact" in str(caught.value)) == (kind in ("outside", "folder"))
    assert not out.exists()
    assert secret.read_text() == "token"


@pytest.mark.parametrize("files", [[], ["record.json"]])
def test_run_step_build_without_files_or_with_a_record_of_its_own_is_an_error(out, work, files):
    def build(dirs: BuildDirs) -> None:
        for name in files:
            (dirs.out / name).write_text("{}")

    with pytest.raises(InstrumentError, match="the build left"):
        run_step(REQUEST, out, work, build)
    assert not out.exists()


def test_run_step_build_that_raises_passes_its_error_on(out, work):
    def build(dirs: BuildDirs) -> None:
        raise InstrumentError("the verifier is down")

    with pytest.raises(InstrumentError, match="verifier is down"):
        run_step(REQUEST, out, work, build)
    assert not out.exists()


def test_load_artefact_accepts_links_into_a_dvc_cache_and_reports_an_emptied_one(
    out, work, tmp_path
):
    run_step(REQUEST, out, work, Builder())
    cache = tmp_path / "cache"
    cache.mkdir()
    shutil.move(out / "notes.txt", cache / "ab12")
    (out / "notes.txt").symlink_to(cache / "ab12")
    load_artefact(out)
    (cache / "ab12").unlink()
    with pytest.raises(UserError, match=r"missing: notes\.txt"):
        load_artefact(out)


def test_carry_links_the_files_under_a_new_identity(out, work, tmp_path):
    source = run_step(REQUEST, out, work, Builder())
    target = tmp_path / "next" / "generator"
    request = StepRequest("train", 1, {"update": "none"}, {"generator": out})
    carried = carry(source, target, request)
    assert carried.content_hash == source.content_hash
    assert carried.record.identity_hash == request.identity_hash != source.record.identity_hash
    assert (target / "notes.txt").stat().st_ino == (out / "notes.txt").stat().st_ino
    stamp = (target / "record.json").stat().st_mtime_ns
    assert carry(source, target, request).path == target
    assert (target / "record.json").stat().st_mtime_ns == stamp
    before = (target / "record.json").read_bytes()
    shutil.rmtree(target)
    carry(source, target, request)
    assert (target / "record.json").read_bytes() == before
    shutil.rmtree(out)
    load_artefact(target)


KILLED_AT_REMOVE = """
import os, sys
from pathlib import Path
from tasks import disk
from tasks.record import StepRequest, carry, load_artefact, run_step
def build(dirs):
    (dirs.out / "weights.bin").write_text("x")
target, work, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
before = StepRequest("train", 1, {}, {})
after = StepRequest("train", 2, {}, {})
source = run_step(before, target, work, build)
if kind == "carried":
    source = run_step(before, target.with_name("source"), work, build)
remove = disk.remove
def killed_instead(path):
    if path.name.endswith(".replaced") and path.exists():
        os.kill(os.getpid(), 9)
    remove(path)
if len(sys.argv) > 4:
    disk.remove = killed_instead
if kind == "carried":
    carry(source, target, after)
else:
    run_step(after, target, work, build)
"""


@pytest.mark.parametrize("kind", ["built", "carried"])
def test_step_found_finished_after_a_kill_removes_what_the_kill_left(bench, out, work, kind):
    process = bench.python(KILLED_AT_REMOVE, out, work, kind, "kill")
    assert process.wait(bench.patience) == -signal.SIGKILL
    (out.parent / ".policy.publishing").mkdir()
    assert (out.parent / ".policy.replaced").is_dir()
    assert load_artefact(out).record.step_version == 2
    request = replace(REQUEST, step_version=2, identity={})
    if kind == "carried":
        carry(load_artefact(out), out, request)
    else:
        run_step(request, out, work, Builder())
    assert [path.name for path in out.parent.iterdir() if path.name.startswith(".")] == []


def test_leftovers_of_a_kill_are_no_part_of_what_dvc_compares(project_root, tmp_path):
    (tmp_path / ".dvc").mkdir()
    shutil.copy(project_root / ".dvcignore", tmp_path)
    shutil.copy(project_root / ".dvc/config", tmp_path / ".dvc/config")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    names = [f".policy.replaced/{FILE}", f".policy.publishing/{FILE}", f"policy/{FILE}"]
    paths = [f"data/runs/coevolved-s1-r1/{name}" for name in names]
    command = [sys.executable, "-m", "dvc", "check-ignore", *paths]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == paths[:2], done.stderr


def test_carry_takes_the_bytes_behind_a_cache_link(out, work, tmp_path):
    source = run_step(REQUEST, out, work, Builder())
    shutil.move(out / "notes.txt", tmp_path / "ab12")
    (out / "notes.txt").symlink_to(tmp_path / "ab12")
    carried = carry(source, tmp_path / "next", replace(REQUEST, step_version=2))
    assert not (carried.path / "notes.txt").is_symlink()
    load_artefact(carried.path)


def test_prune_work_keeps_the_named_and_the_published(out, work, tmp_path):
    kept = run_step(REQUEST, out, work, Builder())
    other = run_step(replace(REQUEST, step_version=2), tmp_path / "b", work, Builder())
    removed = prune_work(work, [kept.record.identity_hash])
    assert [path.name for path in removed] == [other.record.identity_hash[:16]]
    load_artefact(other.path)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own of one megabyte."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def _two_megabytes(dirs: BuildDirs) -> None:
    (dirs.out / "weights.bin").write_bytes(b"x" * 2_000_000)


def test_run_step_full_disk_in_the_work_folder_is_a_sentence(small_disk, out):
    with pytest.raises(UserError, match="got a full disk at") as caught:
        run_step(REQUEST, out, small_disk / "work", _two_megabytes)
    assert "Free some space" in str(caught.value) and "\n" not in str(caught.value)
    assert not out.exists()


def test_run_step_full_disk_at_the_out_is_a_sentence_and_nothing_is_left(small_disk, work):
    out = small_disk / "policy"
    with pytest.raises(UserError, match="full disk"):
        run_step(REQUEST, out, work, _two_megabytes)
    assert list(small_disk.iterdir()) == []


def test_run_step_across_file_systems_copies(small_disk, work):
    build = Builder()
    out = small_disk / "policy"
    run_step(REQUEST, out, work, build)
    assert (out / "notes.txt").stat().st_mode & 0o777 == 0o444
    shutil.rmtree(out)
    run_step(REQUEST, out, work, build)
    assert build.calls == 1


@pytest.mark.parametrize("place", ["out", "work"])
def test_run_step_without_write_permission_is_a_sentence(bench, tmp_path, place):
    for name in ("out", "work"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o555 if name == place else 0o777)
    code = """
import ctypes, sys
from pathlib import Path
from dynamicrubric.errors import UserError
from tasks.record import StepRequest, run_step
# Root may write anywhere, until it gives its capabilities up; others have none.
version, itself, none = 0x20080522, 0, (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(version, itself), none) == 0
try:
    run_step(StepRequest("train", 1, {}, {}), Path(sys.argv[1]), Path(sys.argv[2]),
             lambda dirs: (dirs.out / "a").write_text("a"))
except UserError as error:
    print(error)
"""
    process = bench.python(code, tmp_path / "out" / "policy", tmp_path / "work")
    printed, errors = process.communicate(timeout=bench.patience)
    assert "no permission" in printed and str(tmp_path / place) in printed, errors


def test_run_step_out_under_a_file_is_a_sentence(tmp_path, work):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="a file where a folder has to be"):
        run_step(REQUEST, tmp_path / "file" / "policy", work, Builder())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"grpo": {"lr": float("nan")}}, r"grpo\.lr is nan"),
        ({"k": [1.0, float("inf")]}, r"k\[1\] is inf"),
        ({1: "a"}, "key 1"),
        ({"path": Path("x")}, "path is a PosixPath"),
        ({"raw": {1, 2}}, "raw is a set"),
    ],
)
def test_canonical_json_refuses_what_does_not_read_back(value, message):
    with pytest.raises(ValueError, match=message):
        canonical_json(value)


def test_canonical_json_ignores_order_and_keeps_kinds_apart():
    assert canonical_json({"b": 1, "a": "é"}) == canonical_json({"a": "é", "b": 1})
    texts = {canonical_json(value) for value in (1, 1.0, True, "1", None, [1])}
    assert len(texts) == 6


def test_changed_fields_names_added_removed_and_nested():
    old, new = {"a": 1, "b": {"c": [1, 2]}}, {"b": {"c": [1, 3]}, "d": None}
    assert changed_fields(old, new) == [
        "a: 1 -> absent",
        "b.c: [1,2] -> [1,3]",
        "d: absent -> null",
    ]
    assert changed_fields(old, old) == []


def test_record_git_commit_absent_is_fine(out, work, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert run_step(REQUEST, out, work, Builder()).record.provenance["git_commit"] is None
    assert "python" in load_artefact(out).record.provenance["packages"]
    assert sys.version.startswith(load_artefact(out).record.provenance["packages"]["python"])


def test_run_step_finds_what_was_kept_of_a_pulled_artefact_after_its_out_was_emptied(
    out, work, tmp_path
):
    run_step(REQUEST, out, tmp_path / "elsewhere", Builder())  # the clone that trained it
    assert keep(out, work)
    assert not keep(out, work)
    record = (out / "record.json").read_bytes()
    shutil.rmtree(out)
    again = Builder()
    run_step(REQUEST, out, work, again)
    assert again.calls == 0
    assert (out / "record.json").read_bytes() == record


def test_run_step_builds_again_what_was_kept_altered(out, work, tmp_path):
    run_step(REQUEST, out, tmp_path / "elsewhere", Builder())
    altered = out / "notes.txt"
    altered.chmod(0o644)
    altered.write_text("other")
    keep(out, work)
    shutil.rmtree(out)
    again = Builder()
    run_step(REQUEST, out, work, again)
    assert again.calls == 1


def test_keep_artefacts_passes_over_what_is_damaged(tmp_path, work):
    whole, half, foreign = (tmp_path / "data/runs/cell" / name for name in ("policy", "a", "b"))
    run_step(REQUEST, whole, tmp_path / "elsewhere", Builder())
    run_step(replace(REQUEST, step_version=2), half, tmp_path / "elsewhere", Builder())
    (half / "notes.txt").unlink()
    foreign.mkdir()
    (foreign / "record.json").write_text("{}")
    assert keep_artefacts(tmp_path, work) == 1
    assert keep_artefacts(tmp_path, work) == 0
