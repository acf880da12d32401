"""What a probe's step writes: a row an attack, set and mode; a row two policies' set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dynamicrubric.probes.course import CourseRow
from dynamicrubric.probes.measure import ProbeRow
from dynamicrubric.probes.names import Reference
from dynamicrubric.types import Score

ATTACKS_FILE: Final = "attacks.parquet"
COURSE_FILE: Final = "course.parquet"
_TEXT, _FLOAT, _INT = "string", "Float64", "Int64"
ATTACK_TYPES: Final = {
    "cell": _TEXT, "evaluator": _TEXT, "attack": _TEXT, "order": _TEXT, "mode": _TEXT,
    "set_id": _TEXT, "prompt_id": _TEXT, "place": _INT,
    "score_before": _FLOAT, "score_after": _FLOAT, "score_gain": _FLOAT, "reason": _TEXT,
    "rank_before": _FLOAT, "rank_after": _FLOAT, "rank_gain": _FLOAT,
    "quality_before": _FLOAT, "quality_after": _FLOAT, "quality_gain": _FLOAT,
    "text": _TEXT, "rubric_before": _TEXT, "rubric_after": _TEXT,
}  # fmt: skip
COURSE_TYPES: Final = {
    "cell": _TEXT, "reference": _TEXT, "set_id": _TEXT, "prompt_id": _TEXT, "num_pairs": _INT,
    "proxy": _FLOAT, "proxy_reason": _TEXT, "gold": _FLOAT, "gold_reason": _TEXT,
}  # fmt: skip


def attack_row(cell: str, one: ProbeRow) -> dict[str, Any]:
    """Return an attack on a set as a row of a table with `ATTACK_TYPES`."""
    return {
        "cell": cell,
        "evaluator": one.evaluator,
        "attack": one.attack,
        "order": one.order,
        "mode": one.mode,
        "set_id": one.set_id,
        "prompt_id": one.prompt_id,
        "place": one.place,
        "score_before": one.score_before.value,
        "score_after": one.score_after.value,
        "score_gain": one.score_gain,
        "reason": one.reason,
        "rank_before": one.rank_before.value,
        "rank_after": one.rank_after.value,
        "rank_gain": one.rank_gain,
        "quality_before": one.quality_before,
        "quality_after": one.quality_after,
        "quality_gain": one.quality_gain,
        "text": one.text,
        "rubric_before": one.rubric_before,
        "rubric_after": one.rubric_after,
    }


def course_row(cell: str, one: CourseRow) -> dict[str, Any]:
    """Return two policies' set as a row of a table with `COURSE_TYPES`."""
    return {
        "cell": cell,
        "reference": one.reference,
        "set_id": one.set_id,
        "prompt_id": one.prompt_id,
        "num_pairs": one.num_pairs,
        "proxy": one.proxy.value,
        "proxy_reason": one.proxy.reason,
        "gold": one.gold.value,
        "gold_reason": one.gold.reason,
    }


def write_probes(
    attacks: Mapping[str, Sequence[ProbeRow]],
    courses: Mapping[str, Sequence[CourseRow]],
    out_dir: Path,
) -> None:
    """Write both tables, by cell key, as parquet."""
    rows = [attack_row(key, one) for key, own in attacks.items() for one in own]
    _write(out_dir / ATTACKS_FILE, rows, ATTACK_TYPES)
    rows = [course_row(key, one) for key, own in courses.items() for one in own]
    _write(out_dir / COURSE_FILE, rows, COURSE_TYPES)


def _write(path: Path, rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> None:
    import pandas as pd

    frame = pd.DataFrame(list(rows), columns=list(types)).astype(dict(types))
    frame.to_parquet(path, index=False)


def read_courses(path: Path) -> dict[str, list[CourseRow]]:
    """Read a table of courses, by cell key."""
    import pyarrow.parquet as pq

    found: dict[str, list[CourseRow]] = {}
    for row in pq.read_table(path).to_pylist():
        reference: Reference = row["reference"]
        found.setdefault(str(row["cell"]), []).append(
            CourseRow(
                reference,
                str(row["set_id"]),
                str(row["prompt_id"]),
                int(row["num_pairs"]),
                _score(row["proxy"], row["proxy_reason"]),
                _score(row["gold"], row["gold_reason"]),
            )
        )
    return found


def _score(value: float | None, reason: str | None) -> Score:
    return Score.unscored(reason or "no_reason") if value is None else Score.of(value)
