"""The real server on loopback, on a thread of the test's process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import uvicorn

from dynamicrubric.doors.binding import bound, url_of
from dynamicrubric.doors.server import make_app, server_of


class Live:
    """A running server.

    Attributes:
        url: where it is.
        server: uvicorn's; `stop` asks it to end as a signal does.
    """

    def __init__(self, url: str, server: uvicorn.Server, thread: threading.Thread) -> None:
        self.url = url
        self.server = server
        self.thread = thread

    def stop(self) -> None:
        self.server.should_exit = True

    def post(self, path: str = "/v1/score", **sent: Any) -> httpx2.Response:
        return httpx2.post(self.url + path, timeout=60, **sent)

    def get(self, path: str, **sent: Any) -> httpx2.Response:
        return httpx2.get(self.url + path, timeout=60, **sent)

    def figure(self, name: str) -> float:
        """Return one line of /metrics."""
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        return 0.0


@contextmanager
def serving(evaluator: Any, **settings: Any) -> Iterator[Live]:
    """Serve an evaluator until the body ends."""
    listening = bound("127.0.0.1", 0)
    server = server_of(make_app(evaluator, **settings), grace_seconds=30)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    live = Live(url_of(listening), server, thread)
    try:
        while thread.is_alive() and not server.started:
            thread.join(0.01)  # bound is not listening yet
        httpx2.get(live.url + "/health", timeout=60).raise_for_status()
        yield live
    finally:
        live.stop()
        thread.join(60)
        listening.close()
    assert not thread.is_alive()
