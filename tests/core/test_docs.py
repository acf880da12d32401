"""The worked examples in the docstrings of the pure core hold, and the core stays pure."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import pytest

MODULES = ("errors", "types", "rubrics", "verdicts", "scoring", "rewards", "theory", "stats")
HEAVY = ("torch", "transformers", "trl", "prefect", "mlflow", "dvc", "pandas")


@pytest.mark.parametrize("name", MODULES)
def test_module_examples_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"dynamicrubric.{name}"))
    assert result.failed == 0
    assert result.attempted > 0


def test_core_import_loads_nothing_heavy() -> None:
    imports = "; ".join(f"import dynamicrubric.{name}" for name in MODULES)
    code = f"import sys; {imports}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.strip() == ""
