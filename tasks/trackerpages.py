"""Where the tracker shows a round: links for the pages of the Prefect UI."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dynamicrubric.plan import Plan
from tasks.tracking import Store, open_store, shipping, tracker_page

PAGE: Final = "DYNAMICRUBRIC_MLFLOW_PAGE"
"""Where `make ui` serves the runs of a local store, when it is not the default."""
DEFAULT_PAGE: Final = "http://127.0.0.1:5000"

Links = Mapping[str, Sequence[tuple[str, str]]]
"""By cell: the name and the address of each of its runs (one for each arm that it is a part of)."""


def run_address(root: Path, run_id: str) -> str:
    """Return the address of a run's page: the tracking server's, or that of `make ui`."""
    page = tracker_page(root) or os.environ.get(PAGE) or DEFAULT_PAGE
    return f"{page.rstrip('/')}/#/runs/{run_id}"


class TrackerPages:
    """Looks up the runs of a plan's cells; a tracker that is away has none."""

    def __init__(self, plan: Plan, root: Path) -> None:
        self._root = root
        self._keys = {cell.id: key for key, cell in (plan.starts | plan.cells).items()}
        self._store: Store | None = None

    def links(self) -> Links:
        """Return the runs that there are now."""
        found: dict[str, list[tuple[str, str]]] = {}

        def act() -> tuple[str, ...]:
            self._store = self._store or open_store(self._root)
            for run in self._store.find(kind="round"):
                key = self._keys.get(run.data.tags.get("dr.cell_id", ""))
                if key is not None:
                    address = run_address(self._root, run.info.run_id)
                    found.setdefault(key, []).append((str(run.info.run_name), address))
            return ()

        shipping("looking up the runs of the rounds", act)
        return found
