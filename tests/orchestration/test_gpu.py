from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.errors import InstrumentError, UserError
from tasks import gpu
from tasks.gpu import StepCrashed, StepStopped, StepTimedOut, Usage, launch
from tasks.locks import SlotLock
from tasks.record import StepRequest
from tasks.study import Study


@pytest.fixture
def run(bench, tmp_path):
    return partial(
        launch,
        log_path=tmp_path / "logs" / "job.log",
        deadline_seconds=600,
        slots_dir=tmp_path / "slots",
        num_slots=1,
        what="a job",
        grace_seconds=1.0,
    )


@pytest.fixture(scope="module", autouse=True)
def hosts():
    yield
    gpu.close_hosts()


class Clock:
    """The launcher's clock: real time, and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(gpu, "time", clock)
    return clock


@contextmanager
def deadline_passes_at(clock, bench, *announcements):
    """Let 1000 s pass as soon as a job's processes have said that they run.

    Yields what the launcher is to tell that the job runs: it may learn of the job's slot after the
    job has begun, and its deadline counts from there.
    """
    counted = threading.Event()

    def watch() -> None:
        for path in announcements:
            bench.pid_in(path)
        assert counted.wait(bench.patience)
        clock.ahead = 1000.0

    thread = threading.Thread(target=watch)
    thread.start()
    yield lambda seconds: counted.set()
    thread.join()


LAUNCHER = """
import signal, sys
from pathlib import Path
from tasks import gpu
# A shell that runs the tests in the background has its children ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
target, folder, kwargs = sys.argv[1], Path(sys.argv[2]), eval(sys.argv[3])
try:
    with gpu.children_end_first():
        gpu.launch(target, kwargs, log_path=folder / "job.log", deadline_seconds=600,
                   slots_dir=folder / "slots", num_slots=1, what="launched", grace_seconds=1.0)
except KeyboardInterrupt:
    print("interrupted after the job", flush=True)
