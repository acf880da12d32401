"""What a round sends to the tracker, gathered from finished artefacts; no tracker in here.

Gathering may fail loudly (a missing artefact, a metric that is not on the list): that is no
tracking trouble. Shipping (`tasks.tracking`) may not stop a training.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dynamicrubric.config import Config, resolve_arm
from dynamicrubric.metrics import NONFINITE_SUFFIX, tracker_keys
from dynamicrubric.plan import Cell, Plan
from dynamicrubric.report.cellfiles import EVALUATION, CellFiles, load_cell
from dynamicrubric.report.samples import rubric_samples
from dynamicrubric.yamlio import load_yaml
from tasks.disk import link_or_copy
from tasks.identity import JSON, canonical_json, hash_of

MAX_PARAM_LETTERS: Final = 500
MAX_TABLE_BYTES: Final = 16 * 2**20
NUM_SAMPLE_ROWS: Final = 200
TABLES: Final = ("rubrics", "verdicts", "responses")
STUDY_TAG: Final = "dr.study."
"""Begins the name of each study's tag."""


@dataclass(frozen=True)
class Point:
    """One value of one metric at one step."""

    key: str
    value: float
    step: int


@dataclass(frozen=True)
class RoundPayload:
    """Everything about one finished cell.

    Attributes:
        files: the cell's artefacts.
        round_points: round metrics at step = round, for the arm's run and the round's own.
        training_points: training metrics at step = training step.
        unscored: names of round metrics that have no value.
        created_ms: when the cell was finished: points sent twice are equal points.
    """

    files: CellFiles
    round_points: tuple[Point, ...]
    training_points: tuple[Point, ...]
    unscored: tuple[str, ...]
    created_ms: int

    @property
    def cell(self) -> Cell:
        """The cell."""
        return self.files.cell


def gather_round(plan: Plan, key: str, root: Path) -> RoundPayload:
    """Read and check what a finished cell sends, tables included.

    Raises:
        UserError: the cell is not finished, or altered.
        AssertionError: a metric is not on the fixed list.
    """
    files = load_cell(root, plan.cell(key))
    measured = files.round_metrics()
    for name in TABLES:
        files.file(EVALUATION, f"{name}.parquet")  # an altered one is no trouble of the tracker's
    number = files.cell.recipe.round
    return RoundPayload(
        files=files,
        round_points=tuple(
            Point(name, found.value, number)
            for name, found in measured.items()
            if found.value is not None
        ),
        training_points=tuple(
            Point(f"{step.role}/{name}", float(value), step.step)
            for step in files.training_steps()
            for name, value in step.metrics.items()
        ),
        unscored=tuple(name for name, found in measured.items() if found.value is None),
        created_ms=files.created_ms,
    )


def sendable(points: Iterable[Point]) -> list[Point]:
    """Leave out non-finite values; count them under `<name>_nonfinite` instead.

    A tracker shows NaN as a broken page and stores infinity as 1.8e308; the last finite value
    stays the metric's latest.

    >>> [p.key for p in sendable([Point("kl", 0.5, 1), Point("kl", math.nan, 2)])]
    ['kl', 'kl_nonfinite']
    """
    allowed, counts, kept = tracker_keys(), dict[str, int](), []
    for point in points:
        assert point.key in allowed, f"metric {point.key!r} is not in dynamicrubric.metrics"
        if math.isfinite(point.value):
            kept.append(point)
            continue
        counts[point.key] = counts.get(point.key, 0) + 1
        kept.append(Point(point.key + NONFINITE_SUFFIX, counts[point.key], point.step))
    return kept


