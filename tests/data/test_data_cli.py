"""`dynamicrubric data` from outside: exit codes, sentences, and nothing written on bad input."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("pyarrow", "pandas", "datasets", "numpy", "dynamicrubric.data.prepare")


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dynamicrubric.cli", "data", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def files(write_jsonl: Callable[..., Path], anchor: Callable[..., dict[str, Any]]) -> Path:
    """A folder with rows.jsonl, of which one row is in bench.jsonl, and clean.jsonl."""
    rows = write_jsonl("rows.jsonl", [anchor(n) for n in range(12)])
    write_jsonl("bench.jsonl", [anchor(4, id="b"), anchor(77)])
    write_jsonl("clean.jsonl", [anchor(88)])
    return rows.parent


def test_data_prepare_writes_the_set_and_says_what_it_left_out(files: Path) -> None:
    done = run("prepare", "rows.jsonl", "--against", "bench.jsonl", "--out", "a/set", cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    assert "prompt_equal" in done.stdout
    assert "held-out prompts to a/set" in done.stdout
    assert sorted(path.name for path in (files / "a").iterdir()) == ["set"]
    assert (files / "a/set/record.json").is_file()


def test_data_contamination_check_exits_one_on_an_overlap_only(files: Path) -> None:
    clean = run("contamination", "rows.jsonl", "--against", "clean.jsonl", "--check", cwd=files)
    assert (clean.returncode, clean.stderr) == (0, "")
    assert "0 of 12 training rows overlap a benchmark." in clean.stdout
    found = run("contamination", "rows.jsonl", "--against", "bench.jsonl", "--check", cwd=files)
    assert (found.returncode, found.stderr) == (1, "")
    assert "1 of 12 training rows overlap a benchmark." in found.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["prepare", "absent.jsonl", "--out", "out"], "absent.jsonl: got no such file"),
        (
            ["prepare", "rows.jsonl", "bad.jsonl", "--out", "new/out"],
            "bad.jsonl: got not JSON at line 1",
        ),
        (["prepare", "rows.jsonl", "--out", "out", "--settings", "s.yaml"], "filters.min_respons"),
        (["contamination", "rows.jsonl", "--out", "out"], "--against"),
        (
            ["contamination", "bad.jsonl", "--against", "rows.jsonl", "--out", "out"],
            "bad.jsonl: got not JSON at line 1",
        ),
    ],
)
def test_data_bad_input_is_a_sentence_and_nothing_is_written(
    files: Path, arguments: list[str], said: str
) -> None:
    (files / "bad.jsonl").write_text("{\n", encoding="utf-8")
    (files / "s.yaml").write_text("filters: {min_responses: 0}\n", encoding="utf-8")
    before = sorted(files.rglob("*"))
    done = run(*arguments, cwd=files)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(files.rglob("*")) == before


def test_data_help_loads_nothing_that_reads_data() -> None:
    program = (
        f"import sys, dynamicrubric.cli; print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
