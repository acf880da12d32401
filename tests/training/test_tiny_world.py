"""A tiny world that cannot be made says why in every test process that needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BROKEN = """

def make_world(root):
    (root / "whole").mkdir()
    raise RuntimeError("what really happened")
"""


@pytest.mark.slow
def test_world_that_cannot_be_made_fails_alike_in_every_process(tmp_path: Path) -> None:
    """Two processes as pytest-xdist starts them: base folders of their own in a common one."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    conftest = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")
    (tmp_path / "conftest.py").write_text(conftest + BROKEN, encoding="utf-8")
    (tmp_path / "test_any.py").write_text("def test_any(tiny):\n    pass\n")
    (tmp_path / "base").mkdir()
    for worker in ("gw0", "gw1"):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"--basetemp=base/{worker}", "test_any.py"],
            cwd=tmp_path,
            env=os.environ | {"PYTEST_XDIST_WORKER": worker, "PYTEST_ADDOPTS": "-p no:xdist"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
        assert "RuntimeError: what really happened" in done.stdout
        assert "FileExistsError" not in done.stdout