def short_params(document: Mapping[str, Any], place: str = "") -> dict[str, str]:
    """Flatten a config to its short scalars; the whole of it travels as an artefact.

    >>> short_params({"policy": {"steps": 60}, "responses_per_set": 8})
    {'policy.steps': '60', 'responses_per_set': '8'}
    """
    found: dict[str, str] = {}
    for name, value in document.items():
        key = f"{place}.{name}" if place else name
        if isinstance(value, Mapping):
            found |= short_params(value, key)
        elif isinstance(value, str | int | float | bool) and len(str(value)) <= MAX_PARAM_LETTERS:
            found[key] = str(value)
    return found


def path_hash(plan: Plan, arm: str, seed: int) -> str:
    """Return what names an arm's run: a hash of its cells' ids.

    Another arm's change leaves it as it is, so the arm's finished rounds stay in their run.
    """
    return hash_of([plan.cell(key).id for key in plan.paths[(arm, seed)]])[:16]


def study_tag(plan: Plan) -> str:
    """Return the name of a study's own tag, which holds a hash of all its paths.

    A tag a study, since studies share arms. The `h` lets the name be searched for without
    backticks: the tracker's filters read digits after a dot as a number.
    """
    paths: list[JSON] = [[arm, seed, path_hash(plan, arm, seed)] for arm, seed in plan.paths]
    return f"{STUDY_TAG}h{hash_of(paths)[:8]}"


def arm_params(plan: Plan, config: Config, arm: str, seed: int) -> dict[str, str]:
    """Return the short scalars of an arm's full recipe."""
    recipe = short_params(resolve_arm(config, arm).model_dump(mode="json"))
    rounds = len(plan.paths[(arm, seed)]) - 1
    return {"arm": arm, "seed": str(seed), "rounds": str(rounds)} | recipe


def config_text(config: Config) -> str:
    """Return the whole config as canonical JSON; its hash is a tag."""
    return canonical_json(config.model_dump(mode="json"))


def write_tables(payload: RoundPayload, folder: Path) -> None:
    """Lay a round's tables and samples out as they appear in the tracker.

    Whole tables up to `MAX_TABLE_BYTES` (larger ones are named by the records' hashes), the first
    rows of each as CSV, sample rubrics as markdown, the recipe and the counted metrics as JSON.
    """
    import pyarrow.csv
    import pyarrow.parquet

    (folder / "tables").mkdir(parents=True)
    (folder / "config").mkdir()
    for name in TABLES:
        source = payload.files.file(EVALUATION, f"{name}.parquet")
        if source.stat().st_size <= MAX_TABLE_BYTES:
            link_or_copy(source, folder / "tables" / source.name)
        head = pyarrow.parquet.read_table(source).slice(0, NUM_SAMPLE_ROWS)
        pyarrow.csv.write_csv(head, folder / "tables" / f"{name}_sample.csv")
    metrics = payload.files.file(EVALUATION, "metrics.json")
    (folder / "tables" / "metrics.json").write_bytes(metrics.read_bytes())
    (folder / "rubric_samples.md").write_text(rubric_samples(payload.files), encoding="utf-8")
    recipe = payload.cell.recipe.model_dump(mode="json")
    text = json.dumps(recipe, indent=1, sort_keys=True)
    (folder / "config" / "recipe.json").write_text(text + "\n", encoding="utf-8")


def dvc_hashes(root: Path, cells: Iterable[Cell]) -> dict[str, dict[str, str]]:
    """Return the MD5 that dvc.lock has for each out of each cell, by cell key.

    Inside a running stage dvc.lock still describes the stage's last run, so an entry counts only
    if its parameters name the cell's present id.
    """
    lock = root / "dvc.lock"
    if not lock.is_file():
        return {}
    stages = (load_yaml(lock).get("stages") or {}).values()
    found: dict[str, dict[str, str]] = {}
    for cell in cells:
        for stage in stages:
            outs = {
                out["path"]: str(out["md5"])
                for out in stage.get("outs", [])
                if out["path"].startswith(f"{cell.directory}/") and "md5" in out
            }
            if outs and cell.id in json.dumps(stage.get("params", {})):
                found.setdefault(cell.key, {}).update(outs)
    return found
