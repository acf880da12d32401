"""What a stage's command finds when the study runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import sys
from pathlib import Path
from flows import stages
stages.guarded_command = lambda command: ["sh", "-c", "command -v python"]  # stands for DVC
stages.StageRunner(Path(sys.argv[1]), 1).run(stages.Stage("plan", (), "shared", 0), lambda: None)
"""


def test_python_of_a_stage_is_ours_though_the_environment_is_not_on(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": os.defpath, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    subprocess.run(command, env=environment, check=True)
    found = (tmp_path / "work" / "logs" / "shared" / "dvc-plan.log").read_text().strip()
    assert Path(found).parent == Path(sys.executable).parent
