"""Telling the tracker of a round in a fork of the study's shared host: no cell imports MLflow.

Importing it takes longer than the shipping. Without a shared host it is done right here.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final, Literal

from dynamicrubric.errors import DynamicRubricError, InstrumentError
from dynamicrubric.plan import Cell
from dynamicrubric.report.cellfiles import find_cell
from tasks.gpu import StepCrashed, StepTimedOut, launch
from tasks.sharedhost import is_shared
from tasks.shipping import close_round, open_round, ship_round
from tasks.study import TRACKER_PRELOAD, Study
from tasks.tracking import TrackingOutcome

logger = logging.getLogger(__name__)

Act = Literal["open", "close", "ship"]
TARGET: Final = "tasks.shipjob:act_and_tell"
DEADLINE_SECONDS: Final = 600.0
NUM_SHIPMENTS: Final = 64
"""Shipments that may run at once; they need no GPU, and a lock of their own lets one write."""


def ship(study: Study, key: str) -> TrackingOutcome:
    """Ship a finished cell: `tasks.shipping.ship_round`, by a fork if there is a shared host.

    Raises:
        UserError: as `ship_round`. A fork that ends otherwise, or is too late, is tracking trouble.
    """
    return _tell_tracker(study, key, "ship", "")


@contextmanager
def shown_running(study: Study, cell: Cell) -> Iterator[None]:
    """Show a round as RUNNING in the tracker while the body runs, and as FAILED if it raises.

    A finished round is left as it is: nothing of it will be made again.
    """
    if find_cell(study.root, cell) is not None:
        yield
        return
    _tell_tracker(study, cell.key, "open", "")
    try:
        yield
    except BaseException as error:
        reason = str(error) if isinstance(error, DynamicRubricError) else repr(error)
        with suppress(DynamicRubricError):  # the first error is the one to report
            _tell_tracker(study, cell.key, "close", " ".join(reason.split())[:500])
        raise


def _tell_tracker(study: Study, key: str, act: Act, reason: str) -> TrackingOutcome:
    if not is_shared():
        return _act(study, key, act, reason, os.getpid())
    with tempfile.TemporaryDirectory() as folder:
        reply = Path(folder) / "outcome.json"
        arguments = {"root": str(study.root), "key": key, "act": act, "reason": reason}
        try:
            _launch(study, key, arguments | {"owner": os.getpid(), "reply": str(reply)})
        except (StepTimedOut, StepCrashed, InstrumentError) as error:
            trouble = " ".join(str(error).split())[:500]
            logger.warning("%s of %s in the tracker: %s", act, key, trouble)
            return TrackingOutcome(ok=False, reason=trouble)
        found = json.loads(reply.read_text(encoding="utf-8"))
    return TrackingOutcome(found["ok"], found["reason"], tuple(found["run_ids"]))


def _launch(study: Study, key: str, arguments: Mapping[str, str | int]) -> None:
    launch(
        TARGET,
        arguments,
        log_path=study.log_path(key, "track_round"),
        deadline_seconds=DEADLINE_SECONDS,
        slots_dir=study.work / "locks" / "shipments",
        num_slots=NUM_SHIPMENTS,
        what=f"track_round of {key}",
        threads=study.config.runtime.threads_per_task,
        preload=TRACKER_PRELOAD,
    )


def act_and_tell(root: str, key: str, act: Act, reason: str, owner: int, reply: str) -> None:
    """Do it and write its outcome to the file `reply`: a job of `launch`."""
    outcome = _act(Study(Path(root)), key, act, reason, owner)
    Path(reply).write_text(json.dumps(asdict(outcome)), encoding="utf-8")


def _act(study: Study, key: str, act: Act, reason: str, owner: int) -> TrackingOutcome:
    if act == "open":
        return open_round(study.plan, key, study.root, study.config, owner=owner)
    if act == "close":
        return close_round(study.plan, key, study.root, reason=reason)
    return ship_round(study.plan, key, study.root, study.config)
