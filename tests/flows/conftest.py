"""Project folders as a clone has them, with a study small enough to run in tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dynamicrubric.config import load_config
from dynamicrubric.plan import expand, write_plan
from dynamicrubric.yamlio import dump_yaml, load_yaml

ROOT = Path(__file__).resolve().parents[2]
PARAMS = Path(__file__).with_name("params.yaml")
VERSIONS = "dynamicrubric/versions.py"  # DVC reads its numbers; it is imported from ROOT
CLONED = ("dvc.yaml", ".dvcignore", ".gitignore", ".dvc/config", ".dvc/.gitignore", VERSIONS)
PATIENCE = 1800.0
"""Seconds until something counts as hanging: a bound for a failure, on however slow a machine."""
T = TypeVar("T")


@dataclass(frozen=True)
class Project:
    """A project folder and the commands a person gives in it."""

    root: Path

    @classmethod
    def new(cls, root: Path) -> Project:
        """Make a folder with git, DVC and the tiny study's settings."""
        (root / ".dvc").mkdir(parents=True)
        (root / VERSIONS).parent.mkdir()
        for name in CLONED:
            if (ROOT / name).is_file():
                shutil.copyfile(ROOT / name, root / name)
        shutil.copyfile(PARAMS, root / "params.yaml")
        project = cls(root)
        project.run("git", "init", "--quiet")
        write_plan(expand(load_config(root / "params.yaml")), root / "cells.yaml")
        return project

    def copy(self, target: Path) -> Project:
        """Return a copy of the folder with everything in it."""
        shutil.copytree(self.root, target, symlinks=True)
        return Project(target)

    @property
    def environment(self) -> dict[str, str]:
        """The sources are found wherever the command runs; stages' `python` is ours."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}

    def start(
        self, *command: str, output: int | None = subprocess.PIPE, first: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start a command in a process group of its own; it finds modules in `first` before all."""
        environment = self.environment
        if first is not None:
            environment["PYTHONPATH"] = os.pathsep.join([str(first), environment["PYTHONPATH"]])
        return subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            text=True,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def run(self, *command: str, fails: bool = False) -> str:
        """Run a command to its end; return what it printed."""
        process = self.start(*command)
        try:
            text, _ = process.communicate(timeout=PATIENCE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert bool(process.returncode) == fails, (
            f"{command} ended with {process.returncode}: {text}"
        )
        return text

    def flow(self, *arguments: str, fails: bool = False) -> str:
        """Run a command of the flows."""
        return self.run(sys.executable, "-m", "flows", *arguments, fails=fails)

    def repro(self, *arguments: str, fails: bool = False) -> str:
        """Run `dvc repro`."""
        return self.run(sys.executable, "-m", "dvc", "repro", *arguments, fails=fails)

    def change(self, **changed: Any) -> None:
        """Change params.yaml; keys are paths with `__` between the parts."""
        path = self.root / "params.yaml"
        document = load_yaml(path)
        for place, value in changed.items():
            *parents, last = place.split("__")
            section = document
            for name in parents:
                section = section.setdefault(name, {})
            section[last] = value
        dump_yaml(document, path)

    def record(self, path: str) -> dict[str, Any]:
        """Return an artefact's record."""
        found: dict[str, Any] = json.loads((self.root / path / "record.json").read_text())
        return found

    def files(self, path: str) -> dict[str, int]:
        """Return each file under a folder with when it was last written."""
        folder = self.root / path
        return {
            p.relative_to(folder).as_posix(): p.stat().st_mtime_ns
            for p in sorted(folder.rglob("*"))
            if p.is_file()
        }

    def log(self, group: str, step: str) -> str:
        """Return a step's log."""
        return (self.root / "work" / "logs" / group / f"{step}.log").read_text()


def ran(text: str) -> list[str]:
    """Return the stages that DVC says it ran."""
    begin = "Running stage '"
    return [
        line[len(begin) :].split("'")[0] for line in text.splitlines() if line.startswith(begin)
    ]


def wait_for(probe: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """Return the first true value of `probe`; fail when it does not come in time."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if value := probe():
            return value
        threading.Event().wait(0.05)
    raise AssertionError(f"waited {seconds} s for {what}")


@pytest.fixture
def stages_run() -> Callable[[str], list[str]]:
    return ran


@pytest.fixture
def wait() -> Callable[..., Any]:
    return wait_for


@pytest.fixture
def patience() -> float:
    return PATIENCE


def runs(pid: int) -> bool:
    """Say whether a process runs; a zombie, which nobody may reap, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.fixture
def is_running() -> Callable[[int], bool]:
    return runs


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A clone in which nothing has been run but the plan."""
    return Project.new(tmp_path / "project")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One Prefect server for the projects of a test run, as a study has one; yields its address."""
    from flows.services import prefect_server

    with prefect_server(tmp_path_factory.mktemp("server")) as place:
        yield place.address


@pytest.fixture(scope="session")
def prepared(server: str, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose shared stages are done. Copy it before changing anything."""
    project = Project.new(tmp_path_factory.mktemp("study") / "prepared")
    project.repro("warm_start")
    return project


@pytest.fixture(scope="session")
def finished(prepared: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose whole study is done. Copy it before changing anything."""
    project = prepared.copy(tmp_path_factory.mktemp("study") / "finished")
    project.repro()
    return project
