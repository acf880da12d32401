"""Reads what audits measured: checked against their records, put together by policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dynamicrubric.artefact import load_artefact
from dynamicrubric.audit.measure import CHECKPOINTS_FILE, MEASUREMENTS_FILE
from dynamicrubric.audit.planned import NEEDS, PlannedAudit
from dynamicrubric.errors import UserError
from dynamicrubric.theory import c_k_of
from dynamicrubric.versions import STEP_VERSIONS

FloatArray = NDArray[np.float64]
COLUMNS: Final = ("delta_gap", "r_disc", "r_dir", "r_cov", "anchor_r_anchor")
FIGURES: Final = ("delta_gap", "r_disc", "eta_res", "j_anchor")
"""What is known of a checkpoint by prompt; eta_res = 2 R_dir + R_cov."""
TOLERANCE: Final = 1e-9
RUN_IT: Final = "run `make reproduce`, or `dvc repro`; the stages are called audit@s1 and the like"


@dataclass(frozen=True)
class Facts:
    """A generator that was measured.

    Attributes:
        name: its cell and step.
        cell: the cell whose training it belongs to.
        step: after how many steps; 0 is what the cell starts from.
        steps: of how many.
        disc: weight of R_disc in that training's objective.
        anchor: weight of R_anchor, lambda.
        responses: whose responses it was trained on, `current` or `start`.
        sets: sets with all figures, of `sets_total`.
        sets_total: sets that it wrote a rubric for.
    """

    name: str
    cell: str
    step: int
    steps: int
    disc: float
    anchor: float
    responses: str
    sets: int
    sets_total: int

    @property
    def objective(self) -> str:
        """What it was trained for, in words."""
        if self.step == 0:
            return "before training"
        if not self.anchor:
            return "disc only"
        if not self.disc:
            return "anchor only"
        ratio = self.anchor / self.disc
        return "full" if ratio == 1.0 else f"lambda {ratio:g}"


@dataclass(frozen=True, eq=False)
class Group:
    """The generators of one policy P_{t-1}: all measured on the same held-out sets.

    Attributes:
        seed: the seed.
        policy: name of the policy.
        round: t.
        c_k: 2K / (K - 1).
        prompts: ids of the P held-out prompts, sorted.
        checkpoints: the C generators.
        values: figure to means by prompt, shape (C, P), NaN where a prompt has no set with all
            figures.
        spreads: (R_disc, R_anchor): medians over the group's trainings of the spread of each reward
            within a group of rollouts; None where nothing spreads.
    """

    seed: int
    policy: str
    round: int
    c_k: float
    prompts: tuple[str, ...]
    checkpoints: tuple[Facts, ...]
    values: Mapping[str, FloatArray]
    spreads: tuple[float | None, float | None]

    def means(self, figure: str) -> FloatArray:
        """Return a figure of each checkpoint, the mean over its scored prompts, shape (C,)."""
        found: FloatArray = np.nanmean(self.values[figure], axis=1)
        return found

    def resampled(self, figure: str, shares: FloatArray) -> FloatArray:
        """Return a figure of each checkpoint under each resample, shape (resamples, C).

        Args:
            figure: one of `FIGURES`.
            shares: of each prompt in each resample, shape (resamples, P).
        """
        return weighted_means(self.values[figure], shares)


@dataclass(frozen=True)
class Measured:
    """Everything that was read.

    Attributes:
        groups: by round, seed and policy; each has at least two generators with figures.
        identity_error: largest `|Delta_gap - (c_K R_disc - eta_res)|` of a set.
        sets: rubrics for sets that the identity was checked on.
        left_out: names of generators without one set that has all figures.
    """

    groups: tuple[Group, ...]
    identity_error: float
    sets: int
    left_out: tuple[str, ...] = ()

    @property
    def rounds(self) -> tuple[int, ...]:
        """Rounds that have a group, rising."""
        return tuple(sorted({group.round for group in self.groups}))

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds that have one, rising."""
        return tuple(sorted({group.seed for group in self.groups}))

    def of_round(self, number: int) -> tuple[Group, ...]:
        """Return the groups of a round."""
        return tuple(group for group in self.groups if group.round == number)


