"""The command line from outside: exit codes, sentences, seconds, and nothing written."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from dynamicrubric.boundary import run_with_boundary, sentence_for
from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.yamlio import dump_yaml

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "transformers", "trl", "datasets", "pandas", "prefect", "mlflow", "dvc")


def dynamicrubric(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return python("-m", "dynamicrubric.cli", *arguments, cwd=cwd)


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, which finds the sources."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).parent / "study.yaml", tmp_path / "params.yaml")
    return tmp_path


def edit(project: Path, old: str, new: str) -> None:
    path = project / "params.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


REFUSED = [
    ("  evaluator: dynamic", "  evaluatr: dynamic", ["recipe.evaluatr", "did you mean evaluator"]),
    ("rounds: 3", 'rounds: "3"', ["study.rounds = '3'", "integer"]),
    ("rounds: 3", "rounds: 0", ["study.rounds = 0", "greater than or equal to 1"]),
    ("responses_per_set: 8", "responses_per_set: 1", ["responses_per_set = 1", "equal to 2"]),
    ("group_size: 8", "group_size: 6", ["generator.batch_size is 64", "group_size 6", "48"]),
    ("    stale:\n", "    coevolved:\n", ["duplicate key", "coevolved"]),
    ("update: stale", "update: fresh", ["study.arms.stale", "same recipe", "coevolved"]),
    ("    stale:\n", "    ../evil:\n", ["'../evil'", "study.arms", "starts with a letter"]),
    ("evaluator: static", "evaluator: gpt", ["study.arms.static", "'gpt'", "'dynamic'"]),
    ("update: stale", "update: never", ["study.arms.stale", "'never'", "'none'"]),
    ("kl_beta: 0.01", "kl_beta: .nan", ["recipe.generator.kl_beta = nan", "finite"]),
]


@pytest.mark.parametrize(("old", "new", "said"), REFUSED)
def test_cli_bad_params_are_refused_in_one_sentence_and_nothing_is_written(
    project: Path, old: str, new: str, said: list[str]
) -> None:
    edit(project, old, new)
    before = {path: path.read_bytes() for path in project.rglob("*")}
    done = dynamicrubric("plan", cwd=project)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: reading params.yaml: ")
    assert done.stderr.count("\n") == 1
    assert [part for part in said if part not in done.stderr] == []
    assert {path: path.read_bytes() for path in project.rglob("*")} == before


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_cli_refusal_takes_less_than_two_seconds(project: Path) -> None:
    edit(project, "rounds: 3", "rounds: 0")
    seconds = []
    for _ in range(3):  # processor time: other work on the machine is not what is measured
        before = _seconds_of_children()
        dynamicrubric("validate", cwd=project)
        seconds.append(_seconds_of_children() - before)
    assert min(seconds) < 2.0


@pytest.mark.parametrize("module", ["cli", "config", "plan", "boundary"])
def test_import_of_the_light_modules_loads_no_heavy_library(module: str) -> None:
    program = (
        f"import sys, dynamicrubric.{module}; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_cli_validate_says_what_the_study_asks_for_and_writes_nothing(project: Path) -> None:
    done = dynamicrubric("validate", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert "11 cells to train for 4 arms x 1 seed x 3 rounds = 12; 1 shared" in done.stdout
    assert "coevolved" in done.stdout
    assert [path.name for path in project.iterdir()] == ["params.yaml"]


def test_cli_plan_writes_the_cells_once(project: Path) -> None:
    done = dynamicrubric("plan", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Wrote cells.yaml and cells.json\n11 cells")
    again = dynamicrubric("plan", cwd=project)
    assert again.stdout.startswith("Unchanged: cells.yaml and cells.json")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["stale", "1", "=", "coevolved", "=", "coevolved", "s1-r2", "s1-r3"] in rows
    assert "0 of 11 cells are trained." in done.stdout
    assert "no earlier run in this folder" in done.stdout


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_cli_plan_takes_a_broken_record_for_a_cell_that_is_not_there(
    project: Path, text: str
) -> None:
    for folder in ("runs/coevolved-s1-r1/evaluation", "grid/s1"):
        (project / "data" / folder).mkdir(parents=True)
        (project / "data" / folder / "record.json").write_text(text)
    found = dynamicrubric("plan", cwd=project)
    assert (found.returncode, found.stderr) == (0, "")
    assert "0 of " in found.stdout


def test_cli_plan_draws_the_lattice(project: Path) -> None:
    done = dynamicrubric("plan", "--graph", "lattice.svg", cwd=project)
    assert done.returncode == 0
    assert "Drew lattice.svg" in done.stdout
    text = (project / "lattice.svg").read_text(encoding="utf-8")
    assert text.rstrip().endswith("</svg>")
    refused = dynamicrubric("plan", "--graph", "lattice.txt", cwd=project)
    assert refused.returncode == 2
    assert "lattice.txt" in refused.stderr
    assert ".svg or .png or .pdf" in refused.stderr


def test_cli_plan_check_of_an_older_plan_exits_one_and_leaves_it(project: Path) -> None:
    dynamicrubric("plan", cwd=project)
    assert dynamicrubric("plan", "--check", cwd=project).returncode == 0
    edit(project, "rounds: 3", "rounds: 2")
    before = (project / "cells.yaml").read_bytes()
    done = dynamicrubric("plan", "--check", cwd=project)
    assert done.returncode == 1
    assert done.stderr == (
        "cells.yaml and cells.json do not match params.yaml. Run `dynamicrubric plan`, and commit "
        "params.yaml, cells.yaml and cells.json together.\n"
    )
    assert (project / "cells.yaml").read_bytes() == before


@pytest.mark.parametrize("name", ["cells.yaml", "cells.json"])
def test_cli_plan_check_names_the_file_that_differs(project: Path, name: str) -> None:
    dynamicrubric("plan", cwd=project)
    (project / name).write_text("{}\n", encoding="utf-8")
    done = dynamicrubric("plan", "--check", cwd=project)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name} does not match params.yaml. Run `dynamicrubric plan`")


def test_cli_plan_check_without_a_plan_exits_one(project: Path) -> None:
    assert dynamicrubric("plan", "--check", cwd=project).returncode == 1
    assert not (project / "cells.yaml").exists()


def test_cli_other_paths_are_read_and_written(project: Path) -> None:
    (project / "params.yaml").rename(project / "other study.yaml")
    done = dynamicrubric(
        "plan", "--params", "other study.yaml", "--cells", "other cells.yaml", cwd=project
    )
    assert done.returncode == 0
    assert (project / "other cells.yaml").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["validate", "--params", "absent.yaml"], "absent.yaml: got no such file"),
        (["plan", "--cells", "absent/cells.yaml"], "absent/cells.yaml"),
        (["plan", "--cells", "params.yaml/cells.yaml"], "params.yaml/cells.yaml"),
        (["plan", "--cells", "."], "writing .: got a folder"),
        (["plan", "--cells", "params.yaml"], "a YAML file other than params.yaml"),
        (["plan", "--cells", "cells.json"], "the name of a YAML file"),
        (["plan", "--graph", "."], "drawing the plan to .: got a folder"),
        (["plan", "--graph", "plan.txt"], "a name that ends in '.txt'"),
        (["plan", "--check", "--graph", "plan.svg"], "a check writes nothing"),
    ],
)
def test_cli_path_that_is_not_there_is_a_sentence(
    project: Path, arguments: list[str], said: str
) -> None:
    done = dynamicrubric(*arguments, cwd=project)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in project.iterdir()) == ["params.yaml"]


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["validate", "--help"]])
def test_cli_help_exits_zero(tmp_path: Path, arguments: list[str]) -> None:
    done = dynamicrubric(*arguments, cwd=tmp_path)
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_cli_unknown_command_exits_two_without_a_trace(tmp_path: Path) -> None:
    done = dynamicrubric("trian", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_boundary_returns_the_codes_of_the_command() -> None:
    assert run_with_boundary(lambda: None) == 0
    assert run_with_boundary(lambda: 3) == 3


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UserError(doing="reading a", got="b"), "reading a: got b."),
        (InstrumentError("the verifier is down"), "the verifier is down"),
        (OSError(errno.ENOSPC, "x", "work/a"), "work/a: the disk is full. Free some space"),
        (OSError(errno.EDQUOT, "x", "work/a"), "work/a: the disk quota is used up."),
        (PermissionError(errno.EACCES, "x", "data/b"), "data/b: no permission."),
        (OSError(errno.EADDRINUSE, "x"), "The address is in use."),
        (OSError(errno.EROFS, "x", "a", None, "b"), "b: the file system is read-only."),
    ],
)
def test_boundary_error_for_people_is_one_sentence_and_code_two(
    capsys: pytest.CaptureFixture[str], error: Exception, sentence: str
) -> None:
    def fail() -> None:
        raise error

    assert run_with_boundary(fail) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {sentence}")
    assert captured.err.count("\n") == 1


def test_boundary_looks_at_what_an_error_was_raised_from() -> None:
    wrapped = RuntimeError("cannot save")
    wrapped.__cause__ = OSError(errno.ENOSPC, "No space left on device", "work/x")
    assert sentence_for(wrapped) == (
        "work/x: the disk is full. Free some space, then run the same command again."
    )


def test_boundary_fault_of_ours_keeps_its_trace() -> None:
    with pytest.raises(ZeroDivisionError):
        run_with_boundary(lambda: 1 // 0)
    with pytest.raises(ConnectionResetError):
        run_with_boundary(lambda: (_ for _ in ()).throw(ConnectionResetError(errno.ECONNRESET, "")))


def test_boundary_interrupt_exits_130(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert run_with_boundary(interrupt) == 130
    assert "Stopped" in capsys.readouterr().err


def test_boundary_database_in_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect(tmp_path / "absent" / "mlflow.db")
    sentence = sentence_for(caught.value)
    assert sentence is not None
    assert "database" in sentence


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_boundary_real_full_device_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def fill() -> None:
        Path("/dev/full").write_text("x", encoding="utf-8")

    assert run_with_boundary(fill) == 2
    assert "disk is full" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_boundary_full_disk_names_the_file_that_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".cells.yaml.tmp").symlink_to("/dev/full")

    assert run_with_boundary(lambda: dump_yaml({"a": 1}, tmp_path / "cells.yaml")) == 2
    assert f"{tmp_path / 'cells.yaml'}: the disk is full" in capsys.readouterr().err


def test_cli_plan_without_permission_is_a_sentence(project: Path) -> None:
    program = (
        "import ctypes, runpy\n"
        "version, itself, none = 0x20080522, 0, (ctypes.c_uint32 * 6)()\n"
        "# Root may write anywhere, until it gives its capabilities up; others have none.\n"
        "assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(version, itself), none) == 0\n"
        "runpy.run_module('dynamicrubric.cli', run_name='__main__')\n"
    )
    project.chmod(0o555)
    try:
        done = python("-c", program, "plan", cwd=project)
    finally:
        project.chmod(0o755)
    assert done.returncode == 2, done.stderr
    assert "no permission" in done.stderr
    assert "Traceback" not in done.stderr
