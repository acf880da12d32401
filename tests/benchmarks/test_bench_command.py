"""The command from the outside: files in, tables out; refusals in a sentence."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dynamicrubric.benchmarks.settings import BenchSettings, load_settings
from dynamicrubric.cli import app
from dynamicrubric.errors import UserError

SETTINGS = """
data: [{name: own, path: own.jsonl}]
evaluators: [{kind: length}, {kind: random}]
reference: length
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "id": f"r{n}",
            "prompt": f"Question {n}?",
            "responses": ["short", "a longer response"],
            "ranking": [n % 2, 1 - n % 2],
            "subset": "odd" if n % 4 else "even",
        }
        for n in range(40)
    ]
    lines = [json.dumps(row) for row in rows] + ['{"prompt": "x", "responses": ["a"]}']
    (tmp_path / "own.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    return tmp_path


def invoke(*words: str) -> str:
    result = CliRunner().invoke(app, ["bench", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_evaluator_command_writes_figures_with_length_beside_and_names_refused_rows(
    project: Path,
) -> None:
    output = invoke("evaluator", "settings.yaml", "--out", "out")
    assert "1 of 41 rows refused; line 41, responses: one_response" in output
    with (project / "out/figures.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    accuracy = {
        (one["evaluator"], one["subset"]): one for one in lines if one["figure"] == "accuracy"
    }
    assert float(accuracy["length", "all"]["value"]) == 0.5
    assert all(one["beside_longer_wins"] for one in lines if one["dataset"] == "own")
    table = (project / "out/table.md").read_text()
    assert "longer wins" in table
    assert "length - random" in table
    refused = [json.loads(line) for line in (project / "out/refused.jsonl").open()]
    assert [(one["place"], one["field"]) for one in refused] == [("line 41", "responses")]
    assert (project / "out/accuracy.png").stat().st_size > 1000


def test_second_start_scores_nothing_and_changes_no_byte(project: Path) -> None:
    invoke("evaluator", "settings.yaml", "--out", "out", "--limit", "10")
    before = {p.name: p.read_bytes() for p in (project / "out").iterdir()}
    output = invoke("evaluator", "settings.yaml", "--out", "out", "--limit", "10")
    assert "20 of 20 were scored before" in output
    assert {p.name: p.read_bytes() for p in (project / "out").iterdir()} == before


def test_seeds_of_one_command_equal_runs_that_are_joined(project: Path) -> None:
    invoke("evaluator", "settings.yaml", "--out", "all", "--seeds", "1-3")
    for seed in "123":
        invoke("evaluator", "settings.yaml", "--out", f"s{seed}", "--seeds", seed)
    invoke("seeds", "s1", "s2", "s3", "--out", "joined", "--reference", "length")
    for name in ("figures.csv", "table.md", "comparisons.csv", "figures.json"):
        assert (project / "joined" / name).read_bytes() == (project / "all" / name).read_bytes()
    assert "seeds and prompts" in (project / "joined/comparisons.csv").read_text()


def test_rows_without_a_subset_beside_rows_with_one_are_a_subset_of_their_own(
    project: Path,
) -> None:
    rows = [json.loads(line) for line in (project / "own.jsonl").read_text().splitlines()[:-1]]
    for row in rows[:10]:
        del row["subset"]
    (project / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    invoke("evaluator", "settings.yaml", "--out", "out", "--evaluator", "length")
    with (project / "out/figures.csv").open() as stream:
        lines = [one for one in csv.DictReader(stream) if one["figure"] == "accuracy"]
    counts = {one["subset"]: int(one["n_total"]) for one in lines}
    assert len(counts) == len(lines)
    assert (counts["unnamed"], counts["all"]) == (10, 40)


def test_joining_refuses_equal_seeds_other_settings_and_unfinished_runs(project: Path) -> None:
    invoke("evaluator", "settings.yaml", "--out", "a", "--limit", "5")
    invoke("evaluator", "settings.yaml", "--out", "b", "--limit", "6", "--seeds", "2")
    own = project / "own.jsonl"
    own.write_text(own.read_text().replace("Question 3?", "Question three?"))
    invoke("evaluator", "settings.yaml", "--out", "c", "--limit", "40", "--seeds", "1")
    own.write_text(own.read_text().replace("Question three?", "Question 3?"))
    invoke("evaluator", "settings.yaml", "--out", "d", "--limit", "40", "--seeds", "2")
    invoke("evaluator", "settings.yaml", "--out", "torn", "--limit", "5", "--seeds", "3")
    (project / "torn/scores.jsonl").write_text("{}\n")
    for folders, message in (
        (("a", "a"), "seed 1"),
        (("c", "d"), "other rows of the data set own"),
        (("a", "torn"), "line 1 of scores.jsonl"),
        (("a", "b"), "limit: 5 -> 6"),
        (("a", "missing"), "no run.json"),
    ):
        with pytest.raises(UserError, match=message):
            invoke("seeds", *folders, "--out", "joined")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("evaluators: [{kind: lenght}]", "lenght"),
        ("evaluators: [{kind: length}, {kind: length}]", "two evaluators are called 'length'"),
        ("data: [{name: own, paht: own.jsonl}]", "did you mean path"),
        ("reference: nobody", "nobody"),
        ("limit: 0", "limit"),
        ("data: [{name: study}]", "study"),
    ],
)
def test_wrong_settings_are_refused_by_key(project: Path, changed: str, message: str) -> None:
    key = changed.partition(":")[0]
    kept = [line for line in SETTINGS.splitlines() if not line.startswith(key + ":")]
    (project / "settings.yaml").write_text("\n".join([*kept, changed]) + "\n")
    with pytest.raises(UserError, match=message):
        load_settings(project / "settings.yaml", BenchSettings)


def test_awkward_rows_go_through(
    project: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shared_data / "awkward.jsonl"
    (project / "settings.yaml").write_text(
        f"data: [{{name: awkward, path: {path}}}]\nevaluators: [{{kind: length}}, {{kind: random}}]"
    )
    invoke("evaluator", "settings.yaml", "--out", "out")
    lines = (project / "out/scores.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2 * 14


def test_help_and_refusals_load_nothing_heavy(project: Path) -> None:
    code = (
        "import sys; from dynamicrubric.cli import app; from typer.testing import CliRunner; "
        "CliRunner().invoke(app, ['bench', 'evaluator', 'nowhere.yaml', '--out', 'x']); "
        "print(*[n for n in ('torch', 'transformers', 'pandas', 'scipy') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.strip() == ""


def test_checked_in_settings_are_valid(project_root: Path) -> None:
    for path in sorted((project_root / "benchmarks/evaluators").glob("*.yaml")):
        from dynamicrubric.benchmarks.settings import RubricsSettings, SwapSettings

        kind = {"swap": SwapSettings, "rubrics": RubricsSettings}.get(
            path.stem.partition("-")[2], BenchSettings
        )
        assert load_settings(path, kind).evaluators
