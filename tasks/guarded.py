"""Run a command that ends with its parent: `python -m tasks.guarded PARENT_PID COMMAND ...`.

The kernel's parent-death signal survives the exec, so a server or a DVC run that we start is ended
even when we are killed outright. The command finds its own pid in its environment and hands it
down, so that what it starts can tell whether it is still there.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from tasks.process import die_with_parent

GUARDED_PID: Final = "DYNAMICRUBRIC_GUARDED_PID"


def guarded_command(command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` guarded by this process."""
    return [sys.executable, "-m", "tasks.guarded", str(os.getpid()), *command]


def main(arguments: Sequence[str]) -> None:
    """Arm the parent-death signal and become the command."""
    die_with_parent(int(arguments[0]))
    # A script's background job ignores Ctrl-C, and Prefect's worker ends by nothing else.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ[GUARDED_PID] = str(os.getpid())  # the command's as well: exec keeps it
    os.execvp(arguments[1], list(arguments[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
