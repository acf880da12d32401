"""One Prefect server a home: who comes second joins, and the first waits for those who joined."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from dynamicrubric.errors import UserError
from flows import services
from flows.askserver import check_schedules
from flows.serverhome import server_place
from flows.services import prefect_server

ROOT = Path(__file__).resolve().parents[2]
OURS, OTHER = "http://127.0.0.1:1/api", "http://127.0.0.1:2/api"
HOLD = """
import sys
from pathlib import Path
from flows.serverhome import server_place
with server_place(Path(sys.argv[1]), sys.argv[2], lambda address: False):
    print("held", flush=True)
    sys.stdin.read()
"""
# Stands for Prefect's server: it answers every GET with success, and says if it has schedules.
SERVER = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
enabled = os.environ.get("PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED") != "false"
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        settings = {"server": {"services": {"scheduler": {"enabled": enabled}}}}
        self.wfile.write(json.dumps(settings).encode())
print("a server starts", flush=True)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def up(address: str) -> bool:
    return address == OURS


def test_second_joins_the_server_that_runs_and_is_not_to_start_one(tmp_path: Path) -> None:
    with server_place(tmp_path, OURS, up) as first, server_place(tmp_path, OTHER, up) as second:
        assert (first.ours, first.address) == (True, OURS)
        assert (second.ours, second.address) == (False, OURS)
    with server_place(tmp_path, OTHER, up) as third:  # both have left
        assert (third.ours, third.address) == (True, OTHER)


def test_server_waits_for_those_who_joined(tmp_path: Path, patience: float) -> None:
    waited = threading.Event()
    with server_place(tmp_path, OURS, up) as first:

        def wait() -> None:
            first.wait_for_users()
            waited.set()

        with server_place(tmp_path, OTHER, up):
            thread = threading.Thread(target=wait)
            thread.start()
            assert not waited.wait(0.5)
        assert waited.wait(patience)
        thread.join()
        # It is ending now: nobody joins it, though it still answers.
        late = server_place(tmp_path, OTHER, up, seconds=0.3)
        with pytest.raises(UserError), late:
            pytest.fail("joined a server that is ending")


def test_server_does_not_wait_for_those_who_watch(tmp_path: Path) -> None:
    with (
        server_place(tmp_path, OURS, up) as first,
        server_place(tmp_path, OTHER, up, watch=True) as second,
    ):
        assert (second.ours, second.address) == (False, OURS)
        first.wait_for_users()


def test_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with server_place(tmp_path, OTHER, up):
        second = server_place(tmp_path, OURS, up, seconds=0.3)
        with pytest.raises(UserError, match=f"process {os.getpid()}") as caught, second:
            pytest.fail("joined a server that is down")
        assert OTHER in str(caught.value)


def test_place_of_a_killed_process_is_free(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), OTHER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(UserError, match=f"process {holder.pid}"),
            server_place(tmp_path, OURS, up, seconds=0.3),
        ):
            pytest.fail("two hold one place")
        holder.kill()
        holder.wait()
    with server_place(tmp_path, OURS, up) as place:
        assert place.ours


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PREFECT_API_URL", "")
    monkeypatch.setattr(
        services, "_server_command", lambda port: [sys.executable, "-c", SERVER, str(port)]
    )
    return tmp_path


@pytest.mark.parametrize(("first_ui", "second_ui"), [(False, True), (True, False), (False, False)])
def test_pages_and_commands_of_one_home_have_one_server(
    home: Path, monkeypatch: pytest.MonkeyPatch, first_ui: bool, second_ui: bool
) -> None:
    with prefect_server(home, ui=first_ui) as first:
        monkeypatch.delenv("PREFECT_API_URL")  # as another process would find it
        with prefect_server(home, ui=second_ui) as second:
            assert (first.ours, second.ours) == (True, False)
            assert second.address == first.address
            assert os.environ["PREFECT_API_URL"] == first.address
    log = home / "work" / "logs" / "prefect-server.log"
    assert log.read_text().count("a server starts") == 1
    assert not services.answers(f"{first.address}/health")


def test_pages_on_a_port_in_use_are_refused_unless_a_server_is_joined(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prefect_server(home) as first:
        port = int(first.address.rpartition(":")[2].removesuffix("/api"))
        monkeypatch.delenv("PREFECT_API_URL")
        with prefect_server(home, port, ui=True) as second:
            assert second.address == first.address
        monkeypatch.setenv("PREFECT_HOME", str(home / "another"))
        with (
            pytest.raises(UserError, match="expected a free port"),
            prefect_server(home, port, ui=True),
        ):
            pytest.fail("a port was used twice")


def test_worker_joins_a_server_with_schedules_and_refuses_a_studys(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prefect_server(home, ui=True) as first:
        monkeypatch.delenv("PREFECT_API_URL")
        with prefect_server(home, schedules=True) as second:
            assert second.address == first.address
    with prefect_server(home):
        monkeypatch.delenv("PREFECT_API_URL")
        with (
            pytest.raises(UserError, match="has no schedules"),
            prefect_server(home, schedules=True),
        ):
            pytest.fail("a worker would wait for the study, and the study for the worker")


@pytest.mark.slow
def test_studys_server_answers_no_page_but_its_own(server: str) -> None:
    page = server.removesuffix("/api")
    wanted = {"Access-Control-Request-Method": "POST"}
    for origin, allowed in ((page, page), ("https://elsewhere.example", None)):
        request = urllib.request.Request(
            f"{server}/work_pools/", headers={"Origin": origin, **wanted}, method="OPTIONS"
        )
        try:
            with urllib.request.urlopen(request, timeout=240) as reply:
                found = reply.headers
        except urllib.error.HTTPError as error:  # 400 for a page that may not
            found = error.headers
        assert found.get("Access-Control-Allow-Origin") == allowed


@pytest.mark.slow
def test_studys_server_says_that_it_has_no_schedules(server: str) -> None:
    with pytest.raises(UserError, match="no schedules"):
        check_schedules(server)
