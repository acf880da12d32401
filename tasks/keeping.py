"""What `dvc pull` brought is kept where steps look, before DVC empties the outs of a stage.

Without it, a clone that pulls a finished study and changes how rounds are evaluated would train
them all again: evaluation and training are one DVC stage.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from dynamicrubric.errors import UserError
from tasks.record import keep

PATTERNS: Final = ("prepared", "warm/*", "runs/*/*", "grid/*", "audit/*", "probes/*")
logger = logging.getLogger(__name__)


def keep_artefacts(root: Path, work_root: Path) -> int:
    """Link every artefact under data into its work folder; return how many were not there yet.

    An artefact that is damaged or half there is passed over: the step that reads it names it.

    Args:
        root: the project's folder.
        work_root: where steps work.
    """
    number = 0
    for pattern in PATTERNS:
        for path in sorted((root / "data").glob(f"{pattern}/record.json")):
            if path.parent.name.startswith("."):  # half published
                continue
            try:
                number += keep(path.parent, work_root)
            except (UserError, OSError) as error:
                logger.info("%s is not kept: %s", path.parent, error)
    return number
