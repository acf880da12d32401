"""What the server takes: who may ask, how much, how many at a time, and for how long."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from dynamicrubric.engines.access import is_loopback
from dynamicrubric.errors import UserError

KEY_VARIABLE: Final = "DYNAMICRUBRIC_API_KEY"
MIN_KEY_CHARS: Final = 16


@dataclass(frozen=True)
class Limits:
    """Limits of the server.

    Attributes:
        max_requests: requests at a time, waiting and being scored; more get 429.
        max_responses: responses of a set.
        max_request_sets: sets of a request that may have several (OpenRLHF's).
        max_chars: characters of the prompt, and of each response.
        max_body_bytes: of a request.
        body_seconds: longest time that a request may take to come in.
        request_seconds: longest time from there to the answer.
        grace_seconds: how long running requests may go on after the server is told to stop.
    """

    max_requests: int = 64
    max_responses: int = 64
    max_request_sets: int = 4096
    max_chars: int = 200_000
    max_body_bytes: int = 16 * 2**20
    body_seconds: float = 30.0
    request_seconds: float = 600.0
    grace_seconds: float = 30.0


def key_for(host: str) -> str | None:
    """Return the key that callers have to send; None where none is needed.

    Raises:
        UserError: the server would be open to other machines without one, or it is a poor one.
    """
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if key and (len(key) < MIN_KEY_CHARS or not key.isascii() or " " in key):
        raise UserError(
            doing=f"reading the key in {KEY_VARIABLE}",
            got="one that is short, or has characters that no header can carry",
            expected=f"at least {MIN_KEY_CHARS} ASCII characters without a space",
            remedy='make one: python -c "import secrets; print(secrets.token_urlsafe(32))"',
        )
    if not key and not is_loopback(host):
        raise UserError(
            doing=f"serving on {host}, where other machines can reach it",
            got=f"no environment variable {KEY_VARIABLE}",
            expected="the key in it that callers have to send",
            remedy=f"export {KEY_VARIABLE}, or serve on 127.0.0.1",
        )
    return key or None
