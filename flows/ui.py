"""The two web pages, Prefect and MLflow, on loopback until Ctrl-C: `make ui`."""

from __future__ import annotations

import signal
import time

from flows.services import LOOPBACK, answers, check_port, prefect_server, running
from tasks.study import Study
from tasks.tracking import prepare_store, ui_command, ui_environment

START_SECONDS = 180.0


def ui(prefect_port: int = 4200, mlflow_port: int = 5000) -> int:
    """Serve both pages and print their addresses."""
    study = Study.here()
    check_port(mlflow_port, "the MLflow page")
    prepare_store(study.root)
    log = study.work / "logs" / "mlflow-server.log"
    command = ui_command(study.root, host=LOOPBACK, port=mlflow_port)
    print("Starting both pages ...", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends both, as Ctrl-C does
    with (
        prefect_server(study.root, prefect_port, ui=True) as prefect,
        running(command, log, ui_environment()) as mlflow,
    ):
        address = f"http://{LOOPBACK}:{mlflow_port}"
        deadline = time.monotonic() + START_SECONDS
        while not answers(f"{address}/health") and mlflow.poll() is None:
            if time.monotonic() > deadline:
                break
            time.sleep(0.3)
        joined = f":{prefect_port}/" not in prefect
        until = " (the running study's, until that ends)" if joined else ""
        print(f"Prefect: {prefect.removesuffix('/api')}/dashboard{until}")
        print(f"MLflow:  {address}")
        print("Ctrl-C ends both.", flush=True)
        while mlflow.poll() is None:
            time.sleep(0.5)
    print(f"MLflow's server ended; its log: {log}")
    return 1
