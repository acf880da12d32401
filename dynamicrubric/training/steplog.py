"""The step log of a GRPO training: each step's metrics, under our names, and its rollouts.

They are kept in the work directory while the training runs and survive a kill; a finished training
publishes them. Metrics that show it can come to nothing stop it.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from dynamicrubric.durable import sync
from dynamicrubric.errors import InstrumentError
from dynamicrubric.training.console import progress_line

# TRL's log name to ours; wall times are left out, so that equal runs write equal logs.
_TRL_METRICS: Final[dict[str, str]] = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "reward": "reward",
    "reward_std": "reward_std",
    "zero_std_rate": "zero_std_rate",  # ours already, as are those named rate/
    "kl": "kl",
    "entropy": "entropy",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "truncated_rate",
    "accuracy": "pair_accuracy",  # of a reward model, like the next
    "margin": "margin",
    "rewards/r_disc/mean": "r_disc",
    "rewards/r_anchor/mean": "r_anchor",
    "rewards/r_gap/mean": "r_gap",
    "rewards/score/mean": "score",
    "rewards/true_quality/mean": "true_quality",
}

_OURS: Final = ("rate/", "cost/")
"""What the names of our own rollouts' metrics begin with."""


class StepLog:
    """The live log (`metrics.jsonl`) and the rollouts of each step, in the work directory."""

    def __init__(self, work_dir: Path, total: int) -> None:
        self._path = work_dir / "metrics.jsonl"
        self._rollouts = work_dir / "rollouts"
        self._rollouts.mkdir(parents=True, exist_ok=True)
        self._total = total
        self._unsynced: set[Path] = set()

    def whole_until(self) -> int:
        """Return the last step up to which every step's metrics and rollouts are there."""
        logged = {line["step"] for line in self._lines()}
        step = 0
        while step + 1 in logged and _is_json(self._part(step + 1)):
            step += 1
        return step

    def keep_until(self, step: int) -> None:
        """Forget what comes after a step, since it is going to be done again."""
        kept = [json.dumps(line) for line in self._lines() if line["step"] <= step]
        new = self._path.with_suffix(".new")  # a kill here must not cost the whole log
        new.write_text("".join(f"{line}\n" for line in kept))
        sync(new)
        new.replace(self._path)
        for part in self._rollouts.glob("*.json"):
            if int(part.stem) > step:
                part.unlink()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one step's metrics."""
        line = json.dumps({"step": step, "total": self._total, "metrics": dict(metrics)})
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
        self._unsynced.add(self._path)

    def keep_rollouts(self, step: int, lineage: Sequence[Mapping[str, Any]]) -> None:
        """Keep one step's lineage: a row for each completion."""
        path = self._part(step)
        path.write_text(json.dumps(lineage, ensure_ascii=False), encoding="utf-8")
        self._unsynced.add(path)

    def sync(self) -> None:
        """Return when all that was written is on the disk: no checkpoint may outlive its log."""
        for path in [*sorted(self._unsynced), self._rollouts, self._path.parent]:
            sync(path)
        self._unsynced.clear()

    def publish(self, out_dir: Path) -> None:
        """Write `training_log.jsonl` and `rollouts.parquet` for the finished artefact.

        Raises:
            InstrumentError: metrics or rollouts of a step are missing.
        """
        whole = self.whole_until()
        if whole != self._total:
            raise InstrumentError(
                f"the log in {self._path.parent} lacks metrics or rollouts of step {whole + 1} of "
                f"{self._total}; run the same command again: it goes back to before that step"
            )
        shutil.copyfile(self._path, out_dir / "training_log.jsonl")
        parts = [self._part(step) for step in range(1, self._total + 1)]
        rows = [row for part in parts for row in json.loads(part.read_text(encoding="utf-8"))]
        pd.DataFrame(rows).to_parquet(out_dir / "rollouts.parquet", index=False)

    def _part(self, step: int) -> Path:
        return self._rollouts / f"{step:06d}.json"

    def _lines(self) -> list[dict[str, Any]]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        # A line that a kill cut short ends before its closing brackets.
        return [json.loads(line) for line in lines if line.endswith("}}")]


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return True


class LogCallback(TrainerCallback):
    """Turns TRL's log entries into our step log."""

    def __init__(self, log: StepLog, *, cuts_count: bool = False) -> None:
        """Keep entries in `log`; `cuts_count` as `GrpoSettings` has it."""
        self._log = log
        self._cuts_count = cuts_count

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,  # noqa: ANN401 - transformers' signature
    ) -> None:
        """Keep one line a step; the summary that ends the training is no step."""
        logs = logs or {}
        if "train_runtime" in logs:
            return
        named = {ours: logs.get(theirs) for theirs, ours in _TRL_METRICS.items()}
        named |= {name: value for name, value in logs.items() if name.startswith(_OURS)}
        # TRL logs None where every row was left out: no figure is better than a made-up one.
        metrics = {name: float(value) for name, value in named.items() if value is not None}
        if state.is_world_process_zero:
            self._log.write(state.global_step, metrics)
            line = progress_line(state.global_step, state.max_steps, metrics)
            if line:
                print(line, flush=True)
        check_step(state.global_step, metrics, cuts_count=self._cuts_count)


def check_step(step: int, metrics: Mapping[str, float], *, cuts_count: bool = False) -> None:
    """Stop a training whose figures say that it can come to nothing.

    Args:
        step: which step.
        metrics: its figures.
        cuts_count: completions that are cut are rewarded like others.

    Raises:
        InstrumentError: loss or gradient norm is no number, or every completion was cut.
    """
    for name, words in (("loss", "loss"), ("grad_norm", "gradient norm")):
        value = metrics.get(name, 0.0)
        if not math.isfinite(value):
            raise InstrumentError(f"the {words} at step {step} is {value}; lower the learning rate")
    if metrics.get("truncated_rate", 0.0) >= 1.0 and not cuts_count:
        raise InstrumentError(
            f"every completion of step {step} was cut at max_tokens; raise max_tokens, or train "
            "the warm start longer so that the model learns to stop"
        )


def check_weights(step: int, model: torch.nn.Module) -> None:
    """Stop before weights are kept that are no numbers: loss and gradient are those before them.

    Raises:
        InstrumentError: a weight is not finite.
    """
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise InstrumentError(
                f"the weights of {name} after step {step} are not all finite; lower the learning "
                "rate"
            )
