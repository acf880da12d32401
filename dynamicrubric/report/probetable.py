"""The probes of a study: read, checked against their cells, averaged by arm and round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from dynamicrubric.errors import UserError
from dynamicrubric.evaluatorkinds import WITH_REWARD_MODEL
from dynamicrubric.plan import Plan
from dynamicrubric.probes.course import Course, CourseRow, courses_of, distinct
from dynamicrubric.probes.figures import AttackFigure, attack_figures
from dynamicrubric.probes.files import ATTACK_TYPES, ATTACKS_FILE, COURSE_FILE, read_courses
from dynamicrubric.probes.measure import EPSILON
from dynamicrubric.probes.names import REFERENCES
from dynamicrubric.probes.planned import PlannedProbe, ProbedCell, planned_probes
from dynamicrubric.report.cellfiles import REMEDY, checked_file
from dynamicrubric.report.faults import NOT_WHAT_WAS_WRITTEN, Fault, reason_of
from dynamicrubric.report.gridtable import read_record
from dynamicrubric.report.phrases import signed
from dynamicrubric.versions import PROBE_VERSIONS

PREPARED_DIR: Final = "data/prepared"
TEXTS: Final = frozenset({"text", "rubric_before", "rubric_after"})
"""Columns for people who look into a row; no figure comes from them."""
_GAINS: Final = {"score": 1.0, "rank": 1.0, "quality": 2.0}
"""What is gained, and the most of it: true quality lies in [-1, 1]."""


@dataclass(frozen=True)
class ProbedRound:
    """The probes of an arm's round.

    Attributes:
        arm: the arm.
        round: the round.
        seeds: seeds that were probed.
        attacks: what each attack gained.
        courses: its policy against older ones under its evaluator; none in round 0.
    """

    arm: str
    round: int
    seeds: tuple[int, ...]
    attacks: tuple[AttackFigure, ...]
    courses: tuple[Course, ...]

    @property
    def diverges(self) -> bool:
        """Whether the evaluator prefers responses that are worse in truth."""
        return any(one.diverges for one in self.courses)


def probe_faults(plan: Plan, root: Path, without: Collection[str] = ()) -> tuple[Fault, ...]:
    """Return the planned probes that cannot be reported on, each with its reason.

    Args:
        plan: the lattice of cells.
        root: the project's folder.
        without: keys of cells that are left out, and with them the probes that read them.
    """
    return tuple(
        Fault(
            f"probe@{key}",
            tuple(dict.fromkeys(arm for one in probe.cells.values() for arm in one.arms)),
            not (root / probe.directory).exists(),
            reason,
            "probe",
        )
        for key, probe in planned_probes(plan).items()
        if (reason := _fault_of(probe, root, without))
    )


def missing_probes(plan: Plan, root: Path) -> tuple[str, ...]:
    """Return the keys of planned probes that are not there, or of other artefacts."""
    probes = planned_probes(plan)
    return tuple(key for key, probe in probes.items() if _find_record(probe, root) is None)


def _fault_of(probe: PlannedProbe, root: Path, without: Collection[str]) -> str:
    gone = [key for key in probe.cells if key in without]
    if gone:
        return f"it reads cells that are not there: {', '.join(gone)}"
    try:
        if _find_record(probe, root) is None:
            return "no probe, or one of other generators, responses or settings"
        _attack_rows(probe, root)
        _course_rows(probe, root)
    except NOT_WHAT_WAS_WRITTEN as error:  # a UserError too
        return reason_of(error)
    return ""


def read_probes(plan: Plan, root: Path, faults: Sequence[Fault] = ()) -> tuple[ProbedRound, ...]:
    """Return what was probed, arms in the order of the plan, rounds rising.

    Args:
        plan: the lattice of cells.
        root: the project's folder.
        faults: what is left out.
    """
    left_out = {fault.key for fault in faults}
    probes = {
        probe.seed: probe
        for key, probe in planned_probes(plan).items()
        if f"probe@{key}" not in left_out
    }
    attacks = cache(lambda seed: _attack_rows(probes[seed], root))
    courses = cache(lambda seed: _course_rows(probes[seed], root))
    paths: dict[str, dict[int, tuple[str, ...]]] = {}
    chosen = plan.probe["arms"] if plan.probe else ()
    for (arm, seed), keys in plan.paths.items():
        if arm in chosen and seed in probes:
            paths.setdefault(arm, {})[seed] = keys
    found = []
    for arm, by_seed in paths.items():
        for number in range(max(len(keys) for keys in by_seed.values())):
            cells = {s: keys[number] for s, keys in by_seed.items() if number < len(keys)}
            rows = {seed: attacks(seed).get(key, []) for seed, key in cells.items()}
            if not all(rows.values()):  # an evaluator that is not trained yet
                continue
            pairs = {seed: courses(seed).get(key, []) for seed, key in cells.items()}
            found.append(
                ProbedRound(
                    arm, number, tuple(cells), tuple(attack_figures(rows)), _courses(pairs, number)
                )
            )
    return tuple(found)


def _courses(pairs: Mapping[int, Sequence[CourseRow]], round_number: int) -> tuple[Course, ...]:
    by_reference = {
        name: {seed: [row for row in rows if row.reference == name] for seed, rows in pairs.items()}
        for name in REFERENCES
    }
    there = {name: own for name, own in by_reference.items() if all(own.values())}
    return tuple(courses_of(distinct(there, round_number))) if pairs else ()


def _find_record(probe: PlannedProbe, root: Path) -> Mapping[str, Any] | None:
    """Return the probe's record if it is of these settings and what its folders hold now."""
    folders = {"prepared": PREPARED_DIR, **probe.inputs}
    inputs = {name: read_record(root / folder) for name, folder in folders.items()}
    hashes = {name: found["content_hash"] if found else "" for name, found in inputs.items()}
    record = read_record(root / probe.directory)
    if record is None or record["step_version"] != PROBE_VERSIONS["probe_evaluators"]:
        return None
    identity = record.get("identity", {})
    same = all(identity.get(name) == value for name, value in probe.settings.items())
    return record if same and record["inputs"] == hashes else None


