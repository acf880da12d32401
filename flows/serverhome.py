"""One Prefect server a home: two on one SQLite file get in each other's way.

Whoever runs a server holds `server.lock` in its home, and the lock's lease says where it listens.
A command that finds one running uses that one, and holds `users.lock` with others meanwhile: the
server goes on until they have ended, so that Ctrl-C in `make ui` does not end a study.
"""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynamicrubric.errors import UserError
from tasks.locks import describe_holder, read_lease, try_exclusive

logger = logging.getLogger(__name__)

_WHAT: Final = "the Prefect server "
_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Place:
    """Where a Prefect server is.

    Attributes:
        address: the API's address.
        ours: it is for us to run the server.
    """

    address: str
    ours: bool


@dataclass(frozen=True)
class HomePlace(Place):
    """The place of a home's server.

    Attributes:
        home: Prefect's home.
        stack: what is held until the body ends.
    """

    home: Path
    stack: ExitStack

    def wait_for_users(self) -> None:
        """Return when no other command uses our server; none can begin to after that."""
        if not _try_users(self.home, fcntl.LOCK_EX, self.stack):
            print("Other commands use the Prefect server: it ends with the last of them.")
            print("(Ctrl-C ends it now, and they fail.)", flush=True)
            while not _try_users(self.home, fcntl.LOCK_EX, self.stack):
                time.sleep(_POLL_SECONDS)


@contextmanager
def server_place(
    home: Path,
    address: str,
    answers: Callable[[str], bool],
    *,
    watch: bool = False,
    seconds: float = 180.0,
) -> Iterator[HomePlace]:
    """Take the place of a home's server for the body, or join the server that is running.

    Args:
        home: Prefect's home.
        address: where our server is going to listen, if it is for us to run it.
        answers: says whether a server at an address is up.
        watch: a server that we join need not wait for us.
        seconds: how long a server that is starting has to answer.

    Raises:
        UserError: another process holds the place and its server does not answer.
    """
    lock = home / "server.lock"
    give_up = time.monotonic() + seconds
    with ExitStack() as stack:
        while True:
            held = try_exclusive(lock, _WHAT + address)
            if held is not None:
                stack.enter_context(held)
                place = HomePlace(address, True, home, stack)
                break
            found = _address_in(lock)
            if found and answers(found) and _join(home, found, stack, watch=watch):
                logger.info("using %s", describe_holder(lock))
                place = HomePlace(found, False, home, stack)
                break
            if time.monotonic() > give_up:
                raise UserError(
                    doing="starting the Prefect server",
                    got=f"{describe_holder(lock)}, which does not answer",
                    expected=f"no other in {home}, or one that answers",
                    remedy="end that process, then run the same command again",
                )
            time.sleep(_POLL_SECONDS)
        yield place


def _address_in(lock: Path) -> str | None:
    lease = read_lease(lock)
    return lease.what.removeprefix(_WHAT) if lease is not None else None


def _join(home: Path, address: str, stack: ExitStack, *, watch: bool) -> bool:
    """Have the server at `address` wait for us; False if it is ending."""
    if watch:
        return True
    with ExitStack() as attempt:
        if not _try_users(home, fcntl.LOCK_SH, attempt):
            return False
        if _address_in(home / "server.lock") != address:
            return False
        stack.push(attempt.pop_all())
        return True


def _try_users(home: Path, kind: int, stack: ExitStack) -> bool:
    """Hold `users.lock` until `stack` closes; False if its other holders forbid it."""
    with ExitStack() as attempt:
        stream = attempt.enter_context((home / "users.lock").open("ab"))
        try:
            fcntl.flock(stream, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        stack.push(attempt.pop_all())
        return True
