"""The two web pages, Prefect and MLflow, and the worker behind them until Ctrl-C: `make ui`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from flows.askserver import has_schedules
from flows.services import LOOPBACK, answers, prefect_server, reserved_port, running
from flows.worker import ended, work
from tasks.study import Study
from tasks.trackerpages import PAGE
from tasks.trackerserver import tracker_page, ui_command, ui_environment
from tasks.tracking import prepare_store

START_SECONDS = 600.0
POLL_SECONDS = 0.5
MISSED = 6
"""Questions after which a server that does not answer has ended."""
_STUDYS = "the running study's"


def ui(prefect_port: int = 4200, mlflow_port: int = 5000) -> int:
    """Serve both pages and print their addresses; run what is started there.

    A page that is served already is not served again: MLflow's if MLFLOW_TRACKING_URI names a
    server, Prefect's while another command of this project runs one.
    """
    study = Study.here()
    log = study.work / "logs" / "mlflow-server.log"
    given = tracker_page(study.root)
    if given is None:
        with reserved_port(mlflow_port, "the MLflow page"):  # in use? said now, not by MLflow
            pass
        print("Preparing MLflow's database ...", flush=True)
        prepare_store(study.root)
    print("Starting the pages, up to a minute the first time ...", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends both, as Ctrl-C does
    pages = nullcontext() if given is not None else _mlflow(study.root, mlflow_port, log)
    page = given or f"http://{LOOPBACK}:{mlflow_port}"
    os.environ[PAGE] = page
    with pages as mlflow:
        while _shown_anothers(study, prefect_port, page, mlflow):
            print("That server has ended.", flush=True)
    if mlflow is not None and mlflow.poll() is not None:
        print(f"MLflow's server ended; its log: {log}")
        return 1
    raise ended(study.root)


def _shown_anothers(
    study: Study, port: int, page: str, mlflow: subprocess.Popen[bytes] | None
) -> bool:
    """Serve Prefect's pages, or show another's server; return whether it was that and has ended.

    A study's own server has no schedules, and a worker on it would only be told to wait; one that
    has them has its worker as well. When it has ended there has to be one that has both, or a
    nightly study would never begin.
    """
    with prefect_server(study.root, port, ui=True) as place:
        joined = None if place.ours else place.address
        until = f" ({_whose(joined)}, until that ends)" if joined else ""
        print(f"Prefect: {place.address.removesuffix('/api')}/dashboard{until}")
        print(f"MLflow:  {page}")
        with nullcontext() if joined else work(study.root) as worker:
            print("Ctrl-C ends what is served here" + (", and what it runs." if worker else "."))
            return _wait(mlflow, worker, joined=joined)


def _whose(address: str) -> str:
    """Say whose a server of this project is that we did not start."""
    try:
        return "of another `make ui` or `make worker`" if has_schedules(address) else _STUDYS
    except (OSError, ValueError, KeyError):  # too busy, or ending
        return "of another command"


def _wait(*processes: subprocess.Popen[bytes] | None, joined: str | None) -> bool:
    """Return when a process has ended (False), or the server that was joined has (True)."""
    sys.stdout.flush()
    missed = 0
    while all(process is None or process.poll() is None for process in processes):
        if joined is not None:
            missed = 0 if answers(f"{joined}/health") else missed + 1
            if missed == MISSED:
                return True
        time.sleep(POLL_SECONDS)
    return False


@contextmanager
def _mlflow(root: Path, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run MLflow's server for the body, which begins when it answers, ends or takes too long."""
    with running(ui_command(root, host=LOOPBACK, port=port), log, ui_environment()) as server:
        deadline = time.monotonic() + START_SECONDS
        while not answers(f"http://{LOOPBACK}:{port}/health") and server.poll() is None:
            if time.monotonic() > deadline:
                break
            time.sleep(0.3)
        yield server
