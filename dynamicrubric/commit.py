"""Which commit the running code is of."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git_commit() -> str | None:
    """Return this code's commit, `-dirty` appended if files differ; None outside a git checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except OSError:  # no git here, or not ours to run
        return None
    return done.stdout.strip() if done.returncode == 0 else None
