"""The Prefect server of a study: one on loopback, its home in the work folder, ended with us.

Imports nothing of Prefect: the address has to be in the environment before Prefect is imported.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from dynamicrubric.boundary import sentence_for
from dynamicrubric.errors import InstrumentError, UserError
from flows.askserver import check_answers, check_schedules
from flows.serverhome import HomePlace, Place, server_place
from tasks.guarded import guarded_command
from tasks.logtail import last_lines

logger = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
START_SECONDS: Final = 600.0
"""The first start after an installation compiles what it imports: minutes on a busy machine."""
STOP_SECONDS: Final = 10.0
FLUSH_SECONDS: Final = 5.0
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "DO_NOT_TRACK": "true",
    "PREFECT_LOGGING_SERVER_LEVEL": "WARNING",
    "PREFECT_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # A flow run without a server starts one; on a busy machine that takes more than Prefect's 20 s.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
}

# Services for schedules, late runs, automations and the like: a study has none of them, and they
# take half of what its server costs while nothing happens. `make ui` and `make worker` run all.
_UNUSED_SERVICES: Final = (
    "SCHEDULER",
    "LATE_RUNS",
    "CANCELLATION_CLEANUP",
    "PAUSE_EXPIRATIONS",
    "FOREMAN",
    "TRIGGERS",
    "REPOSSESSOR",
)


def prefect_environment(root: Path) -> dict[str, str]:
    """Return Prefect's settings of a study, those the user has set taking precedence."""
    home = {"PREFECT_HOME": str((root / "work" / "prefect").resolve())}
    return {**home, **_ENVIRONMENT, **os.environ}


def log_sentences() -> None:
    """Have Prefect log errors meant for people without a trace; faults of ours keep theirs.

    Tasks that only waited for a failed one say nothing: the cause would stand above their lines.
    """
    for name in ("prefect.task_runs", "prefect.flow_runs"):
        logging.getLogger(name).addFilter(_without_trace)
        logging.getLogger(name).addFilter(_is_no_echo)


