"""The study as DVC stages: which there are, what each waits for, and how one is run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from dynamicrubric.audit.planned import planned_audits
from dynamicrubric.errors import DynamicRubricError, UserError
from dynamicrubric.grid import PlannedGrid, planned_grids
from dynamicrubric.plan import ROLES, Cell, Plan
from dynamicrubric.probes.planned import planned_probes
from flows.services import signal_group
from tasks.disk import disk_errors
from tasks.guarded import guarded_command
from tasks.process import ancestors, session_members

WARM_STAGES: Final = tuple(f"warm_start@{role}" for role in ROLES)
STOP_SECONDS: Final = 30.0
STAGES_AHEAD: Final = 1
"""Stages begun beyond the slots. Between two GPU steps DVC and Prefect take a quarter of a minute a
cell, in which the slot would stand empty; a step takes its slot when it begins (`tasks.gpu`)."""
TASK_RUN: Final = "DYNAMICRUBRIC_TASK_RUN"
"""Tells a stage's command which task of the study runs it; see `flows.nesting`."""
_OURS: Final = {
    "DVC_NO_ANALYTICS": "1",
    # The `python` of dvc.yaml is ours, also where a service starts us with the environment not on.
    "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),
}
_UNREAD: Final = re.compile(r"'.*' (is invalid|validation failed)")


class StageFailed(DynamicRubricError):
    """A stage's command failed; the message has its reason and its log."""


@dataclass(frozen=True)
class Stage:
    """One DVC stage.

    Attributes:
        name: as DVC knows it, e.g. `round@coevolved-s1-r2`.
        after: stages that have to be finished before.
        group: folder of its logs and name of its status.
        num_steps: training steps it takes, for the estimate of the time left.
        steps_ahead: training steps on the longest way from here to the end, itself included.
    """

    name: str
    after: tuple[str, ...]
    group: str
    num_steps: int
    steps_ahead: int = 0


def stages_of(plan: Plan, warm_steps: Mapping[str, int]) -> list[Stage]:
    """Return the stages of a plan, each after the ones it waits for."""
    stages = [
        Stage("plan", (), "shared", 0),
        Stage("prepare", ("plan",), "shared", 0),
        *(
            Stage(name, ("prepare",), f"shared-{role}", warm_steps[role])
            for name, role in zip(WARM_STAGES, ROLES, strict=True)
        ),
    ]
    stages += [Stage(f"start@{key}", WARM_STAGES, key, 0) for key in plan.starts]
    by_folder = {cell.directory: f"start@{cell.key}" for cell in plan.starts.values()}
    by_folder |= {cell.directory: f"round@{cell.key}" for cell in plan.cells.values()}
    for cell in plan.cells.values():
        assert cell.before is not None, "round 0 trains nothing"
        stages.append(
            Stage(f"round@{cell.key}", (by_folder[cell.before],), cell.key, steps_of(cell))
        )
    stages += [
        Stage(f"grid@{key}", _read_by(grid), f"grid-{key}", 0)
        for key, grid in planned_grids(plan).items()
    ]
    # DVC cannot be told of an audit's own cells, whose number differs: it reads the folder of all.
    rounds = tuple(f"start@{key}" for key in plan.starts)
    rounds += tuple(f"round@{key}" for key in plan.cells)
    stages += [Stage(f"audit@{key}", rounds, f"audit-{key}", 0) for key in planned_audits(plan)]
    stages += [Stage(f"probe@{key}", rounds, f"probe-{key}", 0) for key in planned_probes(plan)]
    cells = tuple(stage.name for stage in stages if "@" in stage.name)
    return _with_steps_ahead([*stages, Stage("compare", cells, "compare", 0)])


def _read_by(grid: PlannedGrid) -> tuple[str, ...]:
    """Return the stages whose outs a grid reads."""
    start, *rounds = grid.cells
    return (f"start@{start.key}", *(f"round@{cell.key}" for cell in (*rounds, grid.stale)))


def needed_for(name: str, stages: Sequence[Stage]) -> list[Stage]:
    """Return a stage and all that it builds on, in their order."""
    by_name = {stage.name: stage for stage in stages}
    needed: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in needed:
            needed.add(one)
            waiting += by_name[one].after
    return [stage for stage in stages if stage.name in needed]


def _with_steps_ahead(stages: Sequence[Stage]) -> list[Stage]:
    """Fill in `steps_ahead`; every stage comes after the ones it waits for."""
    ahead = {stage.name: stage.num_steps for stage in stages}
    own = dict(ahead)
    for stage in reversed(stages):
        for name in stage.after:
            ahead[name] = max(ahead[name], own[name] + ahead[stage.name])
    return [replace(stage, steps_ahead=ahead[stage.name]) for stage in stages]


