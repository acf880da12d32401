"""A server that PREFECT_API_URL names: asked before Prefect is, and refused in a sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from dynamicrubric.config import load_config
from dynamicrubric.errors import UserError
from dynamicrubric.plan import expand, write_plan
from flows.services import prefect_server, reserved_port

ROOT = Path(__file__).resolve().parents[2]
PARAMS = Path(__file__).with_name("params.yaml")
Serve = Callable[[int, bytes], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that answers all requests alike and returns its API's address."""
    servers: list[HTTPServer] = []

    def start(status: int, body: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path == "/api/health" else 500)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None: ...

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/api"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("status", "body"), [(200, b"true"), (401, b""), (404, b"")])
def test_given_server_that_answers_is_used(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
) -> None:
    address = serve(status, body)
    monkeypatch.setenv("PREFECT_API_URL", address)
    with prefect_server(tmp_path) as used:
        assert (used.address, used.ours) == (address, False)
    assert os.environ["PREFECT_API_URL"] == address


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [(200, b"<html>", "not Prefect's"), (503, b"", "HTTP 503")],
)
def test_given_server_that_is_no_prefect_is_refused(
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: bytes,
    said: str,
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", serve(status, body))
    with pytest.raises(UserError, match=said), prefect_server(tmp_path):
        pytest.fail("it was used")


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:4200/api", "http://"])
def test_given_address_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", address)
    with pytest.raises(UserError, match=r"PREFECT_API_URL"), prefect_server(tmp_path):
        pytest.fail("it was used")


def test_command_with_an_unreachable_server_is_one_sentence_and_code_two(tmp_path: Path) -> None:
    shutil.copyfile(PARAMS, tmp_path / "params.yaml")
    write_plan(expand(load_config(PARAMS)), tmp_path / "cells.yaml")
    with reserved_port() as port:  # nobody listens there
        address = f"http://127.0.0.1:{port}/api"
        done = subprocess.run(
            [sys.executable, "-m", "flows", "prepare"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PREFECT_API_URL": address},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: asking the Prefect server that PREFECT_API_URL names")
    assert address in done.stderr
    assert "refused" in done.stderr
    assert "Traceback" not in done.stderr
