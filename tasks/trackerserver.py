"""Where the tracking store is, and the web server that shows a local one. Needs no MLflow."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dynamicrubric.errors import UserError

FOLDER: Final = "work/mlflow"
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
ENVIRONMENT: Final[Mapping[str, str]] = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # 7 by default: four minutes until a call gives up
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Set before MLflow is imported, unless the user has set it."""


def default_uri(root: Path) -> str:
    """Return where runs go: MLFLOW_TRACKING_URI, or a SQLite file in the project's work folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or own_uri(root)


def tracker_page(root: Path) -> str | None:
    """Return where a tracking server shows its pages; None if the store is a local file.

    What an address says of a user and a password is left out.
    """
    parts = urlsplit(default_uri(root))
    if parts.scheme not in ("http", "https"):
        return None
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def own_uri(root: Path) -> str:
    """Return the address of the project's own store, a SQLite file."""
    return f"sqlite:///{(root / FOLDER / 'mlflow.db').resolve()}"


def ui_command(root: Path, *, host: str = "127.0.0.1", port: int = 5000) -> list[str]:
    """Return the command of a small web server for the store; run it with `ui_environment()`.

    Raises:
        UserError: the address is not loopback: this server asks nobody for a password. Or the store
            is a server's, which has pages of its own.
    """
    if (page := tracker_page(root)) is not None:
        raise UserError(
            doing="starting the MLflow page",
            got=f"the tracking server {page}",
            expected="a store in a file",
            remedy="look at that server's own pages",
        )
    if host not in LOOPBACK:
        raise UserError(
            doing="starting the MLflow page",
            got=f"the address {host}",
            expected="127.0.0.1: who reaches the page can change and delete runs",
            remedy="reach it from another machine through `ssh -L`",
        )
    return [
        sys.executable, "-m", "mlflow", "server",
        "--host", host, "--port", str(port), "--workers", "1",
        "--backend-store-uri", default_uri(root),
        "--default-artifact-root", (root / FOLDER / "artifacts").resolve().as_uri(),
    ]  # fmt: skip


def ui_environment() -> dict[str, str]:
    """Return the environment of `ui_command`: no job consumers (250 MB each), no telemetry."""
    return {**os.environ, **ENVIRONMENT, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
