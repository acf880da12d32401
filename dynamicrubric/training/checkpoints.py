"""Checkpoints of a training: which one to go on from, and when one is whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from dynamicrubric.durable import sync
from dynamicrubric.training import processes
from dynamicrubric.training.steplog import StepLog, check_weights

_COMPLETE_MARK: Final = "complete.json"


def resume_point(checkpoints: Path, log: StepLog, total: int) -> Path | None:
    """Return the checkpoint to go on from; the first process finds it and puts the log right."""
    checkpoint = None
    if processes.is_first():
        checkpoint = last_complete_checkpoint(checkpoints, log.whole_until())
        start = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
        log.keep_until(start)
        if checkpoint:
            print(f"resuming at step {start} of {total} from {checkpoint.name}", flush=True)
    return processes.from_first(checkpoint)


def last_complete_checkpoint(directory: Path, logged: int) -> Path | None:
    """Return the newest checkpoint to go on from, and remove those that are none.

    Args:
        directory: where the checkpoints are.
        logged: last step up to which the log is whole; nothing could be published from a later one.
    """
    found: list[tuple[int, Path]] = []
    for path in directory.glob("checkpoint-*"):
        step = int(path.name.rpartition("-")[2])
        if (path / _COMPLETE_MARK).is_file() and step <= logged:
            found.append((step, path))
        else:
            shutil.rmtree(path)
    return max(found)[1] if found else None


class CheckpointCallback(TrainerCallback):
    """Marks a checkpoint as complete: its weights are sound, and it and its log are on disk."""

    def __init__(self, log: StepLog) -> None:
        self._log = log

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,  # noqa: ANN401 - transformers' signature
    ) -> None:
        """Write the mark after the checkpoint's files and the log have been synced."""
        check_weights(state.global_step, kwargs["model"])
        processes.wait_for_all()  # each has written the state of its random numbers
        if not state.is_world_process_zero:
            return
        folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        for path in (*folder.rglob("*"), folder, folder.parent):
            sync(path)
        self._log.sync()
        mark = folder / _COMPLETE_MARK
        mark.write_text(json.dumps({"step": state.global_step}))
        sync(mark)
