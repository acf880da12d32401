"""Names of what is on the hub: `hub:owner/name[@revision]`, or a folder in the hub's layout."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynamicrubric.errors import UserError

HUB: Final = "hub:"
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_REVISION: Final = re.compile(r"\w(?:[\w.+/-]{0,198}\w)?")
_FORM: Final = f"{HUB}owner/name, {HUB}owner/name@revision, or {HUB} and a folder that is there"


@dataclass(frozen=True)
class HubName:
    """A repository of the hub, or a folder that holds one.

    Attributes:
        repository: owner/name, or the folder's path.
        revision: a branch, a tag or a commit; None is the newest.
    """

    repository: str
    revision: str | None = None

    @property
    def folder(self) -> Path | None:
        """The folder, if it is one and no repository of the hub."""
        path = Path(self.repository)
        return path if path.is_dir() else None

    def __str__(self) -> str:
        """Return the name as params.yaml has it."""
        return f"{HUB}{self.repository}" + (f"@{self.revision}" if self.revision else "")


def parse_hub_name(text: str) -> HubName:
    """Read a name; `hub:` before it may be left out.

    Raises:
        UserError: it is the name of no repository and no folder, or its revision is none.

    >>> parse_hub_name("hub:owner/name@v1")
    HubName(repository='owner/name', revision='v1')
    """
    name = text.removeprefix(HUB)
    if name and Path(name).is_dir():
        return HubName(name)
    repository, at, revision = name.rpartition("@") if "@" in name else (name, "", "")
    if at and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise UserError(
            doing=f"reading the name {text!r}",
            got=f"the revision {revision!r}",
            expected="a branch, a tag or a commit",
            remedy=f"write {_FORM}",
        )
    if not repository or not Path(repository).is_dir():
        check_repository(repository)
    return HubName(repository, revision or None)


def check_repository(name: str) -> None:
    """Refuse what is no repository's name; nobody is asked whether there is one.

    Raises:
        UserError: says what is wrong with it.
    """
    # Imported here: whoever names no repository shall not wait for it.
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
        found = "" if name.count("/") == 1 else "no owner"
    except HFValidationError as error:
        found = str(error).partition(":")[0]
    if found:
        raise UserError(
            doing="reading the name of a repository of the hub",
            got=f"{name!r} ({found})",
            expected="owner/name, of letters, digits and - _ .",
            remedy=f"write {_FORM}",
        )
