"""Steps in several processes: who takes part, what is said when one fails, what stays behind."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from dynamicrubric.errors import InstrumentError
from tasks.gpu import StepCrashed, close_hosts, launch

pytestmark = pytest.mark.slow

RUN = """
import json, sys
from tasks.ranks import run_in_ranks
run_in_ranks(**json.loads(sys.argv[1]))
"""


@pytest.fixture
def run_job(bench, tmp_path):
    yield partial(
        launch,
        "tasks.ranks:run_in_ranks",
        log_path=tmp_path / "job.log",
        deadline_seconds=600,
        slots_dir=tmp_path / "slots",
        num_slots=1,
        what="train_policy of a cell",
        grace_seconds=1.0,
    )
    close_hosts()


def in_two(job: str, **kwargs: object) -> dict[str, object]:
    return {"target": f"jobs:{job}", "kwargs": kwargs, "num_processes": 2}


def test_ranks_share_what_they_have_and_listen_on_loopback_alone(run_job, tmp_path: Path) -> None:
    run_job(in_two("report_rank", folder=str(tmp_path)))
    first, second = (json.loads((tmp_path / f"rank-{n}.json").read_text()) for n in (0, 1))
    assert (first["is_first"], second["is_first"]) == (True, False)
    assert first["gathered"] == second["gathered"] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert first["from_first"] == second["from_first"] == 0
    for facts in (first, second):
        assert set(facts["listening"]) <= {"127.0.0.1", "::1"}
        assert facts["launcher_listening"] == []


def test_rank_that_fails_speaks_for_all_and_ends_the_others(bench, run_job, tmp_path) -> None:
    with pytest.raises(InstrumentError, match="the verifier is down on process 1"):
        run_job(in_two("fail_on_second", folder=str(tmp_path)))
    bench.gone(int((tmp_path / "waiting").read_text()))


def test_rank_that_is_killed_ends_the_step(bench, run_job, tmp_path) -> None:
    with pytest.raises(StepCrashed, match="process 1: no word"):
        run_job(in_two("kill_second", folder=str(tmp_path)))
    bench.gone(int((tmp_path / "waiting").read_text()))


def test_ranks_end_with_their_launcher(bench, tmp_path) -> None:
    parent = bench.python(RUN, json.dumps(in_two("wait_for_ever", folder=str(tmp_path))))
    ranks = [bench.pid_in(tmp_path / f"pid-{n}") for n in (0, 1)]
    launcher = bench.pid_in(tmp_path / "launcher")
    os.kill(launcher, signal.SIGKILL)
    for pid in ranks:
        bench.gone(pid)
    parent.wait(timeout=bench.patience)
