"""What goes to the tracker: one run an arm and seed, and under it one a round.

Files come first: workers write artefacts and logs, and this ships what is finished. A cell that
arms share has a run under each of them. Shipping twice changes nothing, so `ship_study` also fills
in what a tracker that was away has missed. The comparison goes there by `tasks.shipcomparison`.

Arms and rounds may be parts of several studies: each study has a tag of its own (`study_tag`) on
all its runs, which is added and never taken away.

A run's status comes from the round's result alone. An arm's run is SCHEDULED between its rounds and
FINISHED once all of them are. A process that died leaves RUNNING, which `reconcile` turns into
KILLED; the next attempt at that round puts such a run aside and makes a new one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.config import Config
from dynamicrubric.plan import Cell, Plan
from dynamicrubric.report.cellfiles import EVALUATION, find_cell
from dynamicrubric.report.text import markdown_inline
from tasks.identity import hash_of
from tasks.payload import (
    STUDY_TAG,
    Point,
    RoundPayload,
    arm_params,
    config_text,
    dvc_hashes,
    gather_round,
    path_hash,
    sendable,
    short_params,
    study_tag,
    write_tables,
)
from tasks.tracking import (
    Status,
    Store,
    TrackingOutcome,
    is_orphan,
    is_running,
    is_shipped,
    open_store,
    shipping,
    writing,
)

if TYPE_CHECKING:
    from mlflow.entities import Run

PARENT: Final = "mlflow.parentRunId"
COMMIT: Final = "mlflow.source.git.commit"
NOTE: Final = "mlflow.note.content"


def open_round(
    plan: Plan, key: str, root: Path, config: Config, *, owner: int | None = None
) -> TrackingOutcome:
    """Show a round as RUNNING, under every arm that it is a part of, until `owner` is gone.

    Optional; without an `owner` it is this process.
    """
    cell = plan.cell(key)

    def act() -> Iterator[str]:
        store = open_store(root, owner)
        with writing(root, f"opening {key}"):
            for parent, arm, seed in _parents(store, plan, key, config):
                store.adopt(parent)
                yield _claim(store, plan, cell, parent, arm, seed)

    return shipping(f"opening {key} in the tracker", lambda: tuple(act()))


def close_round(plan: Plan, key: str, root: Path, *, reason: str) -> TrackingOutcome:
    """Mark as FAILED the runs that `open_round` made for a round that did not finish."""

    def act() -> Iterator[str]:
        store = open_store(root)
        with writing(root, f"closing {key}"):
            for run in store.find(cell_id=plan.cell(key).id):
                if is_running(run):
                    store.close(run.info.run_id, "FAILED", reason)
                    store.close(run.data.tags[PARENT], "FAILED", f"round {key}: {reason}")
                    yield str(run.info.run_id)

    return shipping(f"closing {key} in the tracker", lambda: tuple(act()))


def ship_round(plan: Plan, key: str, root: Path, config: Config) -> TrackingOutcome:
    """Ship a finished cell to a run under every arm that it is a part of.

    Args:
        plan: the lattice of cells.
        key: a cell of any round.
        root: the project's folder.
        config: the whole config; it travels with the arm's run.

    Returns:
        Whether it is in the tracker, and the round's runs.

    Raises:
        UserError: the cell is not finished, or altered: that is no tracking trouble.
    """
    payload = gather_round(plan, key, root)

    def act() -> tuple[str, ...]:
        return _ship(open_store(root), plan, payload, root, config)

    return shipping(f"tracking {key}", act)


def ship_study(plan: Plan, root: Path, config: Config) -> TrackingOutcome:
    """Ship every finished cell that the tracker has not got, and all cells' DVC hashes.

    DVC writes dvc.lock after a stage's command, so a round's own stage cannot know its hashes.
    """
    keys = dict.fromkeys(key for path in plan.paths.values() for key in path)
    finished = [cell for cell in map(plan.cell, keys) if find_cell(root, cell) is not None]
    payloads = [gather_round(plan, cell.key, root) for cell in finished]
    hashes = dvc_hashes(root, finished)

    def act() -> Iterator[str]:
        store = open_store(root)
        for payload in payloads:
            tags = {f"dvc.{out}": md5 for out, md5 in hashes.get(payload.cell.key, {}).items()}
            for run_id in _ship(store, plan, payload, root, config):
                store.send_tags(run_id, tags)
                yield run_id

    return shipping("tracking the study", lambda: tuple(act()))


def reconcile(root: Path) -> TrackingOutcome:
    """Close as KILLED every RUNNING run whose process is gone; return those closed."""

    def act() -> Iterator[str]:
        store = open_store(root)
        with writing(root, "closing the runs of dead processes"):
            for run in store.client.search_runs(
                [store.experiment_id], "attributes.status = 'RUNNING'", max_results=50_000
            ):
                if is_orphan(run):
                    store.close(run.info.run_id, "KILLED", "its process ended without a word")
                    yield str(run.info.run_id)

    return shipping("closing the runs of dead processes", lambda: tuple(act()))


def _ship(
    store: Store, plan: Plan, payload: RoundPayload, root: Path, config: Config
) -> tuple[str, ...]:
    with writing(root, f"tracking {payload.cell.key}"):
        return tuple(
            _ship_under(store, plan, payload, parent, arm, seed)
            for parent, arm, seed in _parents(store, plan, payload.cell.key, config)
        )


def _ship_under(
    store: Store, plan: Plan, payload: RoundPayload, parent: str, arm: str, seed: int
) -> str:
    """Ship a round to one arm's run; return the round's run."""
    cell, content = payload.cell, payload.files.content_hash
    for run in store.find(cell_id=cell.id, parent=parent):
        if is_shipped(run, content):
            _add_tag(store, run, study_tag(plan))
            _settle(store, plan, parent, arm, seed)
            return str(run.info.run_id)
    store.adopt(parent)
    run_id = _claim(store, plan, cell, parent, arm, seed)
    try:
        _fill(store, run_id, payload)
        points = sendable(payload.round_points)
        if cell.recipe.round == len(plan.paths[(arm, seed)]) - 1:
            points += sendable(
                # At step 0: one value without a course, which the chart view draws as a bar.
                Point(f"final/{point.key}", point.value, 0)
                for point in payload.round_points
            )
        store.send_points(parent, points, payload.created_ms)
    except BaseException:
        store.close_quietly(run_id, "shipping it failed")
        raise
    store.close(run_id, "FINISHED")
    _settle(store, plan, parent, arm, seed)
    return run_id


def _fill(store: Store, run_id: str, payload: RoundPayload) -> None:
    """Send a round's metrics, params, tags and tables to its run."""
    files = payload.files
    recipe = payload.cell.recipe.model_dump(mode="json")
    store.send_params(run_id, short_params(recipe))
    store.send_points(
        run_id,
        [*sendable(payload.round_points), *sendable(payload.training_points)],
        payload.created_ms,
    )
    with tempfile.TemporaryDirectory() as folder:
        write_tables(payload, Path(folder))
        store.client.log_artifacts(run_id, folder)
    commit = files.records[EVALUATION]["provenance"].get("git_commit")
    hashes = {f"dr.artefact.{name}": value for name, value in files.content_hashes.items()}
    tags = {"dr.recipe_hash": hash_of(recipe), "dr.folder": payload.cell.directory}
    tags |= {"dr.unscored": ", ".join(payload.unscored)} if payload.unscored else {}
    tags |= {COMMIT: str(commit)} if commit else {}
    store.send_tags(run_id, hashes | tags | {"dr.content": files.content_hash})


