"""Where an artefact came from: for people to read, never part of a hash."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import Final

from dynamicrubric.commit import git_commit

_PACKAGES: Final = (
    "dynamicrubric",
    "accelerate",
    "numpy",
    "pyarrow",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
    "trl",
    "vllm",
)


def provenance(seconds: float) -> dict[str, object]:
    """Return how long a build took, by which commit and packages, and when it ended (UTC)."""
    return {
        "seconds": round(seconds, 3),
        "git_commit": git_commit(),
        "packages": package_versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that results depend on."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