def weighted_means(values: FloatArray, shares: FloatArray) -> FloatArray:
    """Return means of rows over their scored prompts with shares, shape (resamples, rows).

    Args:
        values: shape (rows, P), NaN where unscored.
        shares: shape (resamples, P).
    """
    scored = (~np.isnan(values)).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: FloatArray = (shares @ np.nan_to_num(values).T) / (shares @ scored.T)
    return found


def read_audits(audits: Sequence[PlannedAudit], root: Path, *, partial: bool = False) -> Measured:
    """Read the finished audits of a plan.

    Args:
        audits: those that are planned.
        root: the project's folder.
        partial: leave out those that are not there.

    Raises:
        UserError: none is planned; some are missing, altered, or of another plan (all are named);
            or figures contradict each other.
    """
    if not audits:
        raise UserError(
            doing="reading the audit", got="a plan without one", expected=NEEDS,
            remedy="add `audit: {}` to study in params.yaml, then `dynamicrubric plan`; " + RUN_IT,
        )  # fmt: skip
    there = [one for one in audits if not _fault(one, root)]
    missing = [f"audit@{one.key} ({_fault(one, root)})" for one in audits if one not in there]
    if missing and not (partial and there):
        raise UserError(
            doing="reading the audit", got=f"not all of it: {', '.join(missing)}",
            expected="what the plan's cells hold now, measured for each seed", remedy=RUN_IT,
        )  # fmt: skip
    return together([read_audit(root / one.directory, one.seed) for one in there])


def together(found: Sequence[Measured]) -> Measured:
    """Put audits of several seeds together."""
    groups = [group for one in found for group in one.groups]
    return Measured(
        tuple(sorted(groups, key=lambda one: (one.round, one.seed, one.policy))),
        max((one.identity_error for one in found), default=0.0),
        sum(one.sets for one in found),
        tuple(name for one in found for name in one.left_out),
    )


def read_audit(folder: Path, seed: int) -> Measured:
    """Read one finished audit.

    Raises:
        UserError: it does not exist, is altered, or its figures contradict each other.
    """
    # Imported here: `import dynamicrubric.cli` has to stay fast.
    import pyarrow.parquet as pq

    load_artefact(folder, expected_step="audit_checkpoints")
    document = json.loads((folder / CHECKPOINTS_FILE).read_text(encoding="utf-8"))
    columns = ["policy", "checkpoint", "prompt_id", *COLUMNS]
    rows = pq.read_table(folder / MEASUREMENTS_FILE, columns=columns).to_pylist()
    by_checkpoint: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_checkpoint.setdefault(row["checkpoint"], []).append(row)
    names = {one["name"] for one in document["checkpoints"]}
    if names != by_checkpoint.keys():
        odd = sorted(names ^ by_checkpoint.keys())
        raise _broken(folder, f"rows or facts alone of {', '.join(odd[:3])}", "both of each")
    error = _identity_error(folder, rows, document)
    groups, left_out = [], []
    for policy, facts in document["policies"].items():
        own = [one for one in document["checkpoints"] if one["policy"] == policy]
        scored = {one["name"]: _scored(by_checkpoint[one["name"]]) for one in own}
        left_out += [name for name, found in scored.items() if not found]
        kept = [one for one in own if scored[one["name"]]]
        if len(kept) > 1:
            groups.append(_group(seed, policy, facts["round"], kept, by_checkpoint, document))
    return Measured(tuple(groups), error, len([row for row in rows if _is_scored(row)]),
                    tuple(left_out))  # fmt: skip


