"""`dynamicrubric serve-reward`: an evaluator behind HTTP, on this machine unless told otherwise."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from dynamicrubric.doors.limits import Limits
    from dynamicrubric.doors.opening import EvaluatorOptions


def run_serve(
    host: str,
    port: int,
    options: EvaluatorOptions,
    limits: Limits,
    *,
    max_sets: int,
    window_seconds: float,
) -> None:
    """Serve an evaluator until the process is told to stop.

    Args:
        host: address to listen on.
        port: 0 takes any that is free.
        options: the evaluator.
        limits: what is taken.
        max_sets: most sets that are scored together.
        window_seconds: how long a batch waits for company.

    Raises:
        UserError: an option will not do, or a key is missing.
        OSError: the address is taken.
    """
    from dynamicrubric.doors.limits import key_for

    # uvicorn raises a signal once more when it has stopped: models are closed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    key = key_for(host)  # before a model is loaded
    from dynamicrubric.doors.binding import bound

    with bound(host, port) as listening:
        key_for(listening.getsockname()[0])  # a name may stand for any address
        _serve(listening, key, options, limits, max_sets=max_sets, window_seconds=window_seconds)


def _serve(
    listening: socket.socket,
    key: str | None,
    options: EvaluatorOptions,
    limits: Limits,
    *,
    max_sets: int,
    window_seconds: float,
) -> None:
    from dynamicrubric.doors.opening import open_evaluator

    with open_evaluator(options) as opened:
        from dynamicrubric.doors.server import make_app, serve

        app = make_app(
            opened.evaluator,
            limits=limits,
            key=key,
            max_sets=max_sets,
            window_seconds=window_seconds,
            prompt_ids=opened.prompt_ids,
        )
        serve(app, listening, limits.grace_seconds)
