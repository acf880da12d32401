"""Run a command that ends with its parent: `python -m tasks.guarded PARENT_PID COMMAND ...`.

The kernel's parent-death signal survives the exec, so a server or a DVC run that we start is ended
even when we are killed outright.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tasks.process import die_with_parent


def guarded_command(command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` guarded by this process."""
    return [sys.executable, "-m", "tasks.guarded", str(os.getpid()), *command]


def main(arguments: Sequence[str]) -> None:
    """Arm the parent-death signal and become the command."""
    die_with_parent(int(arguments[0]))
    os.execvp(arguments[1], list(arguments[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
