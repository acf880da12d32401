"""What a request has to pass before it is read: host, key, number at a time, size, time.

Plain ASGI, outside the framework: what is refused here costs neither parsing nor a model, and a
refusal never repeats what was sent.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from dynamicrubric.doors.limits import Limits
from dynamicrubric.doors.meters import Meters
from dynamicrubric.engines.access import is_loopback

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS: Final = frozenset({"/health", "/", "/docs", "/openapi.json"})
"""What nobody needs a key for: it says nothing of what was sent."""
SCORE_PATHS: Final = frozenset({"/v1/score", "/openrlhf"})
MAX_RETRY_SECONDS: Final = 30
"""Longest Retry-After: places get free all the time, however long one answer takes."""
LEFT: Final = 499
"""Counted, and read by nobody: the client has left."""


class _BodyError(Exception):
    """A body that is too large, or too slow."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Gate:
    """Refuses, or lets through and counts."""

    def __init__(self, app: App, *, limits: Limits, meters: Meters, key: str | None) -> None:
        """Guard an application.

        Args:
            app: what is behind.
            limits: how much, how many, how long.
            meters: told of every request.
            key: what callers have to send; None asks nobody, and answers loopback names alone.
        """
        self._app = app
        self._limits = limits
        self._meters = meters
        self._key = key
        self._in_flight = 0
        self._mean_seconds = 1.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection's request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, code = time.monotonic(), 500

        async def counted(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self._handle(scope, receive, counted)
        finally:
            self._meters.requests.labels(code=str(code)).inc()
            if scope["path"] in SCORE_PATHS and code == 200:
                took = time.monotonic() - began
                self._meters.seconds.observe(took)
                self._mean_seconds += 0.1 * (took - self._mean_seconds)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self._key is None and not _asks_loopback(headers.get(b"host", b"")):
            # A page in a browser here could else reach us under a name of its own.
            await refuse(send, 421, "wrong_host", "without a key this server is called 127.0.0.1")
        elif not self._may_enter(scope["path"], headers.get(b"authorization", b"")):
            await refuse(send, 401, "no_key", "send the header Authorization: Bearer <key>")
        elif scope["path"] not in SCORE_PATHS or scope["method"] != "POST":
            await self._app(scope, receive, send)
        elif self._in_flight >= self._limits.max_requests:
            await self._busy(receive, send)
        else:
            await self._score(scope, receive, send)

    def _may_enter(self, path: str, authorization: bytes) -> bool:
        if self._key is None or path in OPEN_PATHS:
            return True
        kind, _, key = authorization.partition(b" ")
        sent = key.strip() if kind.lower() == b"bearer" else b""
        return hmac.compare_digest(sent, self._key.encode())

    async def _busy(self, receive: Receive, send: Send) -> None:
        with suppress(_BodyError):  # who is still sending reads no answer
            await self._read(receive, keep=False)
        seconds = str(min(max(1, math.ceil(self._mean_seconds)), MAX_RETRY_SECONDS))
        await refuse(
            send,
            429,
            "busy",
            f"{self._limits.max_requests} requests are being scored; come back after Retry-After",
            {"retry-after": seconds},
        )

    async def _score(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._in_flight += 1
        self._meters.in_flight.set(self._in_flight)
        try:
            declared = dict(scope["headers"]).get(b"content-length", b"0")
            if declared.isdigit() and int(declared) > self._limits.max_body_bytes:
                raise _BodyError(413)
            body = await self._read(receive)
        except _BodyError as error:
            if error.code == 413:
                most = f"at most {self._limits.max_body_bytes} bytes"
                await refuse(send, 413, "too_large", most, {"connection": "close"})
            elif error.code == 408:
                await refuse(
                    send, 408, "too_slow", "the body came too slowly", {"connection": "close"}
                )
            else:
                await refuse(send, LEFT, "left", "the client left")
        else:
            await self._app(scope, _replaying(body, receive), send)
        finally:
            self._in_flight -= 1
            self._meters.in_flight.set(self._in_flight)

    async def _read(self, receive: Receive, *, keep: bool = True) -> bytes:
        """Return a request's body, or nothing of it.

        Raises:
            _BodyError: 413, 408, or 0 if the client left.
        """
        body, size = bytearray(), 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _BodyError(0)
                    size += len(message.get("body", b""))
                    if keep:
                        body += message.get("body", b"")
                    if size > self._limits.max_body_bytes:
                        raise _BodyError(413)
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise _BodyError(408) from None


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body that was read, then what comes after it."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _asks_loopback(host: bytes) -> bool:
    try:
        name = urlsplit(f"//{host.decode('latin-1')}").hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)


async def refuse(
    send: Send, code: int, name: str, message: str, headers: dict[str, str] | None = None
) -> None:
    """Answer with an error document."""
    body = json.dumps({"error": name, "message": message}).encode()
    extra = {"www-authenticate": "Bearer"} if code == 401 else {}
    every = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **extra,
        **(headers or {}),
    }
    pairs = [(key.encode(), value.encode()) for key, value in every.items()]
    await send({"type": "http.response.start", "status": code, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
