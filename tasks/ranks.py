"""Runs a step's function in several processes with `accelerate launch`, and says how it ended.

Called in the process that the step would otherwise run in, so log, slot, deadline and ending are
those of any step. The processes talk on loopback alone: torch's default store would listen on every
address, so both the launcher's and the processes' are files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dynamicrubric.errors import InstrumentError, UserError
from tasks.hosts import search_path

LOOPBACK: Final[Mapping[str, str]] = {
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


def run_in_ranks(target: str, kwargs: Mapping[str, Any], num_processes: int) -> None:
    """Run a function in several processes that train together.

    Args:
        target: "package.module:function".
        kwargs: its arguments, values that JSON can hold; every process gets the same.
        num_processes: how many; on GPUs, at most as many as this process sees.

    Raises:
        UserError: raised by the function in one of them.
        InstrumentError: likewise.
        RuntimeError: one of them ended otherwise.
    """
    with tempfile.TemporaryDirectory(prefix="dynamicrubric-") as name:
        folder = Path(name)
        job = folder / "job.json"
        job.write_text(json.dumps({"target": target, "kwargs": dict(kwargs)}), encoding="utf-8")
        ended = subprocess.run(
            launch_command(job, num_processes), env=launch_environment(folder), check=False
        )
        outcomes = _outcomes(folder, num_processes)
    if ended.returncode == 0 and all(one["result"] == "ok" for one in outcomes):
        return
    raise _failure(outcomes, ended.returncode)


def launch_command(job: Path, num_processes: int) -> list[str]:
    """Return the command that starts the processes.

    `--multi_gpu` is what accelerate calls several processes on one machine, whatever they run on:
    its `--cpu` starts a single one unless there is MPI. A config file of our own keeps out the one
    that the user may have.
    """
    config = job.with_name("accelerate.yaml")
    settings = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU"}
    config.write_text(json.dumps(settings), encoding="utf-8")
    options = {
        "config_file": config,
        "num_processes": num_processes,
        "num_machines": 1,
        "mixed_precision": "no",
        "dynamo_backend": "no",
        "main_process_port": 0,
        "rdzv_backend": "c10d",
        "rdzv_conf": "store_type=file",
    }
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
    return [*launcher, *given, "-m", "tasks.rank", str(job)]


def launch_environment(folder: Path) -> dict[str, str]:
    """Return this process's environment for the launcher and the processes it starts.

    The launcher makes its store a temporary file and leaves it there: let it be in `folder`.
    """
    mine = {"PYTHONPATH": os.pathsep.join(search_path()), "TMPDIR": str(folder)}
    return os.environ | LOOPBACK | mine


def _outcomes(folder: Path, num_processes: int) -> list[dict[str, Any]]:
    """Return each process's outcome in the order in which they ended, then those without one."""
    found: list[dict[str, Any]] = []
    paths = sorted(folder.glob("outcome-*.json"), key=lambda path: path.stat().st_mtime_ns)
    for path in paths:
        rank = int(path.stem.partition("-")[2])
        found.append({"rank": rank, **json.loads(path.read_text(encoding="utf-8"))})
    ended = {one["rank"] for one in found}
    gone = [{"rank": n, "result": "none"} for n in range(num_processes) if n not in ended]
    return found + gone


def _failure(outcomes: Sequence[Mapping[str, Any]], code: int) -> Exception:
    """Return the error of the process that knows what is wrong, else what all say, in order."""
    for one in outcomes:
        if one["result"] == "user_error":
            return UserError(**one["fields"])
        if one["result"] == "instrument_error":
            return InstrumentError(one["message"])
    said = [f"process {o['rank']}: {o['message']}" for o in outcomes if o["result"] == "crashed"]
    gone = [f"process {o['rank']}: no word" for o in outcomes if o["result"] == "none"]
    ended = f"accelerate launch ended with exit code {code}, of {len(outcomes)} processes"
    return RuntimeError(f"{ended}: {'; '.join([*said, *gone])}")
