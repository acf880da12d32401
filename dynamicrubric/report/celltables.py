"""The tables of one cell's evaluation, read once and checked before any figure comes from them.

The one reader of `responses`, `rubrics` and `verdicts` for the report. Counts, bounds and the
identity of the gap are asserted row by row; a broken one names the cell, as does a table without
its rows or columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dynamicrubric.errors import UserError
from dynamicrubric.evaluationfiles import BEFORE_FILE
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import (
    EVALUATION,
    GAP_PARTS,
    IDENTITY_TOLERANCE,
    ORDER_METRICS,
    REMEDY,
    CellFiles,
    Measured,
)
from dynamicrubric.stats import PromptValues, prompt_means

if TYPE_CHECKING:
    import pandas as pd

RESPONSE_COLUMNS: Final = {"true_quality": "true_quality", "response_length": "num_tokens"}
"""Round metrics that are means over rows of responses.parquet, and their columns."""
RUBRIC_COLUMNS: Final = {name: name for name in (*GAP_PARTS, *ORDER_METRICS)}
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "responses": (
        "response_id", "prompt_id", "set_index", "sample_index", "prompt", "text", "score",
        "finish_reason", "kl", *RESPONSE_COLUMNS.values(),
    ),
    "rubrics": (
        "rubric_id", "prompt_id", "valid", "invalid_reason", "num_items", *RUBRIC_COLUMNS.values(),
    ),
    "verdicts": (
        "response_id", "rubric_id", "item_index", "criterion", "weight", "verdict",
    ),
}  # fmt: skip
"""Columns of each table that the report reads."""
BEFORE: Final = Path(BEFORE_FILE).stem
_UNIT: Final = ("r_disc", "r_dir", *ORDER_METRICS)
_VERDICTS: Final = frozenset({"yes", "no", "unscored"})


@dataclass(frozen=True)
class CellTables:
    """The tables of a cell, checked.

    Attributes:
        files: the cell.
        figures: its round metrics.
        responses: one row a held-out response.
        rubrics: one row a response set, whose values are absent in an arm without rubrics.
        verdicts: one row a response and item; none in an arm without rubrics.
        before: one row a response set of the round before, whose policy the round's generator was
            trained on or beside; None in round 0 and in an arm without rubrics.
    """

    files: CellFiles
    figures: dict[str, Measured]
    responses: pd.DataFrame
    rubrics: pd.DataFrame
    verdicts: pd.DataFrame
    before: pd.DataFrame | None

    def before_update(self, metric: str) -> PromptValues:
        """Return the mean of a figure of `RUBRIC_COLUMNS` by prompt, before the policy's update."""
        assert self.before is not None, "nothing was measured before an update"
        return prompt_means(_pairs(self.before, RUBRIC_COLUMNS[metric]))

    def by_prompt(self, metric: str) -> PromptValues:
        """Return the mean of a round metric by prompt id, None where nothing was scored.

        Raises:
            KeyError: the metric has no values by prompt.
        """
        table, column = self._place(metric)
        return prompt_means(_pairs(table, column))

    @property
    def is_valid(self) -> list[bool]:
        """Whether each row's rubric is valid: of an arm without rubrics, none is."""
        return [value is True for value in self.rubrics["valid"].tolist()]

    @property
    def num_written(self) -> int:
        """Rubrics that were written, valid or not: none in an arm without rubrics."""
        return sum(isinstance(value, bool) for value in self.rubrics["valid"].tolist())

    def _place(self, metric: str) -> tuple[pd.DataFrame, str]:
        if metric in RUBRIC_COLUMNS:
            return self.rubrics, RUBRIC_COLUMNS[metric]
        return self.responses, ("kl" if metric == "kl" else RESPONSE_COLUMNS[metric])


def read_tables(plan: Plan, files: CellFiles) -> CellTables:
    """Read a finished cell's evaluation and check it.

    Args:
        plan: the lattice; it says how many held-out prompts there are.
        files: the cell.

    Raises:
        UserError: a file is not the recorded one, or its content contradicts itself or the plan.
    """
    tables = CellTables(
        files=files,
        figures=files.round_metrics(),
        responses=_read(files, "responses"),
        rubrics=_read(files, "rubrics"),
        verdicts=_read(files, "verdicts"),
        before=_read(files, BEFORE) if BEFORE_FILE in files.records[EVALUATION]["files"] else None,
    )
    _check_columns(tables)
    _check_responses(plan, tables)
    _check_rubrics(tables, "rubrics", tables.rubrics)
    if tables.before is not None:
        _check_rubrics(tables, BEFORE, tables.before)
    _check_verdicts(tables)
    _check_means(tables)
    return tables


def _read(files: CellFiles, name: str) -> pd.DataFrame:
    # Imported here: `import dynamicrubric.cli` has to stay fast.
    import pyarrow.parquet as pq

    frame: pd.DataFrame = pq.read_table(files.file(EVALUATION, f"{name}.parquet")).to_pandas()
    return frame


def _check_columns(tables: CellTables) -> None:
    """Check that each table has the columns that are read, which one without rows may not."""
    frames = {
        "responses": tables.responses, "rubrics": tables.rubrics, "verdicts": tables.verdicts
    }  # fmt: skip
    frames |= {} if tables.before is None else {BEFORE: tables.before}
    for name, frame in frames.items():
        columns = COLUMNS["rubrics" if name == BEFORE else name]
        absent = [column for column in columns if column not in frame]
        if absent:
            kind = "an empty table" if frame.empty else "a table"
            got = f"{kind} without the columns {', '.join(absent)}"
            raise _broken(tables, name, got, "every column that an evaluation writes")


