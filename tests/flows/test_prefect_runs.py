"""Whose runs are closed on a Prefect server that others use too: real server, real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.context import TagsContext
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Pending, Running

from flows import __main__ as commands
from flows import services
from tasks import process
from tasks.prefect_runs import close_dead_runs, runs_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
TAGS_OF_A_PROCESS = """
import sys
from pathlib import Path
from prefect.context import TagsContext
from tasks.prefect_runs import runs_of
with runs_of(Path(sys.argv[1])):
    print(*sorted(TagsContext.get().current_tags), sep="\\n")
"""


@flow(name="anything")
def anything() -> None:
    """Stand for a flow of ours or of somebody else."""


@pytest.fixture
def client(server: str) -> Iterator[SyncPrefectClient]:
    with temporary_settings({PREFECT_API_URL: server}), get_client(sync_client=True) as client:
        yield client


def tags_here(root: Path) -> list[str]:
    with runs_of(root):
        return sorted(TagsContext.get().current_tags)


def tags_of_a_dead_process(root: Path) -> list[str]:
    command = [sys.executable, "-c", TAGS_OF_A_PROCESS, str(root)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def elsewhere(tags: list[str], old: str, new: str) -> list[str]:
    changed = [tag.replace(old, new) for tag in tags]
    assert changed != tags
    return changed


def test_close_dead_runs_closes_runs_of_our_dead_processes_and_no_others(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    dead, alive = tags_of_a_dead_process(tmp_path), tags_here(tmp_path)
    boot, namespace = process.machine_id().split("/")
    cases = {
        "dead": (dead, Running()),
        "dead before it began": (dead, Pending()),
        "of an earlier boot": (elsewhere(alive, boot, "00000000-earlier"), Running()),
        "of a reused pid": ([f"{tag}0" if tag.startswith("process:") else tag for tag in alive],
                            Running()),
        "alive": (alive, Running()),
        "alive at the second attempt": ([*dead, *alive], Running()),
        "somebody's": ([], Running()),
        "of another project": (tags_of_a_dead_process(tmp_path / "other"), Running()),
        "of another host": (elsewhere(dead, "host:", "host:not-"), Running()),
        "of another container": (elsewhere(dead, namespace, "pid:[1]"), Running()),
    }  # fmt: skip
    runs = {
        name: client.create_flow_run(anything, tags=tags, state=state)
        for name, (tags, state) in cases.items()
    }
    assert close_dead_runs(tmp_path / "link") == 4
    states = {name: client.read_flow_run(run.id).state_type for name, run in runs.items()}
    crashed = {name for name, state in states.items() if state and state.value == "CRASHED"}
    assert crashed == {"dead", "dead before it began", "of an earlier boot", "of a reused pid"}
    assert close_dead_runs(tmp_path) == 0


def test_flow_run_of_a_command_says_whose_it_is(
    client: SyncPrefectClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(services, "log_sentences", lambda: None)
    seen: list[str] = []

    @flow(name="seen", persist_result=False)
    def see() -> None:
        from prefect import runtime

        seen.extend(runtime.flow_run.tags)

    commands._with_server(see)
    assert sorted(seen) == tags_here(tmp_path)