"""


def test_launch_success_runs_the_function_and_logs_everything(run, tmp_path):
    usage = run("jobs:write_file", {"path": str(tmp_path / "out"), "text": "döne"})
    assert (tmp_path / "out").read_text(encoding="utf-8") == "döne"
    log = (tmp_path / "logs" / "job.log").read_text()
    for text in ("printed to stdout", "printed to stderr", "INFO jobs: logged", "native code"):
        assert text in log
    assert usage.peak_bytes > 1_000_000 and usage.seconds >= 0


def test_launch_twice_appends_to_the_log(run, tmp_path):
    for _ in range(2):
        run("jobs:write_file", {"path": str(tmp_path / "out"), "text": ""})
    assert (tmp_path / "logs" / "job.log").read_text().count("printed to stdout") == 2


def test_launch_gives_environment_slot_device_and_session(run, tmp_path):
    path = tmp_path / "facts"
    run(
        "jobs:report_environment",
        {"path": str(path)},
        num_slots=2,
        devices=["GPU-a", "GPU-b"],
        env={"EXTRA": "yes"},
        preload=["xml.dom.minidom"],
    )
    facts = json.loads(path.read_text())
    assert facts["devices"] == "GPU-a"
    assert facts["leads_its_session"] and facts["preloaded"]
    assert (facts["omp"], facts["extra"], facts["cwd"]) == ("1", "yes", os.getcwd())
    assert facts["main"] is None  # the caller's __main__ (here: pytest) is not run again


def test_launch_passes_lines_on_while_the_job_runs(run, tmp_path):
    lines: list[str] = []
    run("jobs:write_file", {"path": str(tmp_path / "out"), "text": ""}, on_line=lines.append)
    assert lines[0].startswith("--- ")
    assert "printed to stdout" in lines


def test_launch_tells_the_seconds_of_the_job_and_not_those_of_waiting(run, tmp_path):
    told: list[float] = []
    held = SlotLock(tmp_path / "slots", 1).acquire("another job")
    counts: list[int] = []

    def release(_: str) -> None:
        counts.append(len(told))
        held.release()

    arguments = {"path": str(tmp_path / "out"), "text": ""}
    usage = run("jobs:write_file", arguments, on_wait=release, on_run=told.append)
    assert set(counts) == {0}  # twice, where it looks as the lock is given back
    assert told
    assert told == sorted(told)
    assert 0.0 < told[-1] <= usage.seconds


def test_gpu_step_seconds_are_those_of_its_attempts_with_a_slot(tmp_path, params_text, monkeypatch):
    (tmp_path / "params.yaml").write_text(params_text)
    study, attempts = Study(tmp_path), iter([100.0, 3.0])

    def attempt(_: str, arguments: dict[str, str], **options: Any) -> Usage:
        seconds = next(attempts)
        options["on_run"](seconds)
        (Path(arguments["out_dir"]) / "weights.bin").write_text("x")
        if seconds == 100.0:
            raise StepCrashed("its process was ended by SIGKILL")
        return Usage(seconds + 0.5, 0.0, 0)

    monkeypatch.setattr("tasks.study.launch", attempt)
    request = StepRequest("train_policy", 1, {}, {})

    def make() -> float:
        made = study.run_gpu_step(
            request,
            tmp_path / "data/policy",
            lambda dirs: {"out_dir": str(dirs.out)},
            group="cell",
        )
        return made.seconds

    with pytest.raises(StepCrashed):
        make()
    assert make() == 103.5
    assert make() == 103.5


def test_launch_job_killed_keeps_its_last_line_and_names_the_signal(run, tmp_path):
    with pytest.raises(StepCrashed, match="SIGKILL") as caught:
        run("jobs:kill_itself", {})
    assert "marker before the kill" in (tmp_path / "logs" / "job.log").read_text()
    assert "marker before the kill" in str(caught.value)
    assert str(tmp_path / "logs" / "job.log") in str(caught.value)


@pytest.mark.parametrize("code", [0, 3])
def test_launch_process_that_exits_early_is_a_crash_whatever_the_code(run, code):
    with pytest.raises(StepCrashed, match=f"exit code {code} before the work was done"):
        run("jobs:exit_at_once", {"code": code})


def test_launch_user_error_passes_through_with_its_fields(run):
    with pytest.raises(UserError) as caught:
        run("jobs:raise_user_error", {})
    assert (caught.value.doing, caught.value.got) == ("reading a set", "1 response")
    assert str(caught.value) == "reading a set: got 1 response; expected 2 or more. Set K."


def test_launch_instrument_error_passes_through(run):
    with pytest.raises(InstrumentError, match=re.escape("the verifier is down")):
        run("jobs:raise_instrument_error", {})


def test_launch_bug_names_the_exception_and_logs_its_trace(run, tmp_path):
    with pytest.raises(StepCrashed, match="KeyError: 'no such column'"):
        run("jobs:raise_bug", {})
    assert "in raise_bug" in (tmp_path / "logs" / "job.log").read_text()


def test_launch_full_disk_reported_by_native_code_is_a_sentence(run):
    with pytest.raises(UserError, match=r"running a job: got a full disk\. Free some space"):
        run("jobs:raise_disk_full_in_native_words", {})


@pytest.mark.parametrize("target", ["no_such_module:f", "jobs:no_such_function", "jobs"])
def test_launch_unknown_target_is_a_crash_that_says_so(run, target):
    with pytest.raises(StepCrashed, match=r"no_such|jobs"):
        run(target, {})


def test_launch_missing_preload_module_is_named(run):
    with pytest.raises(InstrumentError, match="no_such_preload"):
        run("jobs:kill_itself", {}, preload=["no_such_preload"])


def test_launch_log_that_cannot_be_written_is_a_sentence(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="a file where a folder has to be"):
        run("jobs:kill_itself", {}, log_path=tmp_path / "file" / "job.log")


def test_launch_number_of_devices_has_to_match_the_slots(run):
    with pytest.raises(UserError, match="2 devices; expected 1"):
        run("jobs:kill_itself", {}, devices=["0", "1"])


@pytest.mark.parametrize("job", ["sleep_natively", "sleep_deaf_to_sigterm"])
def test_launch_deadline_ends_blocking_work_and_leaves_no_process(run, bench, clock, tmp_path, job):
    with (
        deadline_passes_at(clock, bench, tmp_path / "pid") as told,
        pytest.raises(StepTimedOut, match="deadline of 600 s"),
    ):
        run(f"jobs:{job}", {"pid_path": str(tmp_path / "pid")}, on_run=told)
    assert not bench.alive(bench.pid_in(tmp_path / "pid"))


def test_launch_deadline_ends_grandchildren_too(run, bench, clock, tmp_path):
    paths = {"pid_path": str(tmp_path / "pid"), "grandchild_path": str(tmp_path / "grandchild")}
    announced = map(Path, paths.values())
    with deadline_passes_at(clock, bench, *announced) as told, pytest.raises(StepTimedOut):
        run("jobs:sleep_with_grandchild", paths, on_run=told)
    assert not bench.alive(bench.pid_in(tmp_path / "grandchild"))


def test_launch_crash_ends_what_the_job_left_running(run, bench, tmp_path):
    with pytest.raises(StepCrashed, match="SIGKILL"):
        run("jobs:die_leaving_grandchild", {"grandchild_path": str(tmp_path / "grandchild")})
    assert not bench.alive(bench.pid_in(tmp_path / "grandchild"))


def test_launch_deadline_does_not_count_waiting_for_a_slot(run, clock, tmp_path):
    held = SlotLock(tmp_path / "slots", 1).acquire("another cell")
    told: list[str] = []

    def release_later(text: str) -> None:
        told.append(text)
        clock.ahead = 1000.0
        threading.Timer(0.6, held.release).start()  # the launcher looks at its clock meanwhile

    run("jobs:write_file", {"path": str(tmp_path / "out"), "text": ""}, on_wait=release_later)
    assert f"another cell (process {os.getpid()}) since" in told[0]


def test_launch_from_threads_never_shares_a_slot(run, tmp_path):
    waiting: set[int] = set()

    def job(number: int) -> None:
        def on_wait(text: str) -> None:
            waiting.add(number)
            if len(waiting) == 3:  # all but the one that is in there
                (tmp_path / "others-wait").touch()

        log_path = tmp_path / f"{number}.log"
        run("jobs:overlap", {"folder": str(tmp_path)}, log_path=log_path, on_wait=on_wait)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(job, range(4)))
    assert waiting


def test_launch_after_its_host_was_killed_starts_a_new_one(run, bench, tmp_path):
    pid_path = tmp_path / "pid"

    def kill_host() -> None:
        job = bench.pid_in(pid_path)
        parent = int(Path(f"/proc/{job}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)

    killer = threading.Thread(target=kill_host)
    killer.start()
    with pytest.raises(StepCrashed, match="fork host ended"):
        run("jobs:sleep_natively", {"pid_path": str(pid_path)})
    killer.join()
    bench.gone(bench.pid_in(pid_path))
    run("jobs:write_file", {"path": str(tmp_path / "out"), "text": ""})


@pytest.mark.parametrize("victim", ["process", "group"])
def test_launch_caller_killed_ends_job_and_grandchild(bench, tmp_path, victim):
    paths = {"pid_path": str(tmp_path / "pid"), "grandchild_path": str(tmp_path / "grandchild")}
    caller = bench.python(
        LAUNCHER, "jobs:sleep_with_grandchild", tmp_path, paths, start_new_session=True
    )
    job = bench.pid_in(tmp_path / "pid")
    grandchild = bench.pid_in(tmp_path / "grandchild")
    assert bench.alive(job)
    if victim == "process":
        caller.kill()
    else:
        os.killpg(caller.pid, signal.SIGKILL)
    bench.gone(job)
    bench.gone(grandchild)
    # And the slot is free again.
    SlotLock(tmp_path / "slots", 1).acquire("next").release()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_launch_caller_signalled_ends_the_job_first(bench, tmp_path, number):
    kwargs = {"pid_path": str(tmp_path / "pid")}
    caller = bench.python(LAUNCHER, "jobs:sleep_natively", tmp_path, kwargs)
    job = bench.pid_in(tmp_path / "pid")
    caller.send_signal(number)
    out, _ = caller.communicate(timeout=bench.patience)
    assert not bench.alive(job)
    if number == signal.SIGINT:
        assert "interrupted after the job" in out
    else:
        assert caller.returncode == 128 + signal.SIGTERM


def test_stop_all_ends_jobs_of_other_threads(run, bench, tmp_path):
    kwargs = {"pid_path": str(tmp_path / "pid")}
    with ThreadPoolExecutor(1) as pool:  # `stop_all` waits as long as the job has to end by itself
        future = pool.submit(run, "jobs:sleep_natively", kwargs, grace_seconds=bench.patience)
        job = bench.pid_in(tmp_path / "pid")
        gpu.stop_all()
        assert not bench.alive(job)
        with pytest.raises(StepStopped, match="flow is stopping"):
            future.result(timeout=bench.patience)


def test_children_end_first_on_an_exception_ends_jobs_and_restores_handlers(run, bench, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    kwargs = {"pid_path": str(tmp_path / "pid")}
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(RuntimeError, match="flow failed"), gpu.children_end_first():
            future = pool.submit(run, "jobs:sleep_natively", kwargs, grace_seconds=bench.patience)
            job = bench.pid_in(tmp_path / "pid")
            raise RuntimeError("flow failed")
        assert not bench.alive(job)
        assert isinstance(future.exception(timeout=bench.patience), StepStopped)
    assert signal.getsignal(signal.SIGTERM) is before


def test_tasks_import_is_light():
    assert not {"torch", "prefect", "mlflow"} & set(
        _modules_after("import tasks.gpu, tasks.record")
    )


def _modules_after(code: str) -> list[str]:
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        cwd=Path(gpu.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()
