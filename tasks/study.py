"""A study on disk: its folders, its settings, and how one GPU step of it is run and recorded."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from dynamicrubric.config import Config, load_config
from dynamicrubric.durable import naming
from dynamicrubric.engines.places import places_document
from dynamicrubric.plan import WARM_DIR, Cell, Plan, load_plan
from dynamicrubric.versions import STEP_VERSIONS
from tasks.devices import gpu_slots
from tasks.gpu import Usage, launch
from tasks.record import Artefact, BuildDirs, StepRequest, run_step

logger = logging.getLogger(__name__)

PRELOAD: Final = ("dynamicrubric.training.preload",)
TRACKER_PRELOAD: Final = ("tasks.preload_tracker",)
PREPARED_DIR: Final = "data/prepared"
METRICS_FILE: Final = "metrics.json"
"""The last that a cell writes."""


@dataclass(frozen=True)
class StepResult:
    """What a task hands on: small enough for any scheduler, no content.

    Attributes:
        path: the artefact's folder, relative to the project.
        content_hash: hash of its files.
        seconds: wall clock of making it, whenever that was; all attempts, without waiting.
    """

    path: str
    content_hash: str
    seconds: float

    @classmethod
    def of(cls, artefact: Artefact, root: Path) -> StepResult:
        """Describe an artefact of the study at `root`."""
        seconds = artefact.record.provenance.get("seconds", 0.0)
        assert isinstance(seconds, int | float)
        return cls(
            artefact.path.relative_to(root).as_posix(), artefact.content_hash, float(seconds)
        )


@dataclass(frozen=True)
class Study:
    """A project folder with valid settings."""

    root: Path

    @classmethod
    def here(cls) -> Study:
        """Return the study of the current folder."""
        return cls(Path.cwd())

    @cached_property
    def config(self) -> Config:
        """The settings in params.yaml."""
        return load_config(self.root / "params.yaml")

    @cached_property
    def plan(self) -> Plan:
        """The lattice, checked against cells.yaml and cells.json."""
        return load_plan(self.config, self.root / "cells.yaml")

    @property
    def work(self) -> Path:
        """Folder of everything that is not an out of DVC."""
        return self.root / "work"

    @property
    def prepared(self) -> Path:
        """The prepared data."""
        return self.root / PREPARED_DIR

    def warm(self, role: str) -> Path:
        """Return the warm start of a role."""
        return self.root / WARM_DIR / role

    def warm_steps(self, role: str) -> int:
        """Return the training steps of a role's warm start."""
        return int(self.plan.shared["warm_start"][role]["settings"]["steps"])

    def cell_dir(self, cell: Cell) -> Path:
        """Return the folder of a cell's artefacts."""
        return self.root / cell.directory

    def log_path(self, group: str, step: str) -> Path:
        """Return the log file of a step."""
        return self.work / "logs" / group / f"{step}.log"

    def engine_places(self, group: str) -> dict[str, Any]:
        """Return where a step's engines run, for its arguments; their logs go beside its own."""
        return places_document(self.config.runtime, self.work / "logs" / group)

    def run_gpu_step(
        self,
        request: StepRequest,
        out_dir: Path,
        arguments: Callable[[BuildDirs], Mapping[str, Any]],
        *,
        group: str,
        on_line: Callable[[str], None] | None = None,
        processes: int = 1,
    ) -> StepResult:
        """Run `dynamicrubric.steps:<step>` in a child process unless its artefact exists.

        Args:
            request: the step and everything that determines its content.
            out_dir: where the artefact is published.
            arguments: the step function's arguments, given the folders it may write to.
            group: whose log folder it writes to: a cell's key, or `shared`.
            on_line: given each line of the step's log.
            processes: how many run it together.
        """
        runtime = self.config.runtime
        what = f"{request.step} of {group}"
        log_path = self.log_path(group, request.step)

        def build(dirs: BuildDirs) -> None:
            logger.info("%s: log in %s", what, log_path.relative_to(self.root))
            write_status(self.work, group, request.step, dirs.metrics)
            gpus = gpu_slots(runtime.slots, runtime.processes)
            target, given = f"dynamicrubric.steps:{request.step}", arguments(dirs)
            if processes > 1:
                given = {"target": target, "kwargs": dict(given), "num_processes": processes}
                target = "tasks.ranks:run_in_ranks"
            usage: Usage = launch(
                target,
                given,
                log_path=log_path,
                deadline_seconds=60.0 * runtime.task_deadline_minutes,
                slots_dir=self.work / "locks",
                num_slots=runtime.slots,
                what=what,
                threads=runtime.threads_per_task,
                devices=[slot.visible(processes) for slot in gpus],
                locks=[slot.lock for slot in gpus],
                more_locks=[slot.other_locks for slot in gpus],
                preload=PRELOAD,
                on_wait=lambda holders: logger.info("%s waits for a slot: %s", what, holders),
                on_line=on_line,
                on_run=dirs.spent.note,
            )
            dirs.spent.note(usage.seconds)
            logger.info("%s took %.1f s", what, usage.seconds)

        artefact = run_step(
            request,
            out_dir,
            self.work / "steps",
            build,
            on_wait=lambda holder: logger.info("%s waits: %s", what, holder),
        )
        return StepResult.of(artefact, self.root)


def write_status(work: Path, group: str, step: str, metrics: Path) -> None:
    """Say which step a group is on and where its live log is, for whoever shows progress."""
    path = work / "status" / f"{group}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with naming(path):
        temporary.write_text(json.dumps({"step": step, "metrics": str(metrics)}), encoding="utf-8")
    temporary.replace(path)


def request_for(step: str, identity: Mapping[str, Any], **inputs: Path) -> StepRequest:
    """Return the request of a step at its current version."""
    return StepRequest(step, STEP_VERSIONS[step], identity, inputs)