class Slots:
    """A counting semaphore whose turn goes to who has most ahead of it."""

    def __init__(self, free: int) -> None:
        """Let `free` holders in at a time."""
        self._free = free
        self._waiting: list[int] = []
        self._changed = threading.Condition()

    @contextmanager
    def held(self, priority: int) -> Iterator[None]:
        """Hold a slot for the body; the highest waiting priority gets the next free one."""
        with self._changed:
            self._waiting.append(priority)
            self._changed.wait_for(lambda: self._free > 0 and priority >= max(self._waiting))
            self._waiting.remove(priority)
            self._free -= 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()


def steps_of(cell: Cell) -> int:
    """Return the training steps of a cell."""
    trainings = (cell.recipe.generator_training, cell.recipe.policy_training)
    return sum(training.steps for training in trainings if training is not None)


class StageRunner:
    """Runs stages with `dvc repro -s`, `STAGES_AHEAD` more at a time than there are slots."""

    def __init__(self, root: Path, slots: int, fresh: Collection[str] = ()) -> None:
        """Run in the project folder `root`; the stages named `fresh` have nothing to do."""
        self._root = root
        self._fresh = frozenset(fresh)
        self._slots = Slots(slots + STAGES_AHEAD)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._starting = threading.Lock()  # a process is in `_running` before `stop` looks

    def run(self, stage: Stage, on_start: Callable[[], None], task_run: str = "") -> bool:
        """Run one stage and return whether it did anything.

        Args:
            stage: what to run; its turn may take a while to come.
            on_start: called when it has.
            task_run: Prefect's id of the task that this is, under which the stage's flow is shown.

        Raises:
            StageFailed: its command failed.
        """
        if stage.name in self._fresh:
            return False
        log = self.log_of(stage)
        command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "-s", stage.name]
        with self._slots.held(stage.steps_ahead), _opened(log, stage) as stream:
            process = self._start(stage, command, stream, task_run)
            on_start()
            code = process.wait()
            self._running.discard(process)
        text = log.read_text(encoding="utf-8", errors="replace")
        if code:
            raise StageFailed(
                f"{stage.name} failed: {_reason(text)} (log: {log.relative_to(self._root)})"
            )
        return "Running stage" in text

    def _start(
        self, stage: Stage, command: Sequence[str], stream: BinaryIO, task_run: str
    ) -> subprocess.Popen[bytes]:
        with self._starting:
            if self._stopped:
                raise StageFailed(f"{stage.name} was not started: the study is stopping")
            process = subprocess.Popen(
                guarded_command(command),
                cwd=self._root,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_OURS, TASK_RUN: task_run},
                start_new_session=True,
            )
            self._running.add(process)
        return process

    def log_of(self, stage: Stage) -> Path:
        """Return the file that holds what DVC and the stage's command print.

        The logs of the stage's GPU steps lie beside it, each named after its step.
        """
        name = f"dvc-{stage.name.partition('@')[0]}.log"
        return self._root / "work" / "logs" / stage.group / name

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called: what ends after that has not failed by itself."""
        return self._stopped

    def stop(self) -> None:
        """End all running stages: first their commands, which end their GPU work, then DVC."""
        with self._starting:
            self._stopped = True
            running = list(self._running)
        for process in running:
            _ask_to_end(process.pid)
        for process in running:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                signal_group(process.pid, signal.SIGKILL)


def _ask_to_end(leader: int) -> None:
    """Ask the innermost processes of a session to end; what runs them ends after them.

    DVC dies of the signal at once, and its command would be killed with it, in the middle of
    ending its GPU work and telling the server.
    """
    members = session_members(leader)
    parents = {next(ancestors(pid), 0) for pid in members}
    for pid in [member for member in members if member not in parents]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _opened(log: Path, stage: Stage) -> BinaryIO:
    """Open a stage's log, emptied.

    Raises:
        StageFailed: the disk is full, or the folder may not be written.
    """
    try:
        with disk_errors("opening a log", log):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.unlink(missing_ok=True)
            return log.open("ab")  # a stage's flow may write it from a process of its own
    except UserError as error:
        raise StageFailed(f"{stage.name} was not started: {error}") from None


def _reason(text: str) -> str:
    """Return the sentence in a stage's output that says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("error:")]
    if said:
        return said[-1].removeprefix("error:").strip()
    # DVC's word about dvc.lock or dvc.yaml comes first, without a mark; the place follows it.
    unread = [line for line in lines if _UNREAD.match(line)]
    if unread:
        return unread[0]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return errors[0].removeprefix("ERROR:").strip() if errors else " ".join(lines[-1:])
