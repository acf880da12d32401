"""Log-probabilities of completions alone, on the CPU as on a GPU.

Without Triton, TRL 1.16 pushes every position through the language model head, the prompt's too,
and drops those afterwards: its other devices want tensors of one shape. A generator's prompt holds
a whole response set; `benchmarks/logprobs.py` times the two ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trl.trainer import utils

SWITCH = "_use_triton"
"""TRL's question whether to score valid positions only; the kernels ask one of their own."""


@contextmanager
def completions_only() -> Iterator[None]:
    """Score completion tokens only, whatever the device, in trainings within the body.

    The values are those of TRL's other way to rounding. A TRL that asks in another way raises
    AttributeError: then this module has to be looked at, and may be needless.
    """
    asked = getattr(utils, SWITCH)
    setattr(utils, SWITCH, lambda device: True)
    try:
        yield
    finally:
        setattr(utils, SWITCH, asked)
