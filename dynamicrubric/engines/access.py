"""Which endpoint is called, and what it takes to be let in.

The key comes from an environment variable alone and is in no message. Plain http is for loopback.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import re
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from dynamicrubric.errors import UserError
from dynamicrubric.settings import Section

if TYPE_CHECKING:
    import httpx2
    import openai


def _name_of_variable(name: str) -> str:
    """Refuse what is no name, and perhaps the key itself: so it is not repeated."""
    if not re.fullmatch(r"[A-Za-z_]\w{0,63}", name):
        raise ValueError(
            "what stands there is not shown; expected the name of an environment variable, such as "
            "OPENAI_API_KEY, and never a key"
        )
    return name


Price = Annotated[float, Field(ge=0.0)] | None


class EndpointPlace(Section):
    """Where an OpenAI-compatible endpoint is, how it is called and what it costs."""

    base_url: str
    """Address up to and with the version, such as http://127.0.0.1:8000/v1."""
    key_variable: Annotated[str, AfterValidator(_name_of_variable)] = "OPENAI_API_KEY"
    """Environment variable with the key. On loopback it may be unset."""
    allow_plain_http: bool = False
    """Let prompts and the key travel unencrypted to another machine."""
    timeout_seconds: Annotated[float, Field(gt=0.0)] = 120.0
    """Longest silence of the endpoint; an answer that is still trickling in then is given up."""
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 6
    """Calls for one request before the endpoint counts as down."""
    max_wait_seconds: Annotated[float, Field(ge=0.0)] = 300.0
    """Longest pause that the endpoint may ask for (Retry-After)."""
    requests_per_minute: Annotated[float, Field(ge=0.0)] = 0.0
    """Most calls started in a minute, evenly spaced; 0 sets no limit. In `runtime.endpoints` of all
    processes that the slots have room for together, each of which gets an equal share."""
    max_concurrency: Annotated[int, Field(ge=1, le=1024)] = 8
    """Most calls at a time; shared likewise, but every process may have one."""
    token_limit_field: str = "max_tokens"
    """What the endpoint calls the limit: newer OpenAI models want `max_completion_tokens`."""
    price_per_million_prompt_tokens: Price = None
    """In whatever currency all prices of the study are in; None: unknown."""
    price_per_million_completion_tokens: Price = None
    """Likewise; an endpoint counts thinking as completion."""


class EndpointConfig(EndpointPlace):
    """An OpenAI-compatible endpoint and one of its models."""

    model: str
    """Name that the endpoint knows the model by."""


def client_of(config: EndpointConfig) -> openai.OpenAI:
    """Return the SDK's client, without retries of its own.

    Raises:
        UserError: the package `openai` is missing, or address or key will not do.
    """
    key = check_access(config)
    import openai

    return openai.OpenAI(
        api_key=key or "none",
        base_url=config.base_url,
        timeout=config.timeout_seconds,
        max_retries=0,
        http_client=openai.DefaultHttpxClient(transport=_transport(config), follow_redirects=False),
    )


def _transport(config: EndpointConfig) -> httpx2.HTTPTransport:
    """Return a transport with a deadline for whole answers: HTTP clients have one for silences."""
    import httpx2

    class Bounded(httpx2.SyncByteStream):
        def __init__(self, stream: Iterable[bytes], ends: float) -> None:
            self._stream, self._ends = stream, ends

        def __iter__(self) -> Iterator[bytes]:
            for part in self._stream:
                if time.monotonic() > self._ends:
                    raise httpx2.ReadTimeout("the answer trickles in")
                yield part

        def close(self) -> None:
            if isinstance(self._stream, httpx2.SyncByteStream):
                self._stream.close()

    class Transport(httpx2.HTTPTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            ends = time.monotonic() + config.timeout_seconds
            response = super().handle_request(request)
            assert isinstance(response.stream, httpx2.SyncByteStream)
            response.stream = Bounded(response.stream, ends)
            return response

    return Transport(limits=httpx2.Limits(max_connections=config.max_concurrency))


def check_access(config: EndpointConfig) -> str:
    """Return the endpoint's key, empty where none is needed.

    Raises:
        UserError: the package `openai` is missing, or address or key will not do.
    """
    local = check_address(config)
    key = os.environ.get(config.key_variable, "").strip()
    if not key and not local:
        raise UserError(
            doing=f"calling the model {config.model!r} at {config.base_url}",
            got=f"no environment variable {config.key_variable}",
            expected="the endpoint's key in it",
            remedy=f"export {config.key_variable}, or name another variable in key_variable",
        )
    if not _has_package():
        raise UserError(
            doing="calling an OpenAI-compatible endpoint",
            got="no package `openai`",
            expected="the optional extra `openai`",
            remedy="run: python -m pip install -e '.[openai]'",
        )
    return key


def _has_package() -> bool:
    try:
        return importlib.util.find_spec("openai") is not None
    except ValueError:  # somebody has put a stand-in without a spec among the modules
        return False


def check_address(config: EndpointPlace) -> bool:
    """Return whether the endpoint is on this machine; refuse addresses that leak.

    Raises:
        UserError: plain http to another machine; a name, key, query or fragment in the address.
    """
    parts = urlsplit(config.base_url)
    local = is_loopback(parts.hostname or "")
    fits = parts.scheme == "https" or (
        parts.scheme == "http" and (local or config.allow_plain_http)
    )
    more = parts.query or parts.fragment  # where some providers have their key
    if not fits or not parts.hostname or parts.username is not None or more:
        shown = f"base_url {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise UserError(
            doing="reading the address of an OpenAI-compatible endpoint",
            got=f"{shown} and a query or fragment, which is not shown" if more else shown,
            expected="https, or http on this machine, and no name or key in the address, nor a "
            "query",
            remedy="use https, or set allow_plain_http if the network between is yours; the key "
            "goes into the environment variable that key_variable names",
        )
    return local


def is_loopback(host: str) -> bool:
    """Say whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
