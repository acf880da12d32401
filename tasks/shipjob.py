"""Shipping a round in a fork of the study's shared host, so that no cell imports MLflow itself.

Importing it takes longer than the shipping. Without a shared host it is done right here.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Final

from dynamicrubric.errors import InstrumentError
from tasks.gpu import StepCrashed, StepTimedOut, launch
from tasks.sharedhost import is_shared
from tasks.shipping import ship_round
from tasks.study import TRACKER_PRELOAD, Study
from tasks.tracking import TrackingOutcome

TARGET: Final = "tasks.shipjob:ship_and_tell"
DEADLINE_SECONDS: Final = 600.0
NUM_SHIPMENTS: Final = 64
"""Shipments that may run at once; they need no GPU, and a lock of their own lets one write."""


def ship(study: Study, key: str) -> TrackingOutcome:
    """Ship a finished cell: `tasks.shipping.ship_round`, by a fork if there is a shared host.

    Raises:
        UserError: as `ship_round`. A fork that ends otherwise, or is too late, is tracking trouble.
    """
    if not is_shared():
        return ship_round(study.plan, key, study.root, study.config)
    with tempfile.TemporaryDirectory() as folder:
        reply = Path(folder) / "outcome.json"
        try:
            _launch(study, key, reply)
        except (StepTimedOut, StepCrashed, InstrumentError) as error:
            return TrackingOutcome(ok=False, reason=" ".join(str(error).split())[:500])
        found = json.loads(reply.read_text(encoding="utf-8"))
    return TrackingOutcome(found["ok"], found["reason"], tuple(found["run_ids"]))


def _launch(study: Study, key: str, reply: Path) -> None:
    launch(
        TARGET,
        {"root": str(study.root), "key": key, "reply": str(reply)},
        log_path=study.log_path(key, "track_round"),
        deadline_seconds=DEADLINE_SECONDS,
        slots_dir=study.work / "locks" / "shipments",
        num_slots=NUM_SHIPMENTS,
        what=f"track_round of {key}",
        threads=study.config.runtime.threads_per_task,
        preload=TRACKER_PRELOAD,
    )


def ship_and_tell(root: str, key: str, reply: str) -> None:
    """Do the shipping and write its outcome to the file `reply`: a job of `launch`."""
    study = Study(Path(root))
    outcome = ship_round(study.plan, key, study.root, study.config)
    Path(reply).write_text(json.dumps(asdict(outcome)), encoding="utf-8")