def _group(
    seed: int,
    policy: str,
    round_number: int,
    own: Sequence[Mapping[str, Any]],
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    document: Mapping[str, Any],
) -> Group:
    prompts = tuple(sorted({row["prompt_id"] for one in own for row in rows[one["name"]]}))
    places = {prompt: place for place, prompt in enumerate(prompts)}
    values = {name: np.full((len(own), len(prompts)), np.nan) for name in FIGURES}
    facts = []
    for number, one in enumerate(own):
        found = _scored(rows[one["name"]])
        by_prompt: dict[str, list[dict[str, float]]] = {}
        for row in found:
            by_prompt.setdefault(row["prompt_id"], []).append(_figures(row))
        for prompt, sets in by_prompt.items():
            for name in FIGURES:
                mean = sum(figures[name] for figures in sets) / len(sets)
                values[name][number, places[prompt]] = mean
        facts.append(Facts(
            one["name"], one["cell"], one["step"], one["steps"], one["disc"], one["anchor"],
            one["responses"], len(found), len(rows[one["name"]]),
        ))  # fmt: skip
    cells = {one["cell"] for one in own}
    disc, anchor = (
        [document["spreads"][cell][name] for cell in sorted(cells)] for name in ("disc", "anchor")
    )
    return Group(
        seed, policy, round_number, c_k_of(own[0]["set_size"]), prompts, tuple(facts), values,
        (_median(disc), _median(anchor)),
    )  # fmt: skip


def _identity_error(
    folder: Path, rows: Sequence[Mapping[str, Any]], document: Mapping[str, Any]
) -> float:
    sizes = {one["name"]: one["set_size"] for one in document["checkpoints"]}
    largest = 0.0
    for row in rows:
        if any(row[name] is None for name in COLUMNS[:-1]):
            continue
        bound = c_k_of(sizes[row["checkpoint"]]) * row["r_disc"] - 2 * row["r_dir"] - row["r_cov"]
        largest = max(largest, abs(row["delta_gap"] - bound))
    if not largest <= TOLERANCE:
        raise _broken(folder, f"delta_gap - (c_K r_disc - 2 r_dir - r_cov) = {largest:.3g}",
                      f"0 to {TOLERANCE} in every row")  # fmt: skip
    return largest


def _is_scored(row: Mapping[str, Any]) -> bool:
    return all(row[name] is not None for name in COLUMNS)


def _scored(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in rows if _is_scored(row)]


def _figures(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        "delta_gap": row["delta_gap"],
        "r_disc": row["r_disc"],
        "eta_res": 2.0 * row["r_dir"] + row["r_cov"],
        "j_anchor": row["anchor_r_anchor"],
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _fault(audit: PlannedAudit, root: Path) -> str:
    """Return why an audit cannot be read, empty if it can: it has to be of what is there now."""
    folder = root / audit.directory
    if not (folder / "record.json").is_file():
        return "not there"
    try:
        record = load_artefact(folder, expected_step="audit_checkpoints").record
        expected = {f"sets/{one.name}": root / one.sets for one in audit.policies}
        for cell in audit.cells:
            expected[f"generator/{cell.key}"] = root / cell.directory / "generator"
        hashes = {
            name: load_artefact(path, verify=False).content_hash for name, path in expected.items()
        }
    except UserError as error:
        return f"{error.doing}: {error.got}"
    same = all(record.inputs.get(name) == value for name, value in hashes.items())
    named = {name for name in record.inputs if name.startswith(("sets/", "generator/"))}
    if not same or named != hashes.keys():
        return "measured of other generators or responses than are there now"
    if record.step_version != STEP_VERSIONS["audit_checkpoints"]:
        return "measured by another version of the step"
    return ""


def _broken(folder: Path, got: str, expected: str) -> UserError:
    return UserError(
        doing=f"reading {folder / MEASUREMENTS_FILE}", got=got, expected=expected,
        remedy="remove the folder and run the stage again, which makes it anew",
    )  # fmt: skip
