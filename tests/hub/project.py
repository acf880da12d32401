"""A finished study whose policies and generators have weights, made by hand and not trained."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from dynamicrubric.report.cellfiles import CELL_FILE, find_artefacts
from dynamicrubric.yamlio import dump_yaml
from tasks.disk import remove
from tasks.record import BuildDirs, StepRequest, run_step

ROOT = Path(__file__).resolve().parents[2]
Build = Callable[[BuildDirs], None]
SECRETS = {
    "optimizer.pt": b"\x80\x05pickled", "rng_state.pth": b"\x80\x05pickled",
    "training_log.jsonl": b'{"step": 1, "metrics": {"reward": 0.5}}\n',
    "rollouts.parquet": b"PAR1 lineage", "optimizer.safetensors": b"moments",
}  # fmt: skip
"""What an artefact may hold and nobody shall get."""


def write_study(study: Any) -> Path:
    """Write params.yaml and the prepared data of a fake study; return its folder."""
    root: Path = study.root
    dump_yaml(study.config.model_dump(mode="json"), root / "params.yaml")
    return root


def publish(
    root: Path, folder: str, step: str, identity: Mapping[str, Any], build: Build, **inputs: Path
) -> Path:
    """Publish an artefact with its record."""
    request = StepRequest(step, 1, identity, inputs)
    return run_step(request, root / folder, root / "work/steps", build).path


def small_model(dirs: BuildDirs) -> None:
    """Write files with the names of a checkpoint, and others beside them."""
    save_file({"weight": np.arange(6, dtype=np.float32)}, dirs.out / "model.safetensors")
    (dirs.out / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (dirs.out / "tokenizer.json").write_text("{}")
    (dirs.out / "tokenizer_config.json").write_text("{}")
    for name, data in SECRETS.items():
        (dirs.out / name).write_bytes(data)


def small_adapter(dirs: BuildDirs) -> None:
    """Write files with the names of an adapter."""
    save_file({"lora_A": np.ones(3, dtype=np.float32)}, dirs.out / "adapter_model.safetensors")
    config = {"base_model_name_or_path": "data/prepared/base", "r": 4}
    (dirs.out / "adapter_config.json").write_text(json.dumps(config))
    (dirs.out / "tokenizer.json").write_text("{}")


def give_weights(study: Any, key: str, role: str, build: Build = small_model) -> Path:
    """Put weights into a role of a finished cell, which stays finished."""
    cell = study.plan.cell(key)
    folder = study.root / cell.directory
    remove(folder / role)
    identity = {
        "cell": cell.id, "round": cell.recipe.round, "seed": cell.recipe.seed,
        "rubrics": {"evaluator": cell.recipe.rubrics.evaluator},
        "anchors": ["/home/somebody/rows.jsonl"],
    }  # fmt: skip
    publish(study.root, f"{cell.directory}/{role}", f"train_{role}", identity, build)
    files = find_artefacts(study.root, cell)
    assert files is not None
    (folder / CELL_FILE).write_text(json.dumps(files.document))
    return folder / role


def command(
    *arguments: object, cwd: Path, url: str = "http://127.0.0.1:9", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `dynamicrubric` in a process of its own, where the hub is at `url`."""
    return python("-m", "dynamicrubric.cli", *arguments, cwd=cwd, url=url, **environment)


def python(
    *arguments: object, cwd: Path, url: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, where the hub is at `url`."""
    own = {
        "PYTHONPATH": str(ROOT), "COLUMNS": "200", "HF_ENDPOINT": url, "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }  # fmt: skip
    inherited = {k: v for k, v in os.environ.items() if k not in ("HF_TOKEN", "HF_TOKEN_PATH")}
    return subprocess.run(
        [sys.executable, "-P", *map(str, arguments)],
        cwd=cwd,
        env={**inherited, **own, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
