"""Ports of our servers, and what Prefect prints of a failed task."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from dynamicrubric.errors import InstrumentError, UserError
from flows.services import LOOPBACK, answers, log_sentences, reserved_port


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """Prefect's logger with our filter and a handler of the test's own."""
    found = logging.getLogger("prefect.task_runs")
    monkeypatch.setattr(found, "filters", [])
    monkeypatch.setattr(found, "handlers", [caplog.handler])
    monkeypatch.setattr(found, "propagate", False)
    log_sentences()
    return found


def log(logger: logging.Logger, error: Exception) -> None:
    try:
        raise error
    except Exception:
        logger.exception("Task run failed with exception: %r", error)


@pytest.mark.parametrize(
    "error",
    [
        UserError(doing="loading", got="one byte more", remedy="restore it"),
        InstrumentError("the verifier is down"),
        PermissionError(13, "Permission denied", "data"),
    ],
)
def test_error_for_people_is_logged_without_a_trace(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    log(logger, error)
    assert "Task run failed" in caplog.text
    assert "Traceback" not in caplog.text


def test_fault_of_ours_is_logged_with_its_trace(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    log(logger, KeyError("r_disc"))
    assert "Traceback" in caplog.text


def test_tasks_that_waited_for_a_failed_one_say_nothing(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    logger.error("Finished in state NotReady('Upstream task run did not reach COMPLETED')")
    logger.error("Finished in state Failed('the cause')")
    assert [record.getMessage() for record in caplog.records] == [
        "Finished in state Failed('the cause')"
    ]


class Yes(BaseHTTPRequestHandler):
    """Answers every GET."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None: ...


def test_reserved_port_is_nobodys_but_our_servers(wait: Callable[..., Any]) -> None:
    with reserved_port() as port:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((LOOPBACK, port))
        with HTTPServer((LOOPBACK, port), Yes) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            wait(lambda: answers(f"http://{LOOPBACK}:{port}/health"), "our server to answer")
            with pytest.raises(UserError, match="a free port"), reserved_port(port):
                pytest.fail("a port on which somebody listens was promised")
            server.shutdown()


def test_reserved_ports_are_many_at_once() -> None:
    with reserved_port() as one, reserved_port() as another:
        assert one != another
