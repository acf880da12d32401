"""Calls to an OpenAI-compatible endpoint: retries, rate limit, concurrency, deadlines, cost.

What comes back is one of three things. A JSON object is an answer. A `BadReply` is one bad answer
to one request (too long, filtered, not JSON after all attempts): data, which its reader leaves
unscored. Everything else raises: an endpoint that is down or overloaded for longer than the
attempts last is a broken instrument, and a wrong key or model name is for a person to mend.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from dynamicrubric.engines.access import EndpointConfig, client_of
from dynamicrubric.engines.pacing import Cost, CostMeter, Pacer, retry_after
from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.verdicts import UnscoredReason

if TYPE_CHECKING:
    import openai

logger = logging.getLogger(__name__)

_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 30.0
_TRANSIENT: Final = frozenset({408, 409, 425, 429})
_TOO_LONG: Final = ("context_length", "context length", "max_model_len", "maximum model length")
_QUOTA: Final = "insufficient_quota"


@dataclass(frozen=True)
class BadReply:
    """One request without a usable answer: data, not an error.

    Attributes:
        reason: a short name that can be counted.
        detail: what the endpoint said.
    """

    reason: str
    detail: str = ""


class LogprobsRefused(Exception):
    """The endpoint does not give log-probabilities, or not so many."""


class Endpoint:
    """Calls one endpoint; may be used from several threads."""

    def __init__(
        self, config: EndpointConfig, *, pause: Callable[[float], object] | None = None
    ) -> None:
        """Check the address and the key, without a call.

        Args:
            config: the endpoint.
            pause: what waits so many seconds; by default a wait that another request's failure
                cuts short.

        Raises:
            UserError: the package `openai` is missing, or address or key will not do.
        """
        self.config = config
        self._pause = pause
        self._pacer = Pacer(config.requests_per_minute)
        self._meter = CostMeter()
        self._jitter = random.Random(0)  # spreads retries; no result depends on it
        self._client = client_of(config)

    @property
    def cost(self) -> Cost:
        """What all calls so far took."""
        return self._meter.total()

    @property
    def host(self) -> str:
        """Address without path, for messages."""
        return urlsplit(self.config.base_url).netloc

    def post_all(
        self,
        path: str,
        payloads: Sequence[Mapping[str, Any]],
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[dict[str, Any] | BadReply]:
        """Send requests, `max_concurrency` at a time; return the answers in order.

        The first error ends the others' retries, and nothing more is sent.

        Raises:
            InstrumentError: the endpoint is down.
            UserError: a setting is wrong.
            LogprobsRefused: the endpoint does not give the log-probabilities asked for.
        """
        stop, errors = threading.Event(), list[BaseException]()

        def send(payload: Mapping[str, Any]) -> dict[str, Any] | BadReply:
            try:
                return self.post(path, payload, stop)
            except BaseException as error:
                errors.append(error)
                stop.set()  # here: before we are awake, this thread would send the next one
                raise

        pool = ThreadPoolExecutor(self.config.max_concurrency, thread_name_prefix="endpoint")
        try:
            futures = [pool.submit(send, payload) for payload in payloads]
            if on_progress is not None:
                done = _Counter(len(futures), on_progress)
                for future in futures:
                    future.add_done_callback(done)
            wait(futures, return_when=FIRST_EXCEPTION)
            if errors:
                raise errors[0]
            return [future.result() for future in futures]
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def post(
        self, path: str, payload: Mapping[str, Any], stop: threading.Event | None = None
    ) -> dict[str, Any] | BadReply:
        """Send one request until there is an answer or the attempts are used up."""
        return self._call("POST", path, payload, stop or threading.Event())

    def get(self, path: str) -> dict[str, Any] | BadReply:
        """Ask for a resource."""
        return self._call("GET", path, None, threading.Event())

    def _call(
        self, method: str, path: str, payload: Mapping[str, Any] | None, stop: threading.Event
    ) -> dict[str, Any] | BadReply:
        started = time.monotonic()
        trouble: _Trouble | None = None
        for attempt in range(self.config.max_attempts):
            if trouble is not None:
                self._back_off(trouble, attempt, stop)
            self._wait(self._pacer.seconds_to_turn(), stop)
            if stop.is_set():
                break
            outcome = self._attempt(method, path, payload)
            if not isinstance(outcome, _Trouble):
                return outcome
            trouble = outcome
            logger.info("%s: %s (attempt %d)", self.host, trouble.what, attempt + 1)
        if trouble is not None and trouble.bad_reply is not None:
            return trouble.bad_reply
        raise InstrumentError(
            f"{self.host} gave no answer to {path}: {trouble.what if trouble else 'stopped'}, "
            f"after {self.config.max_attempts} attempts in {time.monotonic() - started:.0f} s. "
            "See whether the endpoint runs; the same command goes on from here."
        )

    def _back_off(self, trouble: _Trouble, attempt: int, stop: threading.Event) -> None:
        asked = trouble.retry_after
        if asked is not None and asked > self.config.max_wait_seconds:
            raise InstrumentError(
                f"{self.host} ({trouble.what}) asks to wait {asked:.0f} s, longer than "
                f"max_wait_seconds ({self.config.max_wait_seconds:.0f})"
            )
        backoff = min(_FIRST_DELAY * 2.0 ** (attempt - 1), _LONGEST_DELAY)
        backoff *= 1.0 - 0.25 * self._jitter.random()
        if asked is not None:
            self._pacer.hold(asked)  # what it tells one request holds for all of them
        self._wait(asked if asked is not None else backoff, stop)

    def _wait(self, seconds: float, stop: threading.Event) -> None:
        if seconds > 0.0:
            (self._pause or stop.wait)(seconds)

    def _attempt(
        self, method: str, path: str, payload: Mapping[str, Any] | None
    ) -> dict[str, Any] | BadReply | _Trouble:
        import httpx2
        import openai

        started = time.monotonic()
        body: dict[str, Any] | None = None
        try:
            if method == "GET":
                response = self._client.get(path, cast_to=httpx2.Response)
            else:
                response = self._client.post(path, cast_to=httpx2.Response, body=payload)
            body = _json_object(response.text)
        except openai.APITimeoutError:
            return _Trouble(f"no answer within {self.config.timeout_seconds:g} s")
        except openai.APIConnectionError as error:
            return _Trouble(f"no connection ({error.__cause__ or error})")
        except openai.APIStatusError as error:
            return self._judge_status(error)
        except UnicodeEncodeError as error:
            return BadReply("unencodable", str(error))
        finally:
            self._meter.add(time.monotonic() - started, body)
        if body is None or body.get("error"):  # some gateways send errors as HTTP 200
            cut = response.text[:200]
            return _Trouble(f"a malformed answer ({cut!r})", BadReply("malformed_reply", cut))
        return body

    def _judge_status(self, error: openai.APIStatusError) -> BadReply | _Trouble:
        """Sort an HTTP error into bad reply, trouble that may pass, or something to raise."""
        status, said = error.status_code, f"{error.message} {error.code or ''}"
        if status in _TRANSIENT or status >= 500:
            if error.code == _QUOTA:
                raise InstrumentError(f"{self.host}: the account's quota is used up ({said})")
            return _Trouble(f"HTTP {status}", None, retry_after(error.response.headers))
        if status in (400, 413, 422):
            if any(word in said.casefold() for word in _TOO_LONG) or status == 413:
                return BadReply(UnscoredReason.TOO_LONG, said)
            if "content_filter" in said:
                return BadReply("content_filter", said)
            if "logprob" in said.casefold():
                raise LogprobsRefused(said)
        raise UserError(
            doing=f"calling the model {self.config.model!r} at {self.host}",
            got=f"HTTP {status}, {error.message}",
            remedy=_REMEDIES.get(status, "change the endpoint's settings by what it says"),
        ) from None


@dataclass(frozen=True)
class _Trouble:
    """An attempt that failed in a way that may pass.

    Attributes:
        what: what happened.
        bad_reply: what the request comes to if no attempt goes better; None if the endpoint is
            then down.
        retry_after: seconds that the endpoint asks to wait.
    """

    what: str
    bad_reply: BadReply | None = None
    retry_after: float | None = None


_REMEDIES: Final = {
    401: "put the right key into the environment variable that key_variable names",
    403: "use a key that may call this model",
    404: "see what base_url and model have to be",
}


class _Counter:
    def __init__(self, total: int, tell: Callable[[int, int], None]) -> None:
        self._done, self._total, self._tell = 0, total, tell
        self._lock = threading.Lock()

    def __call__(self, _: object) -> None:
        with self._lock:
            self._done += 1
            self._tell(self._done, self._total)


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
