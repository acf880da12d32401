"""What a Prefect server that we did not start is asked before it is used.

Imports nothing of Prefect, as `flows.services`.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from typing import Final

from dynamicrubric.errors import UserError

ANSWER_SECONDS: Final = 30.0  # a server on a machine full of trainings is slow, not away


def check_answers(address: str) -> None:
    """Refuse a server that is not there; Prefect itself would show a trace of its network library.

    Raises:
        UserError: names the address and what came.
    """
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=ANSWER_SECONDS) as reply:
            got = None if reply.read(5).strip() == b"true" else "an answer that is not Prefect's"
    except urllib.error.HTTPError as error:
        # Prefect Cloud has no such page for a workspace, and a proxy may ask who we are first:
        # somebody is there, and what Prefect is told then is said by Prefect.
        got = None if error.code in (401, 403, 404) else f"HTTP {error.code} {error.reason}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        # Which certificates to trust is a setting of Prefect's.
        got = None if isinstance(reason, ssl.SSLError) else str(reason) or type(reason).__name__
    if got is not None:
        raise UserError(
            doing=f"asking the Prefect server that PREFECT_API_URL names, {address}",
            got=got,
            expected="a server that answers, by its API's address (it ends in /api)",
            remedy="start that server or mend the address; unset PREFECT_API_URL and the command "
            "starts a server of its own",
        )


def has_schedules(address: str) -> bool:
    """Return whether a server makes the runs of schedules; one that a study started does not.

    Raises:
        OSError: it does not answer.
    """
    with urllib.request.urlopen(f"{address}/admin/settings", timeout=ANSWER_SECONDS) as reply:
        return bool(json.load(reply)["server"]["services"]["scheduler"]["enabled"])


def check_schedules(address: str) -> None:
    """Refuse a study's server for a worker: each would wait for the other to end.

    Raises:
        UserError: the server makes no runs of schedules.
    """
    if not has_schedules(address):
        raise UserError(
            doing="starting a worker for Prefect",
            got=f"the server of a running study, {address}, which has no schedules",
            expected="a server with schedules, or none in this project",
            remedy="run the same command again when the study has ended; a worker (or `make ui`) "
            "that is there first runs beside studies",
        )