def _parents(store: Store, plan: Plan, key: str, config: Config) -> Iterator[tuple[str, str, int]]:
    """Find or make the run of each arm and seed whose path holds the cell."""
    for (arm, seed), path in plan.paths.items():
        if key not in path:
            continue
        name = {"kind": "arm", "arm": arm, "seed": seed, "path": path_hash(plan, arm, seed)}
        found = store.find(**name)
        if not found:
            yield _make_parent(store, plan, config, name), arm, seed
            continue
        _add_tag(store, found[0], study_tag(plan))
        yield str(found[0].info.run_id), arm, seed


def _add_tag(store: Store, run: Run, name: str) -> None:
    if name not in run.data.tags:
        store.send_tags(run.info.run_id, {name: "1"})


def _make_parent(store: Store, plan: Plan, config: Config, name: Mapping[str, object]) -> str:
    arm, seed = str(name["arm"]), int(str(name["seed"]))
    text = config_text(config)
    tags = {f"dr.{key}": str(value) for key, value in name.items()}
    tags |= {study_tag(plan): "1", "dr.config_hash": hash_of(config.model_dump(mode="json"))}
    tags[NOTE] = markdown_inline(config.study.arms[arm].question)
    run_id = store.create(f"{arm} s{seed}", tags)
    store.send_params(run_id, arm_params(plan, config, arm, seed))
    store.client.log_text(run_id, text, "config/params.json")
    return run_id


def _claim(store: Store, plan: Plan, cell: Cell, parent: str, arm: str, seed: int) -> str:
    """Return this round's own run under an arm's: one left open by us, or a new one.

    Whatever else stands there for this round (of a dead process, failed, or of older results) is
    put aside.
    """
    there = store.find(parent=parent, round=cell.recipe.round)
    ours = [
        run
        for run in there
        if is_running(run) and not is_orphan(run) and run.data.tags.get("dr.cell_id") == cell.id
    ]
    # What is put aside was a part of other studies too: so is what takes its place.
    studies = {name: "1" for run in there for name in run.data.tags if name.startswith(STUDY_TAG)}
    studies[study_tag(plan)] = "1"
    if ours:
        run_id = str(ours[0].info.run_id)
        store.send_tags(run_id, studies)
        store.adopt(run_id)
    else:
        tags = {
            PARENT: parent,
            "dr.kind": "round",
            "dr.parent": parent,
            "dr.arm": arm,
            "dr.seed": str(seed),
            "dr.round": str(cell.recipe.round),
            "dr.cell": cell.key,
            "dr.cell_id": cell.id,
            **studies,
        }
        run_id = store.create(f"{arm} s{seed} round {cell.recipe.round}", tags)
    store.replace(there, run_id)
    return run_id


def _settle(store: Store, plan: Plan, parent: str, arm: str, seed: int) -> None:
    """Set an arm's status: FINISHED once the runs of all its cells are, SCHEDULED before.

    It stays RUNNING while another of its rounds is: round 0 is measured beside round 1.
    """
    wanted = {plan.cell(key).id for key in plan.paths[(arm, seed)]}
    rounds = store.find(kind="round", parent=parent)
    if any(is_running(run) and not is_orphan(run) for run in rounds):
        return
    finished = {
        run.data.tags.get("dr.cell_id") for run in rounds if str(run.info.status) == "FINISHED"
    }
    status: Status = "FINISHED" if wanted <= finished else "SCHEDULED"
    if str(store.client.get_run(parent).info.status) != status:
        store.close(parent, status)
