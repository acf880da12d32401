"""What the folder of a finished cell says: metrics, seconds, training logs and lineage hashes.

A cell exists only through the records of its artefacts (`record.json`, written last); a file is
read only if it is the one its record names. A cell is finished once `cell.json` says which plan's
cell those artefacts are: after a changed number the folder still holds the old plan's results under
the same key. Everything here is plain data: no torch, no tracker.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dynamicrubric.errors import UserError
from dynamicrubric.evaluatorkinds import KEEPS_RUBRICS, SCORED
from dynamicrubric.metrics import (
    ALL_ROUND_METRICS,
    ANCHOR_METRICS,
    DERIVED_METRICS,
    ROLES,
    ROUND_METRICS,
    TRAINING_METRICS,
)
from dynamicrubric.plan import Cell
from dynamicrubric.theory import c_k_of, wrong_way_share

EVALUATION: Final = "evaluation"
METRICS_FILE: Final = "metrics.json"
CELL_FILE: Final = "cell.json"
"""An out of the cell's stage, beside the artefacts: which cell and which artefacts they are."""
TRAINING_LOG: Final = "training_log.jsonl"
GAP_PARTS: Final = ("delta_gap", "r_disc", "r_dir", "r_cov")
ORDER_METRICS: Final = ("rank_accuracy", "tie_rate")
SET_METRICS: Final = (*GAP_PARTS, *ORDER_METRICS, "valid_rubric_rate", "items_per_rubric")
"""Figures that count response sets, those of one tuple the same ones."""
IDENTITY_TOLERANCE: Final = 1e-9
RUN_IT: Final = "run `make reproduce`, or `dvc pull` if the study was finished elsewhere"
COUNT_TOLERANCE: Final = 1e-6
REMEDY: Final = "remove the folder and run the study again, which makes it anew"


@dataclass(frozen=True)
class Measured:
    """A mean over what could be scored; `value` is None exactly when nothing could."""

    value: float | None
    n_scored: int
    n_total: int


