"""Where the tracker shows a round: links for the pages of the Prefect UI."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dynamicrubric.plan import Plan
from tasks.trackerserver import tracker_page
from tasks.tracking import Store, open_store, shipping

PAGE: Final = "DYNAMICRUBRIC_MLFLOW_PAGE"
"""Where `make ui` serves the runs of a local store, when it is not the default."""
LOOK_SECONDS: Final = 60.0
"""A look takes a second of processor time for a few hundred runs; the trainings want that too."""
DEFAULT_PAGE: Final = "http://127.0.0.1:5000"

Links = Mapping[str, Sequence[tuple[str, str]]]
"""By cell: the name and the address of each of its runs (one for each arm that it is a part of)."""


def run_address(root: Path, run_id: str) -> str:
    """Return the address of a run's page: the tracking server's, or that of `make ui`."""
    page = tracker_page(root) or os.environ.get(PAGE) or DEFAULT_PAGE
    return f"{page.rstrip('/')}/#/runs/{run_id}"


class TrackerPages:
    """Looks up the runs of a plan's cells; while the tracker is away, those known count."""

    def __init__(self, plan: Plan, root: Path) -> None:
        self._root = root
        self._keys = {cell.id: key for key, cell in (plan.starts | plan.cells).items()}
        self._store: Store | None = None
        self._known: Links = {}
        self._looked: float | None = None

    def links(self, *, now: bool = False) -> Links:
        """Return the runs that there were a minute ago, or later; with `now`, those there are."""
        if now or self._looked is None or time.monotonic() - self._looked > LOOK_SECONDS:
            self._known = self._look()
            self._looked = time.monotonic()
        return self._known

    def _look(self) -> Links:
        found: dict[str, list[tuple[str, str]]] = {}

        def act() -> tuple[str, ...]:
            self._store = self._store or open_store(self._root)
            for run in self._store.find(kind="round"):
                key = self._keys.get(run.data.tags.get("dr.cell_id", ""))
                if key is not None:
                    address = run_address(self._root, run.info.run_id)
                    found.setdefault(key, []).append((str(run.info.run_name), address))
            return ()

        outcome = shipping("looking up the runs of the rounds", act)
        return found if outcome.ok else self._known