def _is_no_echo(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Finished in state NotReady(")


def _without_trace(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and sentence_for(error) is not None:
        record.exc_info = None
    return True


@contextmanager
def reserved_port(port: int = 0, what: str = "a server") -> Iterator[int]:
    """Keep a port on loopback for a server of ours, from before it listens until the body ends.

    Linux lets two processes bind a port while at most one listens, if both allow it; servers do.
    Everybody else, also who asks for any free port, does not get it.

    Args:
        port: the port; 0 for any free one.
        what: what is going to listen there.

    Raises:
        UserError: the port is in use or not allowed; says what to do.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((LOOPBACK, port))
        except (OSError, OverflowError) as error:
            raise UserError(
                doing=f"starting {what} on {LOOPBACK}:{port}",
                got=getattr(error, "strerror", None) or str(error),
                expected="a free port",
                remedy="end what uses it (another `make ui`?), or name another port: "
                "python -m flows ui --prefect-port 4201 --mlflow-port 5001",
            ) from None
        yield int(held.getsockname()[1])


@contextmanager
def prefect_server(
    root: Path, port: int | None = None, *, ui: bool = False, schedules: bool = False
) -> Iterator[Place]:
    """Run a Prefect server for the body, unless there is one already.

    That may be one that PREFECT_API_URL names, or one of this project that is running: a study's,
    or that of `make ui`.

    Args:
        root: the project's folder.
        port: where it listens; None for any free port.
        ui: whether it is for the pages (`make ui`): with the background services, and whatever
            PREFECT_API_URL says.
        schedules: whether it is for a worker: with the background services.

    Yields:
        Where it is; its address is in this process's environment for the body.

    Raises:
        UserError: the server that PREFECT_API_URL names does not answer, the port is in use, or a
            worker asks for a server while a study runs its own.
        InstrumentError: ours did not start; its log is named.
    """
    given = os.environ.get("PREFECT_API_URL")
    if given and not ui:
        check_answers(given)
        yield Place(given, ours=False)
        return
    os.environ.update(prefect_environment(root))
    home = Path(os.environ["PREFECT_HOME"])
    with ExitStack() as stack:
        own = f"http://{LOOPBACK}:{port or stack.enter_context(reserved_port())}/api"
        place = stack.enter_context(server_place(home, own, _is_healthy, watch=ui))
        if schedules and not place.ours:
            check_schedules(place.address)
        if place.ours:
            if port is not None:  # not before: who joins a server there is welcome
                stack.enter_context(reserved_port(port, "the Prefect page"))
            stack.enter_context(_server(root, place, all_services=ui or schedules))
        os.environ["PREFECT_API_URL"] = place.address
        try:
            yield place
        finally:
            send_what_is_left()
            os.environ.pop("PREFECT_API_URL", None)


@contextmanager
def _server(root: Path, place: HomePlace, *, all_services: bool) -> Iterator[None]:
    """Run our server for the body, and until the last command that uses it has ended."""
    port = int(place.address.rpartition(":")[2].removesuffix("/api"))
    log = root / "work" / "logs" / "prefect-server.log"
    environment = _server_environment(port, all_services=all_services)
    with running(_server_command(port), log, environment) as server:
        _await_health(place.address, server, log)
        try:
            yield
        finally:
            place.wait_for_users()


def send_what_is_left(seconds: float = FLUSH_SECONDS) -> None:
    """Send the log lines and events that Prefect still holds back, while there is a server.

    Args:
        seconds: how long each of the two may take.
    """
    if "prefect" not in sys.modules:
        return
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=seconds)


def _server_command(port: int) -> list[str]:
    # uvicorn itself and not `prefect server start`, which runs it in a child that outlives a kill.
    return [
        sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app",
        "--host", LOOPBACK, "--port", str(port), "--timeout-keep-alive", "60",
        "--log-level", "warning",
    ]  # fmt: skip


def _server_environment(port: int, *, all_services: bool) -> dict[str, str]:
    unused = () if all_services else _UNUSED_SERVICES
    return {
        **{f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in unused},
        # By default every web page that a browser shows may use the API, and whoever uses it can
        # have a worker run any command.
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": ",".join(
            f"http://{host}:{port}" for host in (LOOPBACK, "localhost")
        ),
        **os.environ,
        "PREFECT_SERVER_API_HOST": LOOPBACK,
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_UI_ENABLED": "true",  # `make ui` during a study shows the study's server
        "PREFECT_UI_API_URL": f"http://{LOOPBACK}:{port}/api",
        "PREFECT__SERVER_WEBSERVER_ONLY": "",
    }


@contextmanager
def running(
    command: list[str],
    log: Path,
    environment: Mapping[str, str],
    *,
    stop_seconds: float = STOP_SECONDS,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server for the body, its output in `log`; it ends with the body and with us."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        server = subprocess.Popen(
            guarded_command(command),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,  # Ctrl-C is ours to hand on, after the work has ended
        )
    try:
        yield server
    finally:
        # The whole session: MLflow's server runs its workers in children that outlive it.
        signal_group(server.pid, signal.SIGTERM)
        try:
            server.wait(stop_seconds)
        except subprocess.TimeoutExpired:
            signal_group(server.pid, signal.SIGKILL)
            server.wait()


def signal_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to every process of the group that `leader` leads, if there is any left."""
    with suppress(ProcessLookupError):
        os.killpg(leader, number)


def _await_health(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _is_healthy(address):
        ended = server.poll() is not None
        if ended or time.monotonic() > deadline:
            how = "ended at once" if ended else f"gave no answer in {START_SECONDS:.0f} s"
            tail = " | ".join(last_lines(log, 3)) or "nothing"
            raise InstrumentError(
                f"starting the Prefect server: it {how}; {log} ends with: {tail}. Run the same "
                "command again, when the machine is less busy if it is"
            )
        time.sleep(0.2)


def _is_healthy(address: str) -> bool:
    return answers(f"{address}/health")


def answers(address: str) -> bool:
    """Return whether an address answers a GET with success."""
    try:
        with urllib.request.urlopen(address, timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False
