"""Where the tracker shows a study's rounds: looked up now and then, kept while it is away."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dynamicrubric.config import load_config
from dynamicrubric.plan import expand
from tasks import trackerpages
from tasks.trackerpages import TrackerPages

PARAMS = Path(__file__).resolve().parents[1] / "flows" / "params.yaml"
KEY = "coevolved-s1-r1"


class Tracker:
    """Stands for the tracking store: its runs, or an error that it raises."""

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.error: Exception | None = None

    def find(self, **tags: object) -> list[Any]:
        if self.error is not None:
            raise self.error
        return list(self.runs)


def run_of(cell_id: str, number: int) -> Any:
    info = SimpleNamespace(run_id=f"run{number}", run_name=f"name {number}")
    return SimpleNamespace(info=info, data=SimpleNamespace(tags={"dr.cell_id": cell_id}))


def test_links_are_looked_up_now_and_then_and_kept_while_the_tracker_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker, plan = Tracker(), expand(load_config(PARAMS))
    monkeypatch.setattr(trackerpages, "open_store", lambda root: tracker)
    pages = TrackerPages(plan, tmp_path)
    cell_id = plan.cell(KEY).id
    tracker.runs = [run_of(cell_id, 1), run_of("another study's", 2)]
    first = pages.links()
    assert [name for name, _ in first[KEY]] == ["name 1"]
    tracker.runs.append(run_of(cell_id, 3))
    assert pages.links() == first
    assert [name for name, _ in pages.links(now=True)[KEY]] == ["name 1", "name 3"]
    tracker.error = OSError("the tracker is away")
    assert [name for name, _ in pages.links(now=True)[KEY]] == ["name 1", "name 3"]
