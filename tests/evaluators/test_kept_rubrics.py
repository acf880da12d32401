"""Rubrics and prompts on disk: whatever characters a model or a person wrote come back."""

from __future__ import annotations

import json
from pathlib import Path

from dynamicrubric.engines.base import Generation
from dynamicrubric.evaluators.writers import KeptWriter
from dynamicrubric.worlds.prepared import read_jsonl

ODD = "one\u2028two\u0085three\x0bfour\x1cfive\rsix\nseven"
"""Every kind of what `str.splitlines` takes for the end of a line."""


def test_kept_rubric_with_line_separators_in_it_is_read_back(tmp_path: Path) -> None:
    kept = {"a": Generation((), ODD, "stop"), "b": Generation.failed("too_long")}
    KeptWriter(kept).save(tmp_path)
    assert KeptWriter.load(tmp_path).kept == kept


def test_row_with_line_separators_in_it_is_one_row(tmp_path: Path) -> None:
    rows = [{"id": "a", "text": ODD}, {"id": "b", "text": ""}]
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    assert read_jsonl(path) == rows
