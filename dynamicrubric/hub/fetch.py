"""Gets a checkpoint's files at one commit: from the hub, its cache, or a folder in its layout."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dynamicrubric.errors import UserError
from dynamicrubric.hub.client import client, hub_errors
from dynamicrubric.hub.names import COMMIT, HubName
from dynamicrubric.yamlio import parse_yaml

CARD: Final = "README.md"
_NEWEST: Final = "main"
_SNAPSHOTS: Final = "snapshots"
_METADATA: Final = re.compile(r"---\r?\n(.*?)\r?\n---\s*(?:\n|$)", re.DOTALL)


@dataclass(frozen=True)
class Fetched:
    """Files of one repository at one commit.

    Attributes:
        folder: where they are.
        commit: the commit's hash; None for a folder that does not say.
        license: as the repository's card states it; None if it does not.
    """

    folder: Path
    commit: str | None
    license: str | None


def fetch(name: HubName, patterns: Sequence[str]) -> Fetched:
    """Get the files of a repository's top folder, at the commit that its revision names now.

    Without a network, or with HF_HUB_OFFLINE, what the hub's cache has of it will do.

    Args:
        name: a repository, or a folder: the hub's cache of one, or just its files.
        patterns: names of the files, with * for anything.

    Raises:
        UserError: it cannot be had.
    """
    folder = _snapshot(name, name.folder) if name.folder else _download(name, patterns)
    commit = folder.name if COMMIT.fullmatch(folder.name) else None
    return Fetched(folder, commit, license_of(folder))


def license_of(folder: Path) -> str | None:
    """Return the licence that the card in a folder states, None without one."""
    license_id = card_metadata(folder).get("license")
    if license_id == "other":
        license_id = card_metadata(folder).get("license_name") or license_id
    return license_id if isinstance(license_id, str) else None


def card_metadata(folder: Path) -> Mapping[str, Any]:
    """Return the metadata of the card in a folder; nothing if there is none that can be read."""
    card = folder / CARD
    if not card.is_file():
        return {}
    found = _METADATA.match(card.read_text(encoding="utf-8-sig", errors="replace"))
    try:
        return parse_yaml(found[1], str(card)) if found else {}
    except UserError:  # somebody else's text: without it nothing is known, and that is all
        return {}


def _download(name: HubName, patterns: Sequence[str]) -> Path:
    doing = f"getting {name} from the hub"
    api = client()
    with hub_errors(doing, "check the name and the network, or download it and name its folder"):
        found = api.snapshot_download(
            name.repository,
            revision=name.revision,
            allow_patterns=[*patterns, CARD],
            ignore_patterns=["*/*"],  # a pattern's * goes into folders
        )
    return Path(found)


def _snapshot(name: HubName, folder: Path) -> Path:
    """Return the folder itself, or the snapshot that a cache's folder holds of a revision."""
    if not (folder / _SNAPSHOTS).is_dir():
        return folder
    ref = folder / "refs" / (name.revision or _NEWEST)
    commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else name.revision
    found = folder / _SNAPSHOTS / (commit or "")
    if commit is None or not found.is_dir():
        raise UserError(
            doing=f"looking for {name}",
            got=f"no snapshot of {name.revision or _NEWEST}",
            expected=", ".join(sorted(p.name for p in found.parent.iterdir())) or "a snapshot",
            remedy="name a revision that is there",
        )
    return found
