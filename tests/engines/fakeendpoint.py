"""An OpenAI-compatible server on loopback that answers as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """One HTTP answer; `body` is sent as it is if it is text, as JSON otherwise."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    trickles: bool = False
    """Blanks arrive one by one, as gateways keep a connection open, and the body never does."""


@dataclass
class Asked:
    """One HTTP request."""

    method: str
    path: str
    body: Any
    headers: Mapping[str, str]


class FakeEndpoint:
    """Where the server is, what it was asked, and whether it may let go of held requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[Asked] = []
        self.released = threading.Event()

    def bodies(self) -> list[Any]:
        return [asked.body for asked in self.asked]


@contextmanager
def serving(answer: Callable[[Asked, int], Answer]) -> Iterator[FakeEndpoint]:
    """Serve until the body ends; `answer` gets each request and how many came before it."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, body, headers)
            with lock:
                place = len(fake.asked)
                fake.asked.append(asked)
            found = answer(asked, place)
            text = found.body if isinstance(found.body, str) else json.dumps(found.body)
            data = text.encode()
            self.send_response(found.status)
            for name, value in {"content-type": "application/json", **found.headers}.items():
                self.send_header(name, value)
            length = 1 << 20 if found.trickles else len(data)
            self.send_header("content-length", str(length))
            self.end_headers()
            while found.trickles and not fake.released.wait(0.02):
                self.wfile.write(b" ")
            self.wfile.write(data)

        do_POST = do_GET = _handle

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that gave up is no error here."""

    server = Server(("127.0.0.1", 0), Handler)
    fake = FakeEndpoint(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        fake.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def chat(
    text: str | None,
    *,
    finish: str | None = "stop",
    tokens: Sequence[tuple[str, Mapping[str, float]]] = (),
    **message: Any,
) -> dict[str, Any]:
    """Return a chat completion; `tokens` are texts with the alternatives in their places."""
    content = [
        {
            "token": token,
            "logprob": top.get(token, -0.5),
            "top_logprobs": [{"token": t, "logprob": p} for t, p in top.items()],
        }
        for token, top in tokens
    ]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": finish,
        "logprobs": {"content": content} if tokens else None,
    }
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    return {"object": "chat.completion", "choices": [choice], "usage": usage}


def failure(message: str, *, code: str | None = None, status: int = 400) -> Answer:
    """Return an error as OpenAI writes it."""
    error = {"message": message, "type": "error", "code": code, "param": None}
    return Answer({"error": error}, status)
