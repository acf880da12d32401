"""What both kinds of card are put together from: settings, and where the content came from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any

from dynamicrubric.artefact import Record


def settings_block(identity: Mapping[str, Any]) -> str:
    """Return what a step was asked for as JSON; of paths of a machine only the last part."""
    return json.dumps(without_paths(identity), indent=2, sort_keys=True, ensure_ascii=True)


def without_paths(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Copy a JSON value with every absolute path cut to its last part.

    >>> without_paths({"anchors": ["/home/me/rows.jsonl", "data/raw"]})
    {'anchors': ['rows.jsonl', 'data/raw']}
    """
    if isinstance(value, Mapping):
        return {key: without_paths(below) for key, below in value.items()}
    if isinstance(value, str):
        return _last_part(value)
    if isinstance(value, Sequence):
        return [without_paths(below) for below in value]
    return value


def _last_part(text: str) -> str:
    before, hub, name = text.rpartition("hub:") if text.startswith("hub:") else ("", "", text)
    path: PurePath = Path(name)
    if not (path.is_absolute() or name.startswith("~")):
        path = PureWindowsPath(name)
        if not path.is_absolute():
            return text
    return before + hub + path.name


def provenance_list(record: Record) -> str:
    """Return where an artefact came from: commit, packages, hashes."""
    about: Mapping[str, Any] = record.provenance
    packages = about.get("packages", {})
    lines = {
        "commit": f"`{about.get('git_commit') or 'not known'}`",
        "made": f"{about.get('created', 'not known')}, in {about.get('seconds', '?')} s",
        "step": f"`{record.step}`, version {record.step_version}",
        "identity": f"`{record.identity_hash}`",
        "content": f"`{record.content_hash}`",
        "packages": ", ".join(f"{name} {number}" for name, number in sorted(packages.items())),
    }
    return "\n".join(f"- {name}: {value}" for name, value in lines.items())
