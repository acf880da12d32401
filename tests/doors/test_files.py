"""Scoring files: every row has a result, a stopped run goes on, and what is odd is named."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakeevaluator import FakeEvaluator
from typer.testing import CliRunner

from dynamicrubric.cli import app
from dynamicrubric.data.sources import open_sources
from dynamicrubric.doors.filerows import FileRow, read_rows
from dynamicrubric.doors.filescores import Tally, only_one, publish, score_rows
from dynamicrubric.doors.formats import write_csv, write_jsonl
from dynamicrubric.errors import InstrumentError, UserError

ROOT = Path(__file__).parents[2]
AWKWARD = ROOT.parent / "shared" / "data" / "awkward.jsonl"
LONG, SHORT = "a long response", "short"


def rows_of(path: Path) -> list[FileRow]:
    return list(read_rows(open_sources([str(path)], "")[0].open()))


def write(path: Path, *rows: Any) -> Path:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def score(path: Path, evaluator: Any = None, **settings: Any) -> list[dict[str, Any]]:
    """Score a file in one go and return its output."""
    part, out = path.with_suffix(".part"), path.with_suffix(".out")
    score_rows(rows_of(path), evaluator or FakeEvaluator(), part, {"input": "x"}, **settings)
    publish(part, out, write_jsonl)
    assert not part.exists()
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


BAD = [
    (b"\xff\xfe{}", "not_utf8", None),
    (b'{"prompt": ', "not_json", None),
    ([1, 2], "not_an_object", None),
    ("text", "not_an_object", None),
    ({"responses": ["a"]}, "no_prompt", "prompt"),
    ({"prompt": 5, "responses": ["a"]}, "no_prompt", "prompt"),
    ({"prompt": "  ", "responses": ["a"]}, "empty_prompt", "prompt"),
    ({"prompt": "\ud800", "responses": ["a"]}, "lone_surrogate", "prompt"),
    ({"prompt": "Why?"}, "no_responses", "responses"),
    ({"prompt": "Why?", "responses": []}, "no_responses", "responses"),
    ({"prompt": "Why?", "responses": "text"}, "no_responses", "responses"),
    ({"prompt": "Why?", "responses": {"a": 1}}, "no_responses", "responses"),
    ({"turns": ["a", "b"], "responses": ["a"]}, "not_a_conversation", "prompt"),
]


@pytest.mark.parametrize(("row", "fault", "field"), BAD)
def test_row_that_is_no_set_is_refused_by_line_and_field_and_the_rest_is_scored(
    tmp_path: Path, row: Any, fault: str, field: str | None
) -> None:
    good = {"prompt": "Why?", "responses": [SHORT, LONG]}
    found = score(write(tmp_path / "a.jsonl", good, row, good))
    assert [(one["refused"], one["field"]) for one in found] == [
        (None, None), (fault, field), (None, None),
    ]  # fmt: skip
    assert [one["place"] for one in found] == ["line 1", "line 2", "line 3"]
    assert found[0]["scores"] == found[2]["scores"] == [0.6, 1.0]
    assert found[1]["scores"] == []


def test_place_that_is_no_text_is_unscored_and_its_neighbours_are_scored(tmp_path: Path) -> None:
    responses = [5, None, LONG, {"a": 1}, [LONG], "\ud800", {"content": SHORT}]
    [found] = score(write(tmp_path / "a.jsonl", {"prompt": "Why?", "responses": responses}))
    assert found["scores"] == [None, None, 1.0, None, None, None, 0.6]
    not_text = "failed_response:response_not_text"
    assert found["reasons"] == [
        not_text, "failed_response:no_text", None, not_text, not_text,
        "failed_response:lone_surrogate", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "note"),
    [
        ({"responses": [LONG]}, "one_response"),
        ({"responses": [LONG, SHORT, LONG]}, "identical_responses: 0 = 2"),
        ({"responses": ["", " \n", LONG]}, "empty_response: 1"),
        ({"responses": [LONG, SHORT], "ranking": [0, 0]}, "ranking_unusable: not_a_permutation"),
        ({"responses": [5, SHORT], "ranking": [0, 0]}, "ranking_unusable: not_a_permutation"),
        (
            {"responses": [LONG, SHORT], "ranking": [0, 1], "tiers": [[1], [0]]},
            "ranking_unusable: tiers_disagree",
        ),
        ({"responses": [LONG, SHORT], "id": [1]}, "id_not_text"),
    ],
)
def test_odd_row_is_scored_and_noted(tmp_path: Path, row: dict[str, Any], note: str) -> None:
    [found] = score(write(tmp_path / "a.jsonl", {"prompt": "Why?", **row}))
    assert note in found["notes"]
    assert any(value is not None for value in found["scores"])
    assert found["refused"] is None


def test_rows_of_the_same_id_are_both_scored_and_the_second_names_the_first(tmp_path: Path) -> None:
    same = {"id": "a", "prompt": "Why?", "responses": [SHORT]}
    found = score(write(tmp_path / "a.jsonl", same, {**same, "id": "b"}, {**same, "prompt": "X"}))
    assert [one["scores"] for one in found] == [[0.6]] * 3
    assert found[2]["notes"][0] == "duplicate_id: also at line 1"
    assert "duplicate_id" not in str(found[:2])


def test_very_long_response_and_nectar_rows_are_scored(tmp_path: Path) -> None:
    nectar = {
        "prompt": "\n\nHuman: Hi\n\nAssistant: Hello!\n\nHuman: Why?\n\nAssistant: ",
        "answers": [{"answer": SHORT, "rank": 2}, {"answer": LONG, "rank": 1}],
    }
    evaluator = FakeEvaluator()
    path = write(tmp_path / "a.jsonl", {"prompt": "Why?", "responses": ["x" * 65_000]}, nectar)
    found = score(path, evaluator)
    assert [one["scores"] for one in found] == [[1.0], [0.6, 1.0]]
    assert evaluator.seen[1] == "Human: Hi\n\nAssistant: Hello!\n\nHuman: Why?"


def test_ranking_scores_and_models_never_reach_the_evaluator(tmp_path: Path) -> None:
    row = {"prompt": "Why?", "responses": [SHORT, LONG], "ranking": [1, 0]}
    evaluator = FakeEvaluator()
    path = write(tmp_path / "a.jsonl", row, {**row, "ranking": [0, 1], "models": ["m", "n"]})
    score(path, evaluator)
    assert evaluator.seeds[0] == evaluator.seeds[1]


def test_stopped_run_goes_on_behind_the_last_whole_row(tmp_path: Path) -> None:
    sets = [{"id": n, "prompt": f"p{n}", "responses": [SHORT, LONG]} for n in range(5)]
    whole = score(write(tmp_path / "whole.jsonl", *sets), batch_rows=2)
    sets[3]["prompt"] = "the verifier is down"
    path, part = write(tmp_path / "a.jsonl", *sets), tmp_path / "part"
    with pytest.raises(InstrumentError):
        score_rows(rows_of(path), FakeEvaluator(), part, {"input": "x"}, batch_rows=2)
    with part.open("ab") as stream:
        stream.write(b'{"torn')
    sets[3]["prompt"] = "p3"
    evaluator, told = FakeEvaluator(), []
    tally = score_rows(
        rows_of(write(path, *sets)), evaluator, part, {"input": "x"}, batch_rows=2,
        on_row=lambda tally: told.append(tally.rows),
    )  # fmt: skip
    assert evaluator.seen == ["p2", "p3", "p4"]
    assert told == [1, 2, 3, 4, 5]
    assert (tally.rows, tally.responses, tally.cost.calls) == (5, 10, 5)
    publish(part, tmp_path / "out", write_jsonl)
    lines = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == whole


KILLED = """
import os, sys
sys.path.insert(0, {tests!r})
from fakeevaluator import FakeEvaluator
from pathlib import Path
from dynamicrubric.data.sources import open_sources
from dynamicrubric.doors.filerows import read_rows
from dynamicrubric.doors.filescores import only_one, score_rows
kill = lambda: os.kill(os.getpid(), 9) if len(evaluator.sizes) == 3 else None
evaluator = FakeEvaluator(slowly=kill)
part = Path("part")
with only_one(part):
    rows = read_rows(open_sources(["a.jsonl"], "")[0].open())
    score_rows(rows, evaluator, part, {{"input": "x"}}, batch_rows=2)
