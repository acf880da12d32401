"""Sends a folder to a repository of the hub: one that is new or empty, or is to be updated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from dynamicrubric.errors import UserError
from dynamicrubric.hub.client import client, hub_errors, require_token
from dynamicrubric.hub.contents import PUSHED

if TYPE_CHECKING:
    from huggingface_hub import HfApi

Kind = Literal["model", "dataset"]
_NOT_CONTENT: Final = frozenset({".gitattributes"})
"""The hub puts it into every repository."""
_REPLACED: Final[dict[Kind, tuple[str, ...]]] = {
    "model": PUSHED,
    "dataset": ("*.jsonl", "*.csv"),
}
"""What an update removes if it is not pushed again: an old file beside new ones may be loaded."""


@dataclass(frozen=True)
class Pushed:
    """What was pushed.

    Attributes:
        url: of the commit.
        commit: its hash.
    """

    url: str
    commit: str


def push_folder(
    folder: Path, repository: str, kind: Kind, *, update: bool, private: bool, message: str
) -> Pushed:
    """Push every file of a folder.

    Args:
        folder: what is pushed, and nothing else.
        repository: owner/name; created if it is not there.
        kind: a repository of models or of data sets.
        update: change a repository that has content.
        private: of a repository that is created.
        message: the commit's.

    Raises:
        UserError: no token, content that is not to be updated, or the hub refuses.
    """
    doing = f"pushing to {repository}"
    require_token(doing)
    api = client()
    with hub_errors(doing, "check the name, the token's rights and the network"):
        head = _head(api, repository, kind, update)
        if head is None:
            api.create_repo(repository, repo_type=kind, private=private)
        found = api.upload_folder(
            repo_id=repository,
            repo_type=kind,
            folder_path=folder,
            commit_message=message,
            parent_commit=head or None,
            delete_patterns=list(_REPLACED[kind]) if update else None,
        )
    return Pushed(str(found.commit_url), str(found.oid))


def _head(api: HfApi, repository: str, kind: Kind, update: bool) -> str | None:
    """Return the commit that is there, "" for none, None without a repository.

    Raises:
        UserError: there is content, and it is not to be updated.
    """
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        ask = api.model_info if kind == "model" else api.dataset_info
        info = ask(repository)
    except RepositoryNotFoundError:
        return None
    names = sorted({one.rfilename for one in info.siblings or ()} - _NOT_CONTENT)
    if names and not update:
        raise UserError(
            doing=f"pushing to {repository}",
            got=f"a repository with {len(names)} files, such as {names[0]}",
            expected="a new or an empty one",
            remedy="name another, or replace what is in it with --update",
        )
    return info.sha or ""
