"""`dynamicrubric preflight`: says whether a profile can run here, before it does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import typer

from dynamicrubric.boundary import EXIT_REFUSED
from dynamicrubric.config import load_config


def run_preflight(profile: Path, gpus: int | None, gpu_memory: float | None, as_json: bool) -> None:
    """Check a profile and print what was found.

    Args:
        profile: a params.yaml, or the name of a profile.
        gpus: plan for so many GPUs instead of this machine's.
        gpu_memory: GiB of each of them.
        as_json: print one JSON document.

    Raises:
        typer.Exit: with 2, if it cannot run.
    """
    path = _path(profile)
    config = load_config(path)  # what is wrong in the file is said before torch is imported
    # Weights and pictures of progress are not wanted here, nor what libraries say to each other.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from dynamicrubric.preflight.checks import preflight
    from dynamicrubric.preflight.facts import GIB
    from dynamicrubric.preflight.machine import Device, this_device

    device = (
        this_device()
        if gpu_memory is None
        else Device("GPU, as given", gpus or 1, gpu_memory * GIB)
    )
    report = preflight(config, str(path), device, Path())
    if as_json:
        typer.echo(json.dumps(report.document(), indent=1))
    else:
        from rich.console import Console

        from dynamicrubric.preflight.view import print_report

        console = Console()
        print_report(report, console if console.is_terminal else Console(width=120))
    if report.problems:
        raise typer.Exit(EXIT_REFUSED)


def _path(profile: Path) -> Path:
    named = Path("profiles") / f"{profile}.yaml"
    return named if not profile.exists() and named.is_file() else profile
