"""Which stages have nothing to do, asked of DVC once for all of them.

`dvc repro -s` says so too, but it is a process a stage: most of a minute for a finished study.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from flows.stages import Stage
from tasks.guarded import guarded_command


def fresh_stages(root: Path, stages: Sequence[Stage]) -> frozenset[str]:
    """Return the stages that DVC would pass over, whatever happens to the others.

    Args:
        root: the project's folder, its plan as params.yaml wants it.
        stages: all stages, each after the ones it waits for.

    Returns:
        Their names; none if DVC cannot say, so that each stage's own run says why.
    """
    changed = _changed(root)
    return frozenset() if changed is None else unaffected(stages, changed)


def unaffected(stages: Sequence[Stage], changed: Collection[str]) -> frozenset[str]:
    """Return the stages that are not changed themselves and come after none that is.

    DVC compares a stage with the files as they are: what comes after a changed one may look up to
    date until that has run.
    """
    fresh: set[str] = set()
    for stage in stages:
        if stage.name not in changed and fresh.issuperset(stage.after):
            fresh.add(stage.name)
    return frozenset(fresh)


def _changed(root: Path) -> set[str] | None:
    """Return the stages whose command, dependencies, parameters or outs are not as in dvc.lock."""
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "status", "--json"]
    done = subprocess.run(
        guarded_command(command),
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "DVC_NO_ANALYTICS": "1"},
        check=False,
    )
    try:
        found = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        return None
    return set(found) if isinstance(found, dict) else None
