"""What make does without a word about it: which environment it builds anew."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

FAKE_PYTHON = """#!/bin/sh
# Stands for Python: "makes" environments that hold it, and succeeds at all else.
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
"""


def test_another_build_of_vllm_is_built_from_nothing_and_the_same_one_once(
    tmp_path: Path, project_root: Path
) -> None:
    for name in ("Makefile", "constraints.txt", "constraints-vllm.txt"):
        shutil.copy(project_root / name, tmp_path)
    python = tmp_path / "python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    environment = tmp_path / ".venv-vllm"
    # Without what a `make test` above us was given: its settings, and how it is to go about it.
    theirs = {"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "VLLM"}
    surroundings = {name: value for name, value in os.environ.items() if name not in theirs}

    def is_rebuilt(*settings: str) -> bool:
        environment.mkdir(exist_ok=True)
        (environment / "left").touch()
        command = ["make", "vllm", f"PYTHON={python}", *settings]
        subprocess.run(command, cwd=tmp_path, env=surroundings, check=True, capture_output=True)
        assert (environment / "bin" / "python").is_file()
        return not (environment / "left").exists()

    assert is_rebuilt()
    assert not is_rebuilt()
    assert is_rebuilt("VLLM=vllm==0.32.0")
    assert not is_rebuilt("VLLM=vllm==0.32.0")
    assert is_rebuilt()