"""


def test_run_that_is_killed_keeps_whole_batches_and_goes_on_to_the_same_output(
    tmp_path: Path,
) -> None:
    sets: list[Any] = [{"id": n, "prompt": f"p{n}", "responses": [SHORT, LONG]} for n in range(9)]
    sets[3] = b"\xff"
    path, part, out = write(tmp_path / "a.jsonl", *sets), tmp_path / "part", tmp_path / "out"
    code = KILLED.format(tests=str(Path(__file__).parent))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == -9
    evaluator = FakeEvaluator()
    with only_one(part):  # the kernel has let go of it
        assert score_rows(rows_of(path), evaluator, part, {"input": "x"}).rows == 9
    assert evaluator.seen == ["p4", "p5", "p6", "p7", "p8"]
    publish(part, out, write_jsonl)
    assert [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] == score(
        path
    )


def test_results_with_an_unreadable_line_are_gone_on_with_before_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *[{"prompt": p, "responses": [SHORT]} for p in "abc"])
    part = tmp_path / "part"
    score_rows(rows_of(path), FakeEvaluator(), part, {})
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join([*lines[:2], b"\0" * 40 + b"\n", *lines[3:]]))
    evaluator = FakeEvaluator()
    assert score_rows(rows_of(path), evaluator, part, {}).rows == 3
    assert evaluator.seen == ["b", "c"]
    assert part.read_bytes().splitlines(keepends=True) == lines


def test_results_are_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    part = tmp_path / "part"
    with only_one(part):
        with pytest.raises(UserError, match="another process"), only_one(part):
            pass
        with pytest.raises(UserError, match="another process"), only_one(part):
            pass
    with only_one(part):
        pass
    assert list(tmp_path.iterdir()) == []


def test_output_that_appears_meanwhile_is_kept_and_so_are_the_results(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"prompt": "a", "responses": [SHORT]})
    part, out = tmp_path / "part", tmp_path / "out"
    score_rows(rows_of(path), FakeEvaluator(), part, {})
    out.write_text("somebody's")
    with pytest.raises(UserError, match="nothing is scored twice"):
        publish(part, out, write_jsonl)
    assert out.read_text() == "somebody's"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.jsonl", "out", "part"]


def test_results_of_something_else_are_not_gone_on_with(tmp_path: Path) -> None:
    path, part = write(tmp_path / "a.jsonl", {"prompt": "a", "responses": ["b"]}), tmp_path / "p"
    score_rows(rows_of(path), FakeEvaluator(), part, {"input": "x", "seed": 0})
    before = part.read_bytes()
    with pytest.raises(UserError, match="another seed"):
        score_rows(rows_of(path), FakeEvaluator(), part, {"input": "x", "seed": 1})
    assert part.read_bytes() == before


def test_csv_has_a_row_for_each_response_and_each_refused_row_and_no_formula(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path / "a.jsonl",
        {"id": "=1+1", "prompt": "Why?", "responses": [SHORT, None]},
        {"prompt": "Why?"},
        {"prompt": "no rubric", "responses": [LONG]},
    )
    part, out = tmp_path / "part", tmp_path / "out.csv"
    score_rows(rows_of(path), FakeEvaluator(), part, {})
    publish(part, out, write_csv)
    with out.open(encoding="utf-8", newline="") as stream:
        found = list(csv.DictReader(stream))
    assert [row["place"] for row in found] == ["line 1", "line 1", "line 2", "line 3"]
    assert [row["score"] for row in found] == ["0.6", "", "", ""]
    assert found[0]["verdicts"] == "yes no"
    assert found[0]["rubric"] == "is there (3); is long (2)"
    assert found[0]["id"] == "'=1+1"
    assert found[2]["refused"] == "no_responses"
    assert found[3]["invalid_rubric"] == "not_json"


def test_tally_counts_refusals_reasons_and_notes(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", {"prompt": "Why?"}, {"prompt": "a", "responses": [None, "", ""]}
    )
    tally = score_rows(rows_of(path), FakeEvaluator(), tmp_path / "part", {})
    assert tally.refused == {"no_responses": 1}
    assert tally.first_refused == {"no_responses": "line 1 (responses)"}
    assert tally.unscored == {"failed_response:no_text": 1}
    assert tally.noted == {"identical_responses": 1, "empty_response": 1}
    assert isinstance(tally, Tally)


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "dynamicrubric.cli", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "params.yaml").write_bytes((ROOT / "profiles/postcards.yaml").read_bytes())
    return tmp_path


def test_score_command_awkward_file_goes_through_whole(project: Path) -> None:
    if not AWKWARD.is_file():
        pytest.skip("the public data are not here: ../shared/data/awkward.jsonl")
    for kind, form in (("programmatic", "jsonl"), ("length", "csv")):
        out = f"{kind}.{form}"
        done = command("score", str(AWKWARD), "--evaluator", kind, "--out", out, cwd=project)
        assert done.returncode == 0, done.stderr
        assert "14 of 14 rows scored" in done.stderr
    lines = (project / "programmatic.jsonl").read_text(encoding="utf-8").splitlines()
    given = [json.loads(line) for line in AWKWARD.read_text(encoding="utf-8").splitlines()]
    found = [json.loads(line) for line in lines]
    assert [row["id"] for row in found] == [row["id"] for row in given]
    assert [len(r["scores"]) for r in found] == [len(r["responses"]) for r in given]
    with (project / "length.csv").open(encoding="utf-8", newline="") as stream:
        assert len(list(csv.DictReader(stream))) == sum(len(row["responses"]) for row in given)


def test_score_command_shows_progress_and_keeps_an_output_that_is_there(project: Path) -> None:
    rows = [{"prompt": "Hi", "responses": ["a", "b"]}] * 25
    write(project / "a.jsonl", *rows)
    first = command("score", "a.jsonl", "--evaluator", "length", cwd=project)
    assert first.returncode == 0, first.stderr
    assert "10 of 25 rows" in first.stderr
    assert first.stdout == ""
    before = (project / "a.scores.jsonl").read_bytes()
    again = command("score", "a.jsonl", "--evaluator", "length", cwd=project)
    assert again.returncode == 2
    assert "a.scores.jsonl" in again.stderr
    assert (project / "a.scores.jsonl").read_bytes() == before


def test_score_command_without_one_score_says_so(project: Path) -> None:
    write(project / "b.jsonl", {"prompt": "Hi", "responses": [None]})
    done = command("score", "b.jsonl", "--evaluator", "length", cwd=project)
    assert done.returncode == 1
    assert "0 of 1 responses" in done.stderr


def test_score_command_without_one_usable_row_says_so(project: Path) -> None:
    write(project / "a.jsonl", {"prompt": "Hi"}, {"x": 1})
    done = command("score", "a.jsonl", "--evaluator", "length", cwd=project)
    assert done.returncode == 1
    assert "0 of 2 rows scored" in done.stderr
    assert len((project / "a.scores.jsonl").read_text(encoding="utf-8").splitlines()) == 2


REFUSED = [
    (["score", "none.jsonl"], "no such file"),
    (["score", "a.jsonl", "--evaluator", "gpt"], "one of dynamic, static"),
    (["score", "a.jsonl", "--evaluator", "length", "--format", "xml"], "jsonl or csv"),
    (["score", "a.jsonl", "--evaluator", "length", "--out", "no/such/x"], "no such folder"),
    (["score", "a.jsonl", "--evaluator", "length", "--verifier", "gpt"], "program, base, or"),
    (["score", "a.jsonl", "--generator", "no-such-cell"], "looking for the generator"),
    (["score", "a.jsonl", "--evaluator", "length", "--generator", "openai:x"], "alone"),
    (["score", "a.jsonl", "--evaluator", "length", "--reward-model", "x"], "alone"),
    (["score", "a.jsonl", "--base-url", "http://example.com/v1"], "https"),
    (["score", "hub:a/b"], "Download it"),
    (["rubric", "Hi", "--evaluator", "length"], "no response"),
    (["rubric", " ", "-r", "a", "--evaluator", "length"], "an empty prompt"),
    (["rubric", "Hi", "-f", "none.txt", "--evaluator", "length"], "none.txt"),
    (["serve-reward", "--host", "0.0.0.0", "--evaluator", "length"], "DYNAMICRUBRIC_API_KEY"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_commands_refuse_in_one_sentence(
    project: Path, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DYNAMICRUBRIC_API_KEY", raising=False)
    write(project / "a.jsonl", {"prompt": "Hi", "responses": ["a"]})
    done = command(*arguments, cwd=project)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_rubric_command_refuses_a_prompt_that_is_no_utf8_in_one_sentence(project: Path) -> None:
    arguments = ["rubric", "-", "-r", "a", "--evaluator", "length"]
    for sent, code in ((b"caf\xe9", 2), ("caf\u00e9".encode(), 0)):
        done = subprocess.run(
            [sys.executable, "-m", "dynamicrubric.cli", *arguments],
            cwd=project, env={**os.environ, "PYTHONPATH": str(ROOT)}, input=sent,
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        refused = [line for line in done.stderr.splitlines() if line.startswith(b"error: ")]
        assert len(refused) == bool(code)
        assert (b"UTF-8" in done.stderr, b"Traceback" in done.stderr) == (bool(code), False)


def test_rubric_command_shows_criteria_verdicts_and_scores(project: Path) -> None:
    good = "Dear Emma, greetings. I wish you joy."
    done = command(
        "rubric", "Hi", "-r", "NO", "-r", good, "--evaluator", "programmatic", cwd=project
    )
    assert done.returncode == 0, done.stderr
    assert "greets the reader" in done.stdout
    assert done.stdout.index("R2   ") < done.stdout.index("NO")
    as_json = command(
        "rubric", "Hi", "-r", "NO", "-r", good, "--evaluator", "programmatic", "--json",
        cwd=project,
    )  # fmt: skip
    document = json.loads(as_json.stdout)
    assert document["scores"][1] > document["scores"][0]


def test_scoring_that_is_interrupted_says_that_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    path = write(tmp_path / "a.jsonl", {"prompt": "a", "responses": [SHORT]})
    arguments = ["score", str(path), "--evaluator", "length"]
    with monkeypatch.context() as patched:
        patched.setattr("dynamicrubric.doors.filescores._scored", _interrupt)
        done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == "Stopped. The same command goes on from here.\n"
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert (tmp_path / "a.scores.jsonl").is_file()


def _interrupt(*arguments: Any) -> None:
    raise KeyboardInterrupt
