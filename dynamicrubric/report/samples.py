"""A few rubrics of a round for people to read: the most extreme ones, and some invalid ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dynamicrubric.report.cellfiles import EVALUATION, CellFiles
from dynamicrubric.report.text import markdown_block, markdown_inline, shorten

NUM_EACH: Final = 3
MAX_TEXT: Final = 2000
_FIGURES: Final = ("delta_gap", "r_disc", "r_dir", "rank_accuracy")


def rubric_samples(files: CellFiles) -> str:
    """Return markdown with the rubrics of the widest and the most wrong gap, and invalid ones.

    Generated text is shown in fenced blocks longer than any run of backticks in it, so it cannot
    become markup.
    """
    rubrics = _rows(files.file(EVALUATION, "rubrics.parquet"))
    prompts = {
        row["prompt_id"]: row["prompt"]
        for row in _rows(files.file(EVALUATION, "responses.parquet"), ["prompt_id", "prompt"])
    }
    valid = [row for row in rubrics if row["valid"] and row["delta_gap"] is not None]
    valid.sort(key=lambda row: (-float(row["delta_gap"]), str(row["rubric_id"])))
    invalid = [row for row in rubrics if row["valid"] is False]
    lowest = valid[NUM_EACH:][-NUM_EACH:]
    parts = [f"# Rubrics of {markdown_inline(files.cell.key)}"]
    parts += _section("Widest gap", valid[:NUM_EACH], prompts)
    parts += _section("Lowest gap", lowest[::-1], prompts)
    if all(row["valid"] is None for row in rubrics):
        parts.append("The evaluator of this arm writes no rubrics.")
    parts += _section(f"Invalid ({len(invalid)} of {len(rubrics)})", invalid[:NUM_EACH], prompts)
    return "\n\n".join(parts) + "\n"


def _section(
    title: str, rows: Sequence[Mapping[str, Any]], prompts: Mapping[str, str]
) -> list[str]:
    if not rows:
        return []
    return [f"## {title}"] + [part for row in rows for part in _sample(row, prompts)]


def _sample(row: Mapping[str, Any], prompts: Mapping[str, str]) -> list[str]:
    figures = ", ".join(
        f"{name} {float(row[name]):.3f}" for name in _FIGURES if row.get(name) is not None
    )
    facts = figures if row["valid"] else f"invalid: {row['invalid_reason']}"
    prompt = shorten(str(prompts.get(row["prompt_id"], row["prompt_id"])), 300)
    return [
        f"**{markdown_inline(prompt)}** - {markdown_inline(facts)}",
        markdown_block(shorten(str(row["text"]), MAX_TEXT)),
    ]


def _rows(path: Path, columns: list[str] | None = None) -> list[dict[str, Any]]:
    # Imported here: `import dynamicrubric.cli` has to stay fast.
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(path, columns=columns).to_pylist()
    return rows
