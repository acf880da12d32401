"""The hub's client: whose token it has, where it sends it, and what its errors mean to a person.

The token is that of the environment variable HF_TOKEN and no other; it is in no message.
HF_ENDPOINT may name another hub; plain http is for loopback.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from dynamicrubric import __version__
from dynamicrubric.engines.access import is_loopback
from dynamicrubric.errors import DynamicRubricError, UserError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

TOKEN: Final = "HF_TOKEN"
ENDPOINT: Final = "HF_ENDPOINT"
_LONGEST: Final = 300
"""Letters of an error's own words that are shown."""


def token() -> str | None:
    """Return the token of HF_TOKEN; None without one, whatever is stored on this machine."""
    return os.environ.get(TOKEN, "").strip() or None


def client() -> HfApi:
    """Return a client that has the token of HF_TOKEN, or none at all.

    Raises:
        UserError: HF_ENDPOINT would send it in the clear to another machine.
    """
    from huggingface_hub import HfApi

    check_endpoint()
    # False, not None: with None the client would take a token that is stored on this machine.
    return HfApi(token=token() or False, library_name="dynamicrubric", library_version=__version__)


def check_endpoint() -> None:
    """Refuse an HF_ENDPOINT to which a token would go in the clear.

    Raises:
        UserError: plain http to another machine.
    """
    from huggingface_hub import constants

    parts = urlsplit(constants.ENDPOINT)
    local = is_loopback(parts.hostname or "")
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise UserError(
            doing=f"reading {ENDPOINT}",
            got=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
            expected="https, or http on this machine",
            remedy=f"set {ENDPOINT} to an address with https, or unset it",
        )


def require_token(doing: str) -> None:
    """Refuse to go on without a token.

    Raises:
        UserError: HF_TOKEN is not set.
    """
    if token() is None:
        raise UserError(
            doing=doing,
            got=f"no environment variable {TOKEN}",
            expected="a token that may write to the repository",
            remedy=f"export {TOKEN}, or use --dry-run",
        )


@contextmanager
def hub_errors(doing: str, remedy: str) -> Iterator[None]:
    """Turn what the client raises into one sentence.

    Args:
        doing: what was being done, as a phrase.
        remedy: what to do if the error is none of those that say it themselves.
    """
    from httpx2 import HTTPError, InvalidURL
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
        RevisionResolutionError,
    )

    known = (HTTPError, InvalidURL, EntryNotFoundError, RevisionResolutionError)
    try:
        yield
    except DynamicRubricError:
        raise
    except OfflineModeIsEnabled:
        got, remedy = "HF_HUB_OFFLINE, which forbids it", "unset HF_HUB_OFFLINE"
    except GatedRepoError:
        got, remedy = "a gated repository", f"ask for access on its page, and export {TOKEN}"
    except RepositoryNotFoundError:
        got = "no such repository, or one that this token may not see"
        remedy = f"check the name, and export {TOKEN} if it is private"
    except RevisionNotFoundError:
        got, remedy = "no such revision", "name a branch, a tag or a commit that is there"
    except (*known, OSError, ValueError, RuntimeError) as error:
        got = _words(error)
    else:
        return
    raise UserError(doing=doing, got=got, remedy=remedy) from None


def _words(error: BaseException) -> str:
    """Return an error's own words on one line, without the token."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    secret = token()
    return (text.replace(secret, "***") if secret else text)[:_LONGEST]
