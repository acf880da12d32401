"""The worker: the process that starts what the Prefect UI or a schedule asks for.

It polls the server for runs of our work pool and starts each as a child, `python -m flows run`. All
of them end with it, and it ends with the command that started it (`make ui`, `make worker`).
"""

from __future__ import annotations

import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from dynamicrubric.errors import UserError
from flows.services import prefect_server, running
from tasks.guarded import GUARDED_PID
from tasks.logtail import last_lines
from tasks.process import die_with_parent
from tasks.study import Study

POOL: Final = "dynamicrubric"
QUERY_SECONDS: Final = "5"
MOST_RUNS: Final = "2"
"""A study, and one that is skipped because of it. After a week without a worker the runs of all its
nights are late, and would be started at once."""
STOP_SECONDS: Final = 60.0
"""How long a run has to end its cells: each has its own time to end its GPU work."""


def work(root: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run a worker for the body; the server's address is in the environment."""
    environment = {"PREFECT_WORKER_QUERY_SECONDS": QUERY_SECONDS, **os.environ}
    return running(_command(), log_path(root), environment, stop_seconds=STOP_SECONDS)


def log_path(root: Path) -> Path:
    """Return the worker's log; it has what the runs print as well."""
    return root / "work" / "logs" / "prefect-worker.log"


def _command() -> list[str]:
    return [
        sys.executable, "-m", "prefect", "worker", "start",
        "--pool", POOL, "--type", "process", "--name", socket.gethostname(),
        "--install-policy", "never", "--limit", MOST_RUNS,
    ]  # fmt: skip


def worker() -> int:
    """Run a worker until Ctrl-C: `make worker`, for a server that is not `make ui`'s.

    That is the server PREFECT_API_URL names or the project's running one; without either, one with
    schedules is started.
    """
    study = Study.here()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends it as Ctrl-C does
    with prefect_server(study.root, schedules=True) as place, work(study.root) as process:
        print(f"A worker runs what {place.address} asks for; its log: {log_path(study.root)}")
        print("Ctrl-C ends it, and what it runs.", flush=True)
        while process.poll() is None:
            time.sleep(0.5)
    raise ended(study.root)


def ended(root: Path) -> UserError:
    """Return what to say of a worker that ended by itself."""
    log = log_path(root)
    return UserError(
        doing="running a worker for Prefect",
        got=f"its end: {' | '.join(last_lines(log, 2))}",
        expected="it to run until Ctrl-C",
        remedy=f"see {log}",
    )


def run_as_child() -> None:
    """Become the flow run that the worker asks for, and end with the worker: `flows run`."""
    die_with_parent(int(os.environ.get(GUARDED_PID) or os.getppid()))
    del sys.argv[1:]  # the run's id is in the environment
    skips = _Skips()
    for name in ("prefect.flow_runs", "prefect.engine"):
        logging.getLogger(name).addFilter(skips)
    try:
        runpy.run_module("prefect.engine", run_name="__main__")
    except SystemExit:
        if not skips.seen:
            raise


class _Skips(logging.Filter):
    """Lets a skipped run end in peace: Prefect ends each cancelled run as a fault, with a trace."""

    seen = False

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        is_skip = type(error).__name__ == "CancelledRun"  # Prefect is not imported yet
        self.seen = self.seen or is_skip
        return not is_skip