def _attack_rows(probe: PlannedProbe, root: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each cell.

    Raises:
        UserError: the table is altered, or contradicts itself or the plan.
    """
    # Imported here: `import dynamicrubric.cli` has to stay fast.
    import pyarrow.parquet as pq

    folder = root / probe.directory
    path = checked_file(folder / ATTACKS_FILE, read_record(folder))
    columns = [name for name in ATTACK_TYPES if name not in TEXTS]
    by_cell: dict[str, list[dict[str, Any]]] = {}
    for row in pq.read_table(path, columns=columns).to_pylist():
        by_cell.setdefault(str(row["cell"]), []).append(row)
    missing = [
        key for key, one in probe.cells.items() if key not in by_cell and not _is_untrained(one)
    ]
    if missing or not by_cell.keys() <= probe.cells.keys():
        raise _broken(path, f"cells {sorted(by_cell)}", f"{sorted(probe.cells)}")
    for key, rows in by_cell.items():
        _check_rows(path, key, rows)
    return by_cell


def _check_rows(path: Path, key: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Check that every attack and mode has each set once, and that gains are differences."""
    places = Counter((r["evaluator"], r["attack"], r["mode"], r["set_id"]) for r in rows)
    sizes = set(Counter(place[:3] for place in places).values())
    if max(places.values()) > 1 or len(sizes) > 1:
        raise _broken(path, f"a set twice, or not in every attack, of {key}", "each set once")
    for name, most in _GAINS.items():
        for row in rows:
            before, after, gain = (row[f"{name}_{end}"] for end in ("before", "after", "gain"))
            if (gain is None) != (before is None or after is None):
                raise _broken(path, f"{key}: {name} gained where it is not known", "no gain there")
            if gain is not None and (
                abs(gain - (after - before)) > EPSILON or abs(gain) > most + EPSILON
            ):
                got = f"{key}: {name} gained {signed(gain)} from {before} to {after}"
                raise _broken(path, got, "the difference")


def _is_untrained(one: ProbedCell) -> bool:
    """Whether a cell may have no evaluator: a reward model is trained in round 1."""
    return one.cell.recipe.round == 0 and one.cell.recipe.rubrics.evaluator in WITH_REWARD_MODEL


def _course_rows(probe: PlannedProbe, root: Path) -> dict[str, list[CourseRow]]:
    folder = root / probe.directory
    path = checked_file(folder / COURSE_FILE, read_record(folder))
    found = read_courses(path)
    later = {key for key, one in probe.cells.items() if one.older}
    if found.keys() != later:
        raise _broken(path, f"cells {sorted(found)}", f"{sorted(later)}")
    return found


def _broken(path: Path, got: str, expected: str) -> UserError:
    return UserError(doing=f"reading {path}", got=got, expected=expected, remedy=REMEDY)