@dataclass(frozen=True)
class TrainingStep:
    """One line of a training log."""

    role: str
    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class CellFiles:
    """The finished artefacts of one cell.

    Attributes:
        cell: the cell.
        folder: its folder.
        records: content of each artefact's record.json, by artefact name.
    """

    cell: Cell
    folder: Path
    records: Mapping[str, Mapping[str, Any]]

    @property
    def content_hashes(self) -> dict[str, str]:
        """Content hash of each artefact."""
        return {name: str(record["content_hash"]) for name, record in self.records.items()}

    @property
    def content_hash(self) -> str:
        """One hash over the cell's artefacts: equal results have equal hashes."""
        text = json.dumps(self.content_hashes, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()

    @property
    def document(self) -> dict[str, Any]:
        """What `cell.json` says of these artefacts as this plan's cell.

        The hash, not the id: arms that share a cell may give it another key. The artefacts too: a
        round that was stopped half-way under another plan leaves an older `cell.json` beside them.
        """
        return {"cell": self.cell.hash, "artefacts": self.content_hashes}

    @property
    def seconds(self) -> float:
        """Wall seconds of all steps of the cell."""
        return sum(float(record["provenance"]["seconds"]) for record in self.records.values())

    @property
    def created_ms(self) -> int:
        """When the evaluation was finished, in milliseconds since 1970."""
        created = datetime.fromisoformat(self.records[EVALUATION]["provenance"]["created"])
        return int(created.timestamp() * 1000)

    def file(self, artefact: str, name: str) -> Path:
        """Return a file of an artefact after comparing it with the artefact's record.

        Raises:
            UserError: the record does not name it, or its bytes are not those recorded.
        """
        return checked_file(self.folder / artefact / name, self.records.get(artefact))

    def round_metrics(self) -> dict[str, Measured]:
        """Return every round metric, checked, in the order of the fixed list.

        Those of anchors are there where held-out prompts have anchor lists: all of them, or none.

        Raises:
            UserError: a metric is missing, unknown, out of bounds, or its counts are impossible;
                or an identity between figures does not hold.
        """
        path = self.file(EVALUATION, METRICS_FILE)
        stored = json.loads(path.read_text(encoding="utf-8"))["metrics"]
        expected = set(ROUND_METRICS) - {"seconds", *DERIVED_METRICS}
        if set(stored) & set(ANCHOR_METRICS):
            expected |= set(ANCHOR_METRICS)
        if set(stored) != expected:
            raise _fault(
                path,
                f"missing {sorted(expected - set(stored))}, "
                f"unknown {sorted(set(stored) - expected)}",
                "the fixed list",
            )
        found = {name: Measured(**stored[name]) for name in ALL_ROUND_METRICS if name in stored}
        found["seconds"] = Measured(self.seconds, len(self.records), len(self.records))
        for name, measured in found.items():
            _check_measured(path, name, measured)
        recipe = self.cell.recipe
        _check_identities(path, found, recipe.responses_per_set, recipe.rubrics.evaluator)
        found |= derived_metrics(found, self.cell.recipe.responses_per_set)
        return {name: found[name] for name in ALL_ROUND_METRICS if name in found}

    def training_steps(self) -> tuple[TrainingStep, ...]:
        """Return the training logs of the roles that this round trained.

        A role that was not trained is the artefact of an earlier round under a new record, with
        the log of the training that made it: that is not this round's.
        """
        recipe = self.cell.recipe
        trained = {
            "generator": recipe.generator_training is not None,
            "policy": recipe.policy_training is not None,
        }
        return tuple(
            step
            for role in ROLES
            if trained[role]
            for step in _read_log(self.file(role, TRAINING_LOG), role)
        )


def checked_file(path: Path, record: Mapping[str, Any] | None) -> Path:
    """Return an artefact's file after comparing it with the artefact's record, None: no record.

    Raises:
        UserError: the record does not name it, or its bytes are not those recorded.
    """
    facts = record["files"].get(path.name) if record else None
    got = _sha256(path)
    if facts is None:
        raise _fault(path, "a file of no record", "one that its record names")
    if got != facts["sha256"]:
        raise _fault(path, f"bytes with SHA-256 {got[:16]}...", f"{facts['sha256'][:16]}...")
    return path


def check_rubric_figures(path: Path, found: Mapping[str, Measured], set_size: int) -> None:
    """Check `SET_METRICS` that were measured together: names, bounds, counts and identities.

    Args:
        path: their file, for the message.
        found: the figures by name.
        set_size: K, responses a set.

    Raises:
        UserError: a figure is missing, unknown or impossible, or an identity does not hold.
    """
    if set(found) != set(SET_METRICS):
        raise _fault(path, f"figures {sorted(found)}", f"{sorted(SET_METRICS)}")
    for name, measured in found.items():
        _check_measured(path, name, measured)
    _check_identities(path, found, set_size)


def derived_metrics(found: Mapping[str, Measured], set_size: int) -> dict[str, Measured]:
    """Return `DERIVED_METRICS`: the parts of Delta_gap in its own unit, and the wrong-way share.

    The share is of the means, so that a set counts for as much as its rubric tells apart; there is
    none where the parts are not means over the same sets.

    Args:
        found: round metrics by name.
        set_size: K, responses a set.
    """
    disc, wrong, cov = (found[name] for name in ("r_disc", "r_dir", "r_cov"))
    parts = {
        "gap_disc": _scaled(disc, c_k_of(set_size)),
        "gap_wrong": _scaled(wrong, 2.0),
    }
    values = (parts["gap_disc"].value, parts["gap_wrong"].value, cov.value)
    share = None
    if disc.n_scored == wrong.n_scored == cov.n_scored and None not in values:
        share = wrong_way_share(*(value for value in values if value is not None))
    scored = 0 if share is None else wrong.n_scored
    return parts | {"wrong_way_share": Measured(share, scored, wrong.n_total)}


def _scaled(one: Measured, factor: float) -> Measured:
    value = None if one.value is None else factor * one.value
    return Measured(value, one.n_scored, one.n_total)


def find_artefacts(root: Path, cell: Cell) -> CellFiles | None:
    """Return what the cell's folder holds, of whichever plan; None if it has no evaluation.

    Raises:
        UserError: one of its records is none.
    """
    folder = root / cell.directory
    records = {
        path.parent.name: _record(path)
        for path in sorted(folder.glob("[!.]*/record.json"))  # a dot: half published
    }
    return CellFiles(cell, folder, records) if EVALUATION in records else None


def _record(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _fault(path, f"no JSON ({error})", "an artefact's record") from None
    if not isinstance(found, dict) or not found.keys() >= {"content_hash", "files", "provenance"}:
        raise _fault(path, "JSON of something else", "an artefact's record")
    return found


def find_cell(root: Path, cell: Cell) -> CellFiles | None:
    """Return the finished cell under the project's folder, or None if this plan's is not there."""
    found = find_artefacts(root, cell)
    return found if found is not None and _named(found) == found.document else None


def load_cell(root: Path, cell: Cell) -> CellFiles:
    """Return the finished cell, or raise a UserError that names it and says what is there."""
    found = find_cell(root, cell)
    if found is None:
        raise UserError(
            doing=f"reading the cell {cell.key}",
            got=_what_is_there(root, cell),
            expected=f"the finished cell {cell.id}",
            remedy=RUN_IT,
        )
    return found


def has_other_results(root: Path, cell: Cell) -> bool:
    """Say whether the folder holds an evaluation, but not that of this plan's cell."""
    return find_artefacts(root, cell) is not None and find_cell(root, cell) is None


def _named(files: CellFiles) -> Any:  # noqa: ANN401 - whatever the file holds
    try:
        return json.loads((files.folder / CELL_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _what_is_there(root: Path, cell: Cell) -> str:
    found = find_artefacts(root, cell)
    if found is None:
        return f"no {root / cell.directory / EVALUATION / 'record.json'}"
    named = _named(found)
    if not isinstance(named, dict):
        return f"results without a {found.folder / CELL_FILE}, which is written when a round ends"
    if named.get("cell") != cell.hash:
        return f"results of another plan in {found.folder} (cell {named.get('cell')})"
    return f"artefacts in {found.folder} that are not those its {CELL_FILE} names"


def _read_log(path: Path, role: str) -> list[TrainingStep]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    for line in lines:
        unknown = sorted(set(line["metrics"]) - set(TRAINING_METRICS))
        assert not unknown, f"{path}: {unknown} not in dynamicrubric.metrics.TRAINING_METRICS"
    return [TrainingStep(role, int(line["step"]), line["metrics"]) for line in lines]


def _check_measured(path: Path, name: str, measured: Measured) -> None:
    metric, value = ALL_ROUND_METRICS[name], measured.value
    if not 0 <= measured.n_scored <= measured.n_total:
        raise _fault(
            path,
            f"{name}: {measured.n_scored} scored of {measured.n_total}",
            "0 <= n_scored <= n_total",
        )
    if (value is None) != (measured.n_scored == 0):
        raise _fault(
            path,
            f"{name} = {value} with {measured.n_scored} scored",
            "a value exactly when something was scored",
        )
    if value is not None and not metric.admits(value):
        raise _fault(path, f"{name} = {value}", f"a number from {metric.low} to {metric.high}")


def _check_identities(
    path: Path, found: Mapping[str, Measured], set_size: int, evaluator: str = "dynamic"
) -> None:
    _check_gap(path, found, set_size)
    _check_sets(path, found, evaluator)


def _check_gap(path: Path, found: Mapping[str, Measured], set_size: int) -> None:
    """Check Delta_gap = c_K R_disc - 2 R_dir - R_cov, exact for means over the same sets."""
    parts = [found[name].value for name in GAP_PARTS]
    if any(part is None for part in parts):
        return
    gap, disc, misdirected, uncovered = (float(part) for part in parts if part is not None)
    c_k = 2 * set_size / (set_size - 1)
    residual = gap - (c_k * disc - 2 * misdirected - uncovered)
    if abs(residual) > IDENTITY_TOLERANCE:
        raise _fault(
            path,
            f"delta_gap - (c_K r_disc - 2 r_dir - r_cov) = {residual:.3g} at K = {set_size}",
            f"0 to {IDENTITY_TOLERANCE}: the four are means over the same response sets",
        )


def _check_sets(path: Path, found: Mapping[str, Measured], evaluator: str) -> None:
    """Check counts and bounds that bind figures of the same response sets to each other."""
    totals = {name: found[name].n_total for name in SET_METRICS}
    if len(set(totals.values())) > 1:
        raise _fault(path, f"sets by figure: {totals}", "one number of response sets")
    quality = found.get("true_quality")  # a grid's figures do without
    without_order = quality is not None and not quality.n_scored  # R_disc needs no order
    gap_parts = [name for name in GAP_PARTS if not (without_order and name == "r_disc")]
    if evaluator in SCORED:
        gap_parts = ["delta_gap"]  # without verdicts it has no other part
    for names in (gap_parts, ORDER_METRICS):
        scored = {name: found[name].n_scored for name in names}
        if len(set(scored.values())) > 1:
            raise _fault(path, f"scored sets by figure: {scored}", "the same sets for each")
    valid, gap = found["items_per_rubric"].n_scored, found["delta_gap"].n_scored
    if gap > valid and evaluator not in SCORED - KEEPS_RUBRICS:
        raise _fault(path, f"a gap for {gap} sets with {valid} valid rubrics", "no gap without one")
    rate = found["valid_rubric_rate"]
    if rate.value is not None and abs(rate.value * rate.n_total - valid) > COUNT_TOLERANCE:
        raise _fault(
            path, f"{valid} valid rubrics at a rate of {rate.value}", "rate x sets = valid"
        )
    accuracy, ties = (found[name].value for name in ORDER_METRICS)
    if accuracy is not None and ties is not None:
        low, high = ties / 2, 1 - ties / 2
        if not low - IDENTITY_TOLERANCE <= accuracy <= high + IDENTITY_TOLERANCE:
            raise _fault(
                path,
                f"rank_accuracy = {accuracy:.9g} with tie_rate = {ties:.9g}",
                f"a number from {low:.9g} to {high:.9g}: ties count half",
            )


def _fault(path: Path, got: str, expected: str) -> UserError:
    return UserError(doing=f"reading {path}", got=got, expected=expected, remedy=REMEDY)


def _sha256(path: Path) -> str:
    if not path.is_file():
        return "no such file"
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
