"""Version of each step: part of its identity and of its cell's entry, so DVC sees it.

DVC reads this file as parameters of the plan and of the comparison: numbers in a plain literal.

Whoever changes what a step computes bumps its number; the golden-trajectory test fails when the
behaviour changed and the number did not. A code edit that changes nothing throws nothing away.
"""

from __future__ import annotations

from typing import Final

STEP_VERSIONS: Final[dict[str, int]] = {
    "prepare": 2,
    "warm_start": 1,
    "sample_responses": 2,
    "train_generator": 5,
    "keep_generator": 1,
    "train_policy": 4,
    "evaluate_round": 3,
    "evaluate_grid": 1,
    "audit_checkpoints": 1,
}
PROBE_VERSIONS: Final[dict[str, int]] = {"probe_evaluators": 1, "watch_course": 1}
"""Of the probes, which are no steps of a cell: nothing that is trained depends on them."""
COMPARE_VERSION: Final = 7
"""Of the comparison, which is no cell's step: its stage in dvc.yaml depends on it."""