def _check_responses(plan: Plan, tables: CellTables) -> None:
    """Check that rows = prompts x sets x K, each once."""
    recipe, rows = tables.files.cell.recipe, tables.responses
    sizes = rows.groupby("prompt_id").size()
    per_prompt = recipe.evaluation.sets_per_prompt * recipe.responses_per_set
    prompts = int(plan.shared["prepare"]["world"]["num_heldout_prompts"])
    expected = f"{prompts} prompts x {recipe.evaluation.sets_per_prompt} sets x "
    expected += f"{recipe.responses_per_set} responses"
    if len(sizes) != prompts or not (sizes == per_prompt).all():
        spread = f"{sizes.min()} to {sizes.max()}" if len(sizes) else "none"
        raise _broken(
            tables, "responses", f"{len(sizes)} prompts with {spread} responses each", expected
        )
    places = rows.groupby(["prompt_id", "set_index", "sample_index"]).ngroups
    if rows["response_id"].nunique() != len(rows) or places != len(rows):
        raise _broken(tables, "responses", "a response that is there twice", expected)
    scores = rows["score"].dropna()
    if not scores.between(0.0, 1.0).all():
        raise _broken(tables, "responses", f"a score of {scores.abs().max()}", "scores in [0, 1]")


def _check_rubrics(tables: CellTables, name: str, rows: pd.DataFrame) -> None:
    """Check bounds and Delta_gap = c_K R_disc - 2 R_dir - R_cov in each row of a table."""
    size = tables.files.cell.recipe.responses_per_set
    total = tables.figures["delta_gap"].n_total
    if len(rows) != total or rows["rubric_id"].nunique() != len(rows):
        got = f"{rows['rubric_id'].nunique()} rubrics in {len(rows)} rows"
        raise _broken(tables, name, got, f"{total}, one a response set")
    for column in _UNIT:
        values = rows[column].dropna()
        if not values.between(-IDENTITY_TOLERANCE, 1.0 + IDENTITY_TOLERANCE).all():
            got = f"{column} from {values.min()} to {values.max()}"
            raise _broken(tables, name, got, "shares in [0, 1]")
    parts = rows[list(GAP_PARTS)].dropna().astype(float)
    c_k = 2 * size / (size - 1)
    residual = parts["delta_gap"] - (c_k * parts["r_disc"] - 2 * parts["r_dir"] - parts["r_cov"])
    if len(parts) and residual.abs().max() > IDENTITY_TOLERANCE:
        raise _broken(
            tables,
            name,
            f"delta_gap - (c_K r_disc - 2 r_dir - r_cov) = {residual.abs().max():.3g}",
            f"0 to {IDENTITY_TOLERANCE} in every row",
        )


def _check_verdicts(tables: CellTables) -> None:
    """Check that each valid rubric has items x K verdicts and each invalid one none."""
    rows, size = tables.verdicts, tables.files.cell.recipe.responses_per_set
    odd = sorted(set(rows["verdict"].dropna()) - _VERDICTS)
    if odd or rows["verdict"].isna().any():
        raise _broken(
            tables, "verdicts", f"verdicts {odd or 'without a value'}", "yes, no, unscored"
        )
    valid = tables.rubrics[tables.is_valid]
    expected = int((valid["num_items"].astype(float) * size).sum())
    if len(rows) != expected:
        raise _broken(
            tables, "verdicts", f"{len(rows)} rows", f"{expected}: items x K of each valid rubric"
        )
    unknown = set(rows["rubric_id"]) - set(valid["rubric_id"])
    if unknown or rows.duplicated(["response_id", "rubric_id", "item_index"]).any():
        raise _broken(tables, "verdicts", "a row twice, or of no valid rubric", "one an item")


def _check_means(tables: CellTables) -> None:
    """Check that the rows give the cell's figures: they and the report's are the same numbers."""
    for metric in (*RESPONSE_COLUMNS, "kl", *RUBRIC_COLUMNS):
        figure = tables.figures[metric]
        frame, column = tables._place(metric)
        known = [value for _, value in _pairs(frame, column) if value is not None]
        mean = sum(known) / len(known) if known else None
        if len(known) != figure.n_scored or not _close(mean, figure.value):
            raise _broken(
                tables,
                "rubrics" if frame is tables.rubrics else "responses",
                f"mean {metric} {mean} of {len(known)} rows",
                f"{figure.value} of {figure.n_scored}, as in metrics.json",
            )


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= IDENTITY_TOLERANCE * max(1.0, abs(other)) * 10


def _pairs(table: pd.DataFrame, column: str) -> list[tuple[str, float | None]]:
    values: list[Any] = table[column].tolist()
    return [
        (str(prompt), None if _absent(value) else float(value))
        for prompt, value in zip(table["prompt_id"].tolist(), values, strict=True)
    ]


def _absent(value: Any) -> bool:  # noqa: ANN401 - whatever a column holds
    return not isinstance(value, int | float) or math.isnan(value)  # None, pandas' NA, NaN


def _broken(tables: CellTables, name: str, got: str, expected: str) -> UserError:
    path = tables.files.folder / EVALUATION / f"{name}.parquet"
    doing = f"reading {path} of the cell {tables.files.cell.key}"
    return UserError(doing=doing, got=got, expected=expected, remedy=REMEDY)
