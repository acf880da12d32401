from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dynamicrubric.errors import UserError
from tasks.locks import SlotLock, exclusive, read_lease

HOLD = """
import sys, threading
from pathlib import Path
from tasks.locks import SlotLock
with SlotLock(Path(sys.argv[1]), 1).acquire("training elsewhere"):
    print("held", flush=True)
    sys.stdin.read()
"""


def _holder(bench, folder: Path):
    process = bench.python(HOLD, folder, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "held\n"
    return process


def test_slot_lock_holder_killed_lets_the_next_in_and_names_who_held(bench, tmp_path):
    holder = _holder(bench, tmp_path)
    told: list[str] = []

    def kill_when_told(text: str) -> None:
        told.append(text)
        holder.kill()

    with SlotLock(tmp_path, 1).acquire("mine", on_wait=kill_when_told) as held:
        assert held.slot == 0
        assert read_lease(held.path).what == "mine"

    assert f"training elsewhere (process {holder.pid}) since 20" in told[0]


def test_slot_lock_released_normally_leaves_no_lease(bench, tmp_path):
    with SlotLock(tmp_path, 1).acquire("mine") as held:
        lease = json.loads(held.path.read_text())
        assert lease["pid"] == os.getpid()
        assert {"what", "since", "machine"} <= lease.keys()
    assert read_lease(held.path) is None


def test_slot_lock_with_two_slots_gives_both_then_waits(bench, tmp_path):
    locks = SlotLock(tmp_path, 2)
    first, second = locks.acquire("a"), locks.acquire("b")
    assert {first.slot, second.slot} == {0, 1}
    told: list[str] = []

    def release_first(text: str) -> None:
        told.append(text)
        first.release()

    with locks.acquire("c", on_wait=release_first) as third:
        assert third.slot == first.slot
    assert told[0].startswith("a (process") and "; b (process" in told[0]
    second.release()


def test_slot_lock_excludes_threads_of_one_process(bench, tmp_path):
    locks, inside, most = SlotLock(tmp_path, 1), [], []
    told = [threading.Event() for _ in range(4)]

    def work(waits: threading.Event) -> None:
        with locks.acquire("thread", on_wait=lambda text: waits.set()):
            inside.append(1)
            most.append(len(inside))
            threading.Event().wait(0.05)
            inside.pop()

    threads = [threading.Thread(target=work, args=(waits,)) for waits in told]
    with locks.acquire("the first"):
        for thread in threads:
            thread.start()
        assert all(waits.wait(bench.patience) for waits in told)
        assert most == []
    for thread in threads:
        thread.join(bench.patience)
    assert most == [1, 1, 1, 1]


def test_slot_lock_is_not_kept_by_a_forked_or_executed_child(bench, tmp_path):
    held = SlotLock(tmp_path, 1).acquire("parent")
    executed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    release_end, keep_end = os.pipe()
    running_end, tell_end = os.pipe()
    forked = os.fork()
    if forked == 0:
        os.close(keep_end)
        os.write(tell_end, b"!")
        os.read(release_end, 1)  # lives until the parent closes its end
        os._exit(0)
    try:
        os.read(running_end, 1)  # the child gave up its copies before its first own statement
        held.release()
        SlotLock(tmp_path, 1).acquire("next", on_wait=pytest.fail).release()
    finally:
        for end in (release_end, keep_end, running_end, tell_end):
            os.close(end)
        os.waitpid(forked, 0)
        executed.communicate(b"\n")


def test_exclusive_second_study_is_refused_and_names_the_first(bench, tmp_path):
    path = tmp_path / "slot-0.lock"
    holder = _holder(bench, tmp_path)
    with pytest.raises(UserError, match="training elsewhere") as caught, exclusive(path, "a study"):
        pass
    assert str(holder.pid) in str(caught.value) and str(path) in str(caught.value)
    holder.communicate("")
    with exclusive(path, "a study"):
        assert read_lease(path).what == "a study"


def test_slot_lock_ends_what_a_killed_holder_left_in_its_own_session(bench, tmp_path):
    code = """
import os, subprocess, sys
from pathlib import Path
from tasks.locks import SlotLock
os.setsid()
held = SlotLock(Path(sys.argv[1]), 1).acquire("engine", owns_session=True)
orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(orphan.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    process = bench.python(code, tmp_path)
    orphan = int(process.stdout.readline())
    assert process.wait(bench.patience) == -signal.SIGKILL
    assert bench.alive(orphan)
    SlotLock(tmp_path, 1).acquire("next").release()
    assert not bench.alive(orphan)


def test_slot_lock_stale_lease_of_another_boot_touches_no_process(bench, tmp_path):
    bystander = bench.python("input()", stdin=subprocess.PIPE, start_new_session=True)
    lease = {
        "pid": bystander.pid,
        "what": "old",
        "since": "2026-01-01T00:00:00+00:00",
        "machine": "another boot",
        "started": None,
        "owns_session": True,
    }
    (tmp_path / "slot-0.lock").write_text(json.dumps(lease))
    SlotLock(tmp_path, 1).acquire("next").release()
    assert bench.alive(bystander.pid)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', "\x00"])
def test_read_lease_half_written_is_nobody(tmp_path, text):
    (tmp_path / "slot-0.lock").write_text(text)
    assert read_lease(tmp_path / "slot-0.lock") is None
    SlotLock(tmp_path, 1).acquire("next").release()


def test_slot_lock_under_a_file_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="making a lock file"):
        SlotLock(tmp_path / "file", 1).acquire("mine")
