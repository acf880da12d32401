"""The pages: what is served here, and what is shown where it is."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from flows import ui as pages
from flows.serverhome import Place

OURS = Place("http://127.0.0.1:4200/api", ours=True)
ANOTHERS = Place("http://127.0.0.1:4200/api", ours=False)  # on the port that we would take


class Server:
    """Stands for MLflow's server, and for a worker: it goes on."""

    def poll(self) -> None: ...


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A project whose servers are not started; returns the commands that would be run."""
    found: list[list[str]] = []

    @contextmanager
    def running(command: list[str], *rest: object) -> Iterator[Any]:
        found.append(command)
        yield Server()

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(pages, "running", running)
    monkeypatch.setattr(pages, "work", lambda root: nullcontext(Server()))
    monkeypatch.setattr(pages, "answers", lambda address: True)
    monkeypatch.setattr(pages, "prepare_store", lambda root: None)
    monkeypatch.setattr(pages, "prefect_server", lambda *a, **k: nullcontext(OURS))
    monkeypatch.setattr(signal, "signal", lambda *a: None)
    monkeypatch.setattr(time, "sleep", interrupt)
    return found


def test_ui_of_a_local_store_serves_both(
    commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        pages.ui(4200, 5005)
    assert len(commands) == 1
    said = capsys.readouterr().out
    assert "http://127.0.0.1:4200/dashboard\n" in said
    assert "and what it runs" in said
    assert "http://127.0.0.1:5005\n" in said


def test_ui_of_a_tracking_server_shows_its_address_and_serves_no_second(
    commands: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracker:5000")
    with pytest.raises(KeyboardInterrupt):
        pages.ui(4200, 5005)
    assert commands == []
    said = capsys.readouterr().out
    assert "MLflow:  http://tracker:5000\n" in said
    assert "5005" not in said


@pytest.mark.parametrize(
    ("schedules", "whose"),
    [(False, "the running study's"), (True, "of another `make ui` or `make worker`")],
)
def test_ui_beside_another_server_says_whose_it_is_and_starts_no_worker(
    commands: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    schedules: bool,
    whose: str,
) -> None:
    monkeypatch.setattr(pages, "prefect_server", lambda *a, **k: nullcontext(ANOTHERS))
    monkeypatch.setattr(pages, "has_schedules", lambda address: schedules)
    monkeypatch.setattr(pages, "work", lambda root: pytest.fail("a worker was started"))
    with pytest.raises(KeyboardInterrupt):
        pages.ui(4200, 5005)
    assert f"http://127.0.0.1:4200/dashboard ({whose}, until" in capsys.readouterr().out


def test_ui_beside_a_server_that_is_too_busy_to_say_whose_it_is_shows_it(
    commands: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def busy(address: str) -> bool:
        raise TimeoutError

    monkeypatch.setattr(pages, "prefect_server", lambda *a, **k: nullcontext(ANOTHERS))
    monkeypatch.setattr(pages, "has_schedules", busy)
    with pytest.raises(KeyboardInterrupt):
        pages.ui(4200, 5005)
    assert "4200/dashboard (of another command, until" in capsys.readouterr().out


def test_ui_goes_on_with_its_own_server_and_worker_when_the_study_has_ended(
    commands: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = iter([ANOTHERS, Place("http://127.0.0.1:4300/api", ours=True)])
    monkeypatch.setattr(pages, "prefect_server", lambda *a, **k: nullcontext(next(places)))
    monkeypatch.setattr(pages, "has_schedules", lambda address: False)
    monkeypatch.setattr(pages, "answers", lambda address: "4200" not in address)
    started: list[str] = []

    @contextmanager
    def work(root: Path) -> Iterator[Any]:
        started.append("worker")
        yield Server()

    def sleep(seconds: float) -> None:
        if started:
            raise KeyboardInterrupt

    monkeypatch.setattr(pages, "work", work)
    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        pages.ui(4300, 5005)
    said = capsys.readouterr().out
    assert "That server has ended." in said
    assert "http://127.0.0.1:4300/dashboard\n" in said
    assert started == ["worker"]
    assert len(commands) == 1  # MLflow's server went on
