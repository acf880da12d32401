"""What a training prints: one short line every few steps, and not what its libraries print."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from typing import Final

import datasets
import transformers
from transformers import PrinterCallback, Trainer

EVERY_STEPS: Final = 10
# In the order in which they are printed; a training has some of them.
_SHOWN: Final[Mapping[str, str]] = {
    "reward": "reward",
    "r_disc": "r_disc",
    "r_anchor": "r_anchor",
    "loss": "loss",
    "pair_accuracy": "pairs in order",
    "kl": "kl",
    "length": "length",
    "zero_std_rate": "no spread",
    "rate/invalid_rubric": "invalid",
    "rate/unscored_response": "unscored",
}
_UNSCORED_ROW: Final = "All reward functions returned None"


def quiet_libraries() -> None:
    """Turn off progress bars and the warnings that say nothing about this training.

    A row without a reward is normal here (its rubric was invalid) and counted as a rate, so TRL's
    warning about each is left out; so are deprecations between the libraries themselves.
    """
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # of `rollout_func`
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    logging.getLogger("trl.trainer.grpo_trainer").addFilter(_says_more)
    warnings.filterwarnings("ignore", ".*gradient_checkpointing` is deprecated", FutureWarning)


def without_printer(trainer: Trainer) -> None:
    """Take out the callback that prints every log entry whole."""
    trainer.remove_callback(PrinterCallback)


def progress_line(step: int, total: int, metrics: Mapping[str, float]) -> str | None:
    """Return what to print about a step; None for most steps.

    >>> progress_line(10, 60, {"reward": 0.4123, "kl": 0.0031, "grad_norm": 1.0})
    'step 10/60: reward 0.412, kl 0.0031'
    >>> progress_line(11, 60, {"reward": 0.4}) is None
    True
    """
    if step % EVERY_STEPS and step not in (1, total):
        return None
    shown = ", ".join(
        f"{name} {metrics[key]:.3g}" for key, name in _SHOWN.items() if key in metrics
    )
    return f"step {step}/{total}: {shown}"


def _says_more(record: logging.LogRecord) -> bool:
    return _UNSCORED_ROW not in record.getMessage()
