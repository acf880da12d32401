"""DynamicRubric: rubric generators and policies that are trained against each other.

Importing this package is cheap: heavy libraries are imported only by `dynamicrubric.engines` and
`dynamicrubric.training`.
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynamicrubric.doors.reward import GroupRubricReward as GroupRubricReward

try:
    __version__ = metadata.version("dynamicrubric")
except metadata.PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0.0.0+unknown"

__all__ = ["GroupRubricReward", "__version__"]


def __getattr__(name: str) -> object:
    """Import what is at the top for a shorter name, when it is asked for."""
    if name == "GroupRubricReward":
        from dynamicrubric.doors.reward import GroupRubricReward

        return GroupRubricReward
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
