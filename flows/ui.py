"""The two web pages, Prefect and MLflow, on loopback until Ctrl-C: `make ui`."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from flows.services import LOOPBACK, answers, check_port, prefect_server, running
from tasks.study import Study
from tasks.tracking import prepare_store, tracker_page, ui_command, ui_environment

START_SECONDS = 180.0


def ui(prefect_port: int = 4200, mlflow_port: int = 5000) -> int:
    """Serve both pages and print their addresses.

    A page that is served already is not served again: MLflow's if MLFLOW_TRACKING_URI names a
    server, Prefect's while a study runs one.
    """
    study = Study.here()
    log = study.work / "logs" / "mlflow-server.log"
    given = tracker_page(study.root)
    if given is None:
        check_port(mlflow_port, "the MLflow page")
        print("Preparing MLflow's database ...", flush=True)
        prepare_store(study.root)
    print("Starting the pages, up to a minute the first time ...", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends both, as Ctrl-C does
    pages = nullcontext() if given is not None else _mlflow(study.root, mlflow_port, log)
    with prefect_server(study.root, prefect_port, ui=True) as prefect, pages as mlflow:
        joined = f":{prefect_port}/" not in prefect
        until = " (the running study's, until that ends)" if joined else ""
        print(f"Prefect: {prefect.removesuffix('/api')}/dashboard{until}")
        print(f"MLflow:  {given or f'http://{LOOPBACK}:{mlflow_port}'}")
        print("Ctrl-C ends what is served here.", flush=True)
        while mlflow is None or mlflow.poll() is None:
            time.sleep(0.5)
    print(f"MLflow's server ended; its log: {log}")
    return 1


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
