"""Weights that a training keeps on its way, to be measured later: no optimizer, no resuming.

They lie in the step's work folder, outside the artefact and outside every out of DVC, and stay when
the step is finished (`tasks.record.SNAPSHOTS`). A folder is there whole or not at all.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from dynamicrubric.durable import sync
from dynamicrubric.engines.base import PromptTokenizer
from dynamicrubric.engines.models import save_checkpoint

SNAPSHOTS: Final = "snapshots"


class SnapshotCallback(TrainerCallback):
    """Keeps the weights every so many steps; the last ones are the artefact itself."""

    def __init__(self, tokenizer: PromptTokenizer, work_dir: Path, every_steps: int) -> None:
        self._tokenizer = tokenizer
        self._folder = work_dir / SNAPSHOTS
        self._every_steps = every_steps

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,  # noqa: ANN401 - transformers' signature
    ) -> None:
        """Keep the weights after this step, if it is one of those."""
        step = state.global_step
        if not self._every_steps or step % self._every_steps or step >= state.max_steps:
            return
        if not state.is_world_process_zero:
            return
        model = kwargs["model"]
        target = self._folder / f"step-{step:06d}"
        made = self._folder / f".step-{step:06d}"
        for old in (made, target):  # of an attempt that was killed: the same weights
            shutil.rmtree(old, ignore_errors=True)
        made.mkdir(parents=True)
        save_checkpoint(getattr(model, "module", model), self._tokenizer, made)
        for path in (*made.rglob("*"), made):
            sync(path)
        made.rename(target)
