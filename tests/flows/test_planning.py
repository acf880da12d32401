"""The plan stage: values may change under a running `dvc repro`, the graph may not."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.config import ArmRun, load_config
from dynamicrubric.errors import UserError
from dynamicrubric.plan import expand, write_plan
from dynamicrubric.yamlio import dump_yaml, load_yaml
from flows.planning import check_dvc_lock, plan_stage, settle_plan, work_left
from flows.settings import Choice, lay_choice
from tasks.study import Study

ROOT = Path(__file__).resolve().parents[2]
PARAMS = Path(__file__).with_name("params.yaml")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (tmp_path / "params.yaml").write_text(PARAMS.read_text(encoding="utf-8"), encoding="utf-8")
    write_plan(expand(load_config(tmp_path / "params.yaml")), tmp_path / "cells.yaml")
    return Study(tmp_path)


def change(study: Study, place: str, value: object) -> None:
    document = load_yaml(study.root / "params.yaml")
    *parents, last = place.split(".")
    section = document
    for name in parents:
        section = section.setdefault(name, {})
    section[last] = value
    dump_yaml(document, study.root / "params.yaml")


def test_plan_stage_of_unchanged_settings_writes_nothing(study: Study) -> None:
    before = (study.root / "cells.yaml").stat().st_mtime_ns
    plan_stage(study)
    assert (study.root / "cells.yaml").stat().st_mtime_ns == before


def test_plan_stage_passes_changed_values_on(study: Study) -> None:
    before = load_yaml(study.root / "cells.yaml")["cells"]
    change(study, "study.arms.frozen.policy", {"learning_rate": 7e-4})
    plan_stage(study)
    after = load_yaml(study.root / "cells.yaml")["cells"]
    changed = {key for key in after if after[key] != before[key]}
    assert changed == {"frozen-s1-r1"}
    plan_stage(study)  # and again, nothing to say


def test_dvc_sees_a_bumped_version(project: Any) -> None:
    """`train_policy` stands for the steps, whose versions `plan` depends on."""
    (project.root / "data/runs").mkdir(parents=True)
    (project.root / "results").mkdir()
    outs = load_yaml(ROOT / "dvc.yaml")["stages"]["compare"]["outs"]
    names = [out if isinstance(out, str) else next(iter(out)) for out in outs]
    for name_of_out in names:
        out = project.root / name_of_out
        file = out if out.suffix else out / "index.html"  # the report is a folder
        file.parent.mkdir(exist_ok=True)
        file.write_text(file.name)
    dvc = (sys.executable, "-m", "dvc")
    project.run(*dvc, "commit", "--force", "plan", "compare")
    assert "up to date" in project.run(*dvc, "status", "plan", "compare")
    path = project.root / "dynamicrubric/versions.py"
    text = path.read_text(encoding="utf-8")
    for name in ("train_policy", "COMPARE_VERSION"):
        line = next(line for line in text.splitlines() if name in line)
        text = text.replace(line, re.sub(r"\d+", "77", line))
    path.write_text(text, encoding="utf-8")
    of_plan, of_compare = project.run(*dvc, "status", "plan", "compare").split("compare:")
    assert "dynamicrubric/versions.py" in of_plan and "STEP_VERSIONS" in of_plan
    assert "dynamicrubric/versions.py" in of_compare and "COMPARE_VERSION" in of_compare


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        ("study.rounds", 2, "coevolved-s1-r2"),
        ("study.seeds", [1, 2], "coevolved-s2-r1"),
        ("study.seeds", [5], "coevolved-s5-r1"),
    ],
)
def test_plan_stage_refuses_a_changed_graph_and_says_to_run_again(
    study: Study, place: str, value: object, named: str
) -> None:
    change(study, place, value)
    with pytest.raises(UserError, match="Run the same `dvc` command again") as caught:
        plan_stage(study)
    assert named in str(caught.value)
    plan_stage(Study(study.root))  # cells.yaml is up to date: the same command goes on


def test_plan_stage_of_impossible_settings_leaves_the_plan_alone(study: Study) -> None:
    before = (study.root / "cells.yaml").read_bytes()
    change(study, "recipe.responses_per_set", 1)
    with pytest.raises(UserError, match="responses_per_set"):
        plan_stage(study)
    assert (study.root / "cells.yaml").read_bytes() == before


def test_folders_of_cells_that_are_gone_are_set_aside_and_kept(study: Study) -> None:
    runs = study.root / "data" / "runs"
    for key in ("coevolved-s1-r1", "retired-s1-r1"):
        (runs / key).mkdir(parents=True)
        (runs / key / "metrics.json").write_text(json.dumps({"kl": 0.1}))
    for number in (1, 2):
        settle_plan(study, say=lambda text: None)
        assert [folder.name for folder in runs.iterdir()] == ["coevolved-s1-r1"]
        (runs / "retired-s1-r1").mkdir()
        assert (study.work / "retired" / "retired-s1-r1" / "metrics.json").is_file()
        assert len(list((study.work / "retired").iterdir())) == number


def test_grids_that_are_gone_are_set_aside_and_kept(study: Study) -> None:
    for seed in (1, 2):
        folder = study.root / "data" / "grid" / f"s{seed}"
        folder.mkdir(parents=True)
        (folder / "metrics.json").write_text("{}")
    arms = load_yaml(study.root / "params.yaml")["study"]["arms"]
    stale = {"question": "Does it matter whose?", "generator": {"update": "stale"}}
    change(study, "study.arms", {**arms, "stale": stale})
    change(study, "study.rounds", 2)
    settle_plan(study, say=lambda text: None)
    assert [folder.name for folder in (study.root / "data/grid").iterdir()] == ["s1"]
    assert (study.work / "retired/grid-s2/metrics.json").is_file()


def test_dvc_has_a_stage_for_each_grid_of_the_plan_and_none_without(project: Any) -> None:
    dvc = (sys.executable, "-m", "dvc", "stage", "list", "--name-only")
    assert "grid@" not in project.run(*dvc)
    arms = load_yaml(project.root / "params.yaml")["study"]["arms"]
    stale = {"question": "Does it matter whose?", "generator": {"update": "stale"}}
    project.change(study__rounds=2, study__seeds=[1, 2], study__arms={**arms, "stale": stale})
    write_plan(expand(load_config(project.root / "params.yaml")), project.root / "cells.yaml")
    listed = project.run(*dvc).split()
    assert [name for name in listed if name.startswith("grid@")] == ["grid@s1", "grid@s2"]
    assert not [name for name in listed if name.startswith("audit@")]
    project.change(study__audit={"checkpoints": 1})
    write_plan(expand(load_config(project.root / "params.yaml")), project.root / "cells.yaml")
    listed = project.run(*dvc).split()
    assert [name for name in listed if name.startswith("audit@")] == ["audit@s1", "audit@s2"]


LOCK = "schema: '2.0'\nstages:\n  plan:\n    cmd: python -m flows plan\n"
CONFLICTED = LOCK.replace("  plan:\n", "<<<<<<< ours\n  plan:\n=======\n  plan:\n>>>>>>> theirs\n")


@pytest.mark.parametrize("text", [CONFLICTED, "stages: [", "- a list", LOCK + LOCK])
def test_dvc_lock_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "dvc.lock").write_text(text)
    with pytest.raises(UserError, match=r"dvc\.lock") as caught:
        check_dvc_lock(tmp_path)
    assert "git checkout --ours" in str(caught.value)


@pytest.mark.parametrize("text", [LOCK, "", None])
def test_dvc_lock_that_dvc_reads_passes(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "dvc.lock").write_text(text)
    check_dvc_lock(tmp_path)


def test_ablation_with_a_conflicted_dvc_lock_starts_nothing(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import driver

    (study.root / "dvc.lock").write_text(CONFLICTED)
    monkeypatch.chdir(study.root)
    monkeypatch.setattr(driver, "prefect_server", lambda root: pytest.fail("a server was started"))
    monkeypatch.setattr(driver, "shared_host", lambda *a: pytest.fail("a host was started"))
    with pytest.raises(UserError, match=r"dvc\.lock"):
        driver.run_ablation()


def test_choice_is_written_into_the_settings_and_said(study: Study) -> None:
    said: list[str] = []
    path = study.root / "params.yaml"
    lay_choice(study.root, Choice(), say=said.append)
    assert said == []
    lay_choice(study.root, Choice(arms=("frozen",), seeds=(2, 3), rounds=2), say=said.append)
    assert load_config(path).study.runs == (ArmRun("frozen", (2, 3), 2),)
    assert len(said) == 1
    before = path.read_bytes()
    with pytest.raises(UserError, match="nobody"):
        lay_choice(study.root, Choice(arms=("nobody",)), say=said.append)
    assert path.read_bytes() == before
    assert [entry.name for entry in study.root.iterdir() if entry.name.endswith(".tmp")] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--group", "study", "--arms", "frozen"), "--group and --arms"),
        (("--arms", "nobody"), "names the arm 'nobody'"),
        (("--group", "nothing"), "run is 'nothing', which is no group"),
        (("--seeds", "1,x"), "'x'"),
        (("--seeds", "5-3"), "'5-3'"),
        (("--seeds", "1,1"), "lists 1 more than once"),
    ],
)
def test_ablation_refuses_an_impossible_choice_and_starts_nothing(
    project: Any, arguments: tuple[str, ...], said: str
) -> None:
    before = (project.root / "params.yaml").read_bytes()
    assert said in project.flow("ablation", *arguments, fails=True)
    assert (project.root / "params.yaml").read_bytes() == before
    assert not (project.root / "data").exists()


def test_work_left_says_of_how_many_cells_only_where_some_are_trained() -> None:
    assert work_left(4, 4, 2).startswith("4 cells to train or restore, 2 side by side")
    assert work_left(1, 4, 2).startswith("1 of 4 cells to train or restore")
    assert work_left(1, 1, 2).startswith("1 cell to train or restore")
