"""The tracking store: the only module that imports MLflow. `tasks.shipping` decides what goes in.

An explicit client with an explicit address and explicit run ids; never the fluent API, which is
thread-local. Trouble with the tracker never stops a training: it is caught in `shipping` and
nowhere else, logged, and returned as a `TrackingOutcome` that is not `ok`.

`mlflow` takes 2 s to import, so it is imported where a client is made, not with this module.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from dynamicrubric.errors import UserError
from tasks.locks import HeldLock, SlotLock
from tasks.payload import Point
from tasks.process import machine_id, start_ticks
from tasks.trackerserver import ENVIRONMENT, FOLDER, default_uri, own_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

logger = logging.getLogger(__name__)

EXPERIMENT: Final = "dynamicrubric"
LOCKS: Final = "work/locks"
MAX_METRICS_A_CALL: Final = 1000
MAX_PARAMS_A_CALL: Final = 100
_FOR_SHIPPING: Final = (
    "mlflow",
    "mlflow.db",
    "mlflow.store.tracking.sqlalchemy_store",
    "pyarrow.csv",
    "pyarrow.parquet",
)
T = TypeVar("T")
Status = Literal["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True)
class TrackingOutcome:
    """What became of something that was to be shipped.

    Attributes:
        ok: it is in the tracker.
        reason: why it is not; empty if it is.
        run_ids: the runs that hold it.
    """

    ok: bool
    reason: str = ""
    run_ids: tuple[str, ...] = ()

    @property
    def run_id(self) -> str | None:
        """The first run, if there is one."""
        return self.run_ids[0] if self.run_ids else None


def shipping(doing: str, act: Callable[[], Sequence[str]]) -> TrackingOutcome:
    """Run what talks to the tracker: the one place where the tracker's trouble is caught.

    Args:
        doing: what is being done, for the log ("tracking coevolved-s1-r2").
        act: does it and returns the ids of the runs it wrote to.
    """
    try:
        return TrackingOutcome(ok=True, run_ids=tuple(act()))
    except _trouble() as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        logger.warning("%s: %s (training goes on; nothing on disk is lost)", doing, reason)
        return TrackingOutcome(ok=False, reason=f"{doing}: {reason}")


def prepare_store(root: Path) -> TrackingOutcome:
    """Create or migrate the store, once, before anyone writes; safe if many start at once."""

    def act() -> tuple[str, ...]:
        open_store(root)
        return ()

    return shipping("preparing the tracking store", act)


@dataclass(frozen=True)
class Store:
    """An open tracking store. Its methods raise what `shipping` catches."""

    client: MlflowClient
    uri: str
    experiment_id: str
    owner: int
    """The process that the runs belong to: they are orphans when it is gone."""

    def find(self, **tags: object) -> list[Run]:
        """Return the active runs with these `dr.` tags, the oldest first."""
        wanted = " and ".join(f"tags.`dr.{name}` = '{value}'" for name, value in tags.items())
        found: list[Run] = []
        token: str | None = None
        while True:
            page = self.client.search_runs(
                [self.experiment_id], wanted, order_by=["attributes.start_time"], page_token=token
            )
            found += page
            token = page.token
            if not token:
                return found

    def create(self, name: str, tags: Mapping[str, str]) -> str:
        """Start a run of the owner's."""
        tags = {**tags, **_owner(self.owner)}
        run = self.client.create_run(self.experiment_id, run_name=name, tags=tags)
        return str(run.info.run_id)

    def adopt(self, run_id: str) -> None:
        """Make a run RUNNING and the owner's."""
        self.send_tags(run_id, _owner(self.owner))
        self.client.update_run(run_id, status="RUNNING")

    def close(self, run_id: str, status: Status, reason: str = "") -> None:
        """Set a run's status, and say why if it did not finish."""
        if reason:
            self.send_tags(run_id, {"dr.reason": reason[:500]})
        if status == "SCHEDULED":  # not an end: no end time
            self.client.update_run(run_id, status=status)
        else:
            self.client.set_terminated(run_id, status=status)

    def close_quietly(self, run_id: str, reason: str) -> None:
        """Mark a run FAILED if the tracker lets us: it is failing already."""
        with suppress(*_trouble()):
            self.close(run_id, "FAILED", reason)

    def replace(self, old: Iterable[Run], new: str) -> None:
        """Put runs aside (restorable, their status kept) for the one that takes their place."""
        for run in old:
            if run.info.run_id == new:
                continue
            if is_running(run):
                self.close(run.info.run_id, "KILLED", "its process ended without a word")
            self.send_tags(run.info.run_id, {"dr.replaced_by": new})
            self.client.delete_run(run.info.run_id)

    def send_points(self, run_id: str, points: Iterable[Point], timestamp_ms: int) -> None:
        """Log finite values, in calls of at most a thousand; equal points count once."""
        from mlflow.entities import Metric

        metrics = [Metric(p.key, float(p.value), timestamp_ms, p.step) for p in points]
        for chunk in _chunks(metrics, MAX_METRICS_A_CALL):
            self.client.log_batch(run_id, metrics=chunk)

    def send_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Log short scalars; a run's params cannot be changed afterwards."""
        from mlflow.entities import Param

        for chunk in _chunks(params.items(), MAX_PARAMS_A_CALL):
            self.client.log_batch(run_id, params=[Param(key, value) for key, value in chunk])

    def send_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags."""
        from mlflow.entities import RunTag

        for chunk in _chunks(tags.items(), MAX_PARAMS_A_CALL):
            self.client.log_batch(run_id, tags=[RunTag(key, value) for key, value in chunk])


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    whole = list(items)
    for start in range(0, len(whole), size):
        yield whole[start : start + size]


def writing(root: Path, what: str) -> HeldLock:
    """Hold the lock of all who make or replace runs: two would make the same run twice."""
    return SlotLock(root / LOCKS / "mlflow-runs", 1).acquire(what)


def is_shipped(run: Run, content: str) -> bool:
    """Say whether a run holds this content, whole."""
    return str(run.info.status) == "FINISHED" and run.data.tags.get("dr.content") == content


def is_running(run: Run) -> bool:
    """Say whether a run is marked RUNNING."""
    return str(run.info.status) == "RUNNING"


def is_orphan(run: Run) -> bool:
    """Say whether a run is RUNNING though its process, on this machine, is gone."""
    tags = run.data.tags
    if not is_running(run) or tags.get("dr.host") != socket.gethostname():
        return False
    if tags.get("dr.boot_id") != machine_id():
        return True  # the machine was started anew since then
    return str(start_ticks(int(tags["dr.pid"]))) != tags.get("dr.proc_start")


def _owner(pid: int) -> dict[str, str]:
    return {
        "dr.host": socket.gethostname(),
        "dr.boot_id": machine_id(),
        "dr.pid": str(pid),
        "dr.proc_start": str(start_ticks(pid)),
    }


def open_store(root: Path, owner: int | None = None) -> Store:
    """Open the store of a project; its database is made or migrated first, under a lock.

    Args:
        root: the project's folder.
        owner: the process that the runs made belong to; this one if it is not given.

    Raises:
        UserError: the project was moved and the store's files are elsewhere.
    """
    _settle_environment()
    from mlflow import MlflowClient

    owner = os.getpid() if owner is None else owner
    uri, artifacts = default_uri(root), (root / FOLDER / "artifacts").resolve().as_uri()
    local = uri.startswith("sqlite:///")
    with SlotLock(root / LOCKS / "mlflow-store", 1).acquire("preparing the tracking store"):
        if local:
            _migrate(uri)
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            made = client.create_experiment(EXPERIMENT, artifacts if local else None)
            return Store(client, uri, made, owner)
    if uri == own_uri(root) and experiment.artifact_location != artifacts:
        raise UserError(
            doing="opening the tracking store",
            got=f"a store that keeps its files in {experiment.artifact_location}",
            expected=artifacts,
            remedy=f"the project was moved: remove {root / FOLDER}, its runs are shipped anew",
        )
    return Store(client, uri, experiment.experiment_id, owner)


def _migrate(uri: str) -> None:
    """Bring a SQLite file to MLflow's present schema: `mlflow db upgrade`.

    A new database is made beside its place and renamed, so a kill half-way leaves none instead of
    a broken one. SQLite itself is tried first: MLflow would try ten times, for two minutes.
    """
    from mlflow.db import upgrade

    assert upgrade.callback is not None, "`mlflow db upgrade` is a command"
    database = Path(uri.removeprefix("sqlite:///"))
    database.parent.mkdir(parents=True, exist_ok=True)
    if database.exists():
        with closing(sqlite3.connect(database, timeout=20)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # raises if locked, read-only or no database
        upgrade.callback(uri)
        return
    with tempfile.TemporaryDirectory(dir=database.parent, prefix=".new-") as folder:
        made = Path(folder) / database.name
        upgrade.callback(f"sqlite:///{made}")
        made.rename(database)


def import_tracker() -> None:
    """Import all that shipping needs, for a process whose forks are to ship."""
    _trouble()
    for name in _FOR_SHIPPING:
        importlib.import_module(name)


def _settle_environment() -> None:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)  # 50 lines for each new database


def _trouble() -> tuple[type[Exception], ...]:
    """What a failing tracker looks like: it, its database, its network, our own lock and disk."""
    _settle_environment()
    from alembic.util.exc import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return (MlflowException, SQLAlchemyError, CommandError, sqlite3.Error, OSError, UserError)
