"""What a person sees while a study runs: each arm's rounds, the step each cell is on, time left."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dynamicrubric.plan import Plan
from dynamicrubric.planview import ranges
from flows.stages import Stage
from tasks.logtail import last_lines

Say = Callable[[str], None]
REFRESH_SECONDS: Final = 1.0
LINE_SECONDS: Final = 30.0
STAGE_STEPS: Final = 25
"""What a stage costs beside its training, in training steps: starting, sampling, measuring."""
UNTRAINED_SHARE: Final = 0.3
"""What counts as done of a running stage that trains nothing."""
LAST_STEP: Final = "evaluate_round"
"""A round's step after all training."""
MARKS: Final = {
    "waiting": "·",
    "running": "▶",
    "done": "✔",
    "kept": "✔",
    "failed": "✘",
    "stopped": "■",
}


class Progress:
    """State of every stage; safe to update from many threads."""

    def __init__(
        self,
        plan: Plan,
        stages: Sequence[Stage],
        work: Path,
        say: Say = lambda text: None,
        *,
        fresh: Collection[str] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show `stages`; live step counts come from the study's work folder.

        Args:
            plan: the study's plan.
            stages: all of its stages.
            work: the study's work folder.
            say: told a line when a stage begins or ends.
            fresh: names of stages that have nothing to do; they count as done from the start.
            now: a clock, in seconds.
        """
        self._say = say
        self._now = now
        self._plan = plan
        self._stages = {stage.name: stage for stage in stages}
        self._work = work
        self._state = {name: "kept" if name in fresh else "waiting" for name in self._stages}
        self._began: dict[str, float] = {}
        self._started = now()
        self._measured_from: tuple[float, float] | None = None
        self._furthest: dict[str, float] = {}
        self._lock = threading.Lock()

    def begin(self, name: str) -> None:
        """Note that a stage runs; what an earlier run of it said of its step is forgotten."""
        with suppress(OSError):  # a display is no reason to stop
            self._status_of(self._stages[name]).unlink()
        with self._lock:
            self._state[name] = "running"
            self._furthest.pop(name, None)
            self._began[name] = self._now()
        self._say(f"{name} begins")

    def end(self, name: str, state: str) -> None:
        """Note how a stage ended: `done`, `kept` (nothing to do), `failed` or `stopped`."""
        with self._lock:
            self._state[name] = state
        self._say(f"{name}: {state}; {self.summary().strip()}")

    def step_of(self, stage: Stage) -> tuple[str, int, int]:
        """Return (step name, training steps done, training steps in all) of a running stage."""
        try:
            status = json.loads(self._status_of(stage).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return "starting", 0, 0
        lines = last_lines(Path(status["metrics"]), 1)
        try:
            last = json.loads(lines[0]) if lines else {}
        except ValueError:  # half a line: the writer is at it
            last = {}
        return str(status["step"]), int(last.get("step", 0)), int(last.get("total", 0))

    def _status_of(self, stage: Stage) -> Path:
        return self._work / "status" / f"{stage.group}.json"

    def share_done(self) -> float:
        """Return the share of the work that is done, by training steps."""
        done, total = self._weights()
        return done / total if total else 1.0

    def seconds_left(self) -> float | None:
        """Return an estimate from the pace so far; None before anything can be said.

        The pace is measured from the first sign of work on: what an earlier run had done of a step
        that is gone on with says nothing about it.
        """
        done, total = self._weights(ran_only=True)
        now = self._now()
        if self._measured_from is None and done:
            self._measured_from = (now, done)
        if self._measured_from is None:
            return None
        since, before = self._measured_from
        if done - before < STAGE_STEPS or now <= since:
            return None
        return (now - since) * (total - done) / (done - before)

    def _weights(self, *, ran_only: bool = False) -> tuple[float, float]:
        with self._lock:
            states = dict(self._state)
        done = total = 0.0
        for name, stage in self._stages.items():
            weight = float(STAGE_STEPS + stage.num_steps)
            if ran_only and states[name] == "kept":
                continue
            total += weight
            if states[name] in ("done", "kept"):
                done += weight
            elif states[name] == "running":
                done += 0.9 * weight * self._fraction(stage)
            elif states[name] in ("failed", "stopped"):  # its checkpoints are kept, no more
                with self._lock:
                    done += 0.9 * weight * self._furthest.get(name, 0.0)
        return done, total

    def _fraction(self, stage: Stage) -> float:
        """Return the share of a running stage's training that is done; it never falls.

        A step that has not logged yet says nothing: the steps before it still count.
        """
        step, at, total = self.step_of(stage)
        before = stage.num_steps - total if step == "train_policy" and total else 0
        if not stage.num_steps:
            now = UNTRAINED_SHARE
        else:
            now = 1.0 if step == LAST_STEP else min(1.0, (before + at) / stage.num_steps)
        with self._lock:
            self._furthest[stage.name] = max(now, self._furthest.get(stage.name, 0.0))
            return self._furthest[stage.name]

    def states(self) -> dict[str, str]:
        """Return each stage's state: a key of `MARKS`."""
        with self._lock:
            return dict(self._state)

    def running(self) -> list[tuple[Stage, float]]:
        """Return the running stages and since how many seconds each runs."""
        now = self._now()
        with self._lock:
            return [
                (self._stages[name], now - self._began[name])
                for name, state in self._state.items()
                if state == "running"
            ]

    def summary(self) -> str:
        """Return one line: how far, how long, how much is left."""
        left = self.seconds_left()
        elapsed = self._now() - self._started
        text = f"{self.share_done():4.0%} done, {clock(elapsed)} so far"
        return f"{text}, about {clock(left)} left" if left is not None else text

    def doing(self) -> list[str]:
        """Return a line for each running stage: name, step, how far."""
        return [self._doing(stage, seconds) for stage, seconds in self.running()]

    def _doing(self, stage: Stage, seconds: float) -> str:
        step, at, total = self.step_of(stage)
        where = f", step {at} of {total}" if total else ""
        name = stage.name if "@" not in stage.name else stage.name.partition("@")[2]
        return f"{name}: {step}{where} ({clock(seconds)})"

    def render(self) -> RenderableType:
        """Return the whole display."""
        arms = Table(box=None, pad_edge=False, header_style="dim")
        arms.add_column("arm")
        rounds = max(len(keys) for keys in self._plan.paths.values())
        for number in range(rounds):
            arms.add_column(f"round {number}", justify="center")
        with self._lock:
            states = dict(self._state)
        for arm, seeds in self._seeds_by_arm().items():
            name = f"{arm} (seed{'s' * (len(seeds) > 1)} {ranges(seeds)})"
            paths = [self._plan.paths[(arm, seed)] for seed in seeds]
            arms.add_row(Text(name), *(self._marks(paths, i, states) for i in range(rounds)))
        bar = ProgressBar(total=1.0, completed=self.share_done(), width=40)
        lines = [Text(line) for line in self.doing()]
        return Group(Text(""), arms, Text(""), *lines, bar, Text(self.summary()))

    def _seeds_by_arm(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for arm, seed in self._plan.paths:
            found.setdefault(arm, []).append(seed)
        return found

    @staticmethod
    def _marks(paths: Sequence[Sequence[str]], number: int, states: Mapping[str, str]) -> str:
        """Return a round's marks, one a seed; none where the arm does not have the round."""
        stage = "start@" if number == 0 else "round@"
        return "".join(MARKS[states[stage + keys[number]]] for keys in paths if number < len(keys))


def clock(seconds: float) -> str:
    """Return a duration for people.

    >>> clock(75)
    '1 min 15 s'
    >>> clock(4000)
    '1 h 7 min'
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@contextmanager
def shown(progress: Progress, console: Console) -> Iterator[None]:
    """Show progress for the body: a live display in a terminal, a line now and then elsewhere."""
    done = threading.Event()
    follow = _follow_live if console.is_terminal else _follow_lines
    thread = threading.Thread(target=follow, args=(progress, console, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _follow_live(progress: Progress, console: Console, done: threading.Event) -> None:
    with Live(progress.render(), console=console, refresh_per_second=4, transient=False) as live:
        while not done.wait(REFRESH_SECONDS):
            live.update(progress.render())
        live.update(progress.render())


def _follow_lines(progress: Progress, console: Console, done: threading.Event) -> None:
    while not done.wait(LINE_SECONDS):
        console.print(Text(progress.summary()))
        for line in progress.doing():
            console.print(Text(f"  {line}"))
