"""When the next call to an endpoint may start, and what the calls have cost."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any


@dataclass(frozen=True)
class Cost:
    """What calls took.

    Attributes:
        calls: HTTP requests, retries included.
        answered: calls that came back with an answer.
        prompt_tokens: as the endpoint counts them.
        completion_tokens: likewise, thinking included.
        without_count: answers that had no token count.
        seconds: summed over calls; calls at the same time count each.
    """

    calls: int = 0
    answered: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    without_count: int = 0
    seconds: float = 0.0


class CostMeter:
    """Adds up the cost of calls from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = Cost()

    def add(self, seconds: float, answer: Mapping[str, Any] | None) -> None:
        """Count one call; `answer` is None if there was none."""
        usage = answer.get("usage") if answer is not None else None
        tokens = [
            _count(usage.get(name)) if isinstance(usage, Mapping) else None
            for name in ("prompt_tokens", "completion_tokens")
        ]
        with self._lock:
            total = self._total
            self._total = Cost(
                total.calls + 1,
                total.answered + (answer is not None),
                total.prompt_tokens + (tokens[0] or 0),
                total.completion_tokens + (tokens[1] or 0),
                total.without_count + (answer is not None and None in tokens),
                total.seconds + seconds,
            )

    def total(self) -> Cost:
        """Return the sum so far."""
        with self._lock:
            return self._total


class Pacer:
    """Spaces the starts of calls evenly, and holds all of them when the endpoint says so."""

    def __init__(self, per_minute: float, now: Callable[[], float] = time.monotonic) -> None:
        """Allow `per_minute` starts; 0 sets no limit."""
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._now = now
        self._next = -math.inf
        self._lock = threading.Lock()

    def seconds_to_turn(self) -> float:
        """Take the next place; return the seconds until then."""
        with self._lock:
            now = self._now()
            turn = max(now, self._next)
            self._next = max(turn + self._gap, self._next)
            return turn - now

    def hold(self, seconds: float) -> None:
        """Let no call start for so many seconds."""
        with self._lock:
            self._next = max(self._next, self._now() + seconds)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read how many seconds an endpoint asks to wait; None if it does not say.

    Both forms of Retry-After (RFC 9110, section 10.2.3), a number of seconds and a date, and the
    milliseconds of `retry-after-ms`.
    """
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name) or "") / divisor
        except ValueError:
            continue
        return seconds if math.isfinite(seconds) and seconds >= 0.0 else None
    try:
        date = parsedate_to_datetime(headers.get("retry-after") or "")
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None
