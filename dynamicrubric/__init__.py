"""DynamicRubric: rubric generators and policies that are trained against each other.

Importing this package is cheap: heavy libraries are imported only by `dynamicrubric.engines` and
`dynamicrubric.training`.
"""

from __future__ import annotations

from importlib import metadata

try:
    __version__ = metadata.version("dynamicrubric")
except metadata.PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0.0.0+unknown"

__all__ = ["__version__"]
