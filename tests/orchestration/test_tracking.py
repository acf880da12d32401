from __future__ import annotations

import logging
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest

from dynamicrubric.config import Config, load_config
from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.metrics import ROUND_METRICS, tracker_keys
from dynamicrubric.plan import expand, write_plan
from dynamicrubric.report import write_comparison
from dynamicrubric.yamlio import dump_yaml
from tasks import payload, shipjob
from tasks import track_round as track_round_module
from tasks.disk import remove
from tasks.payload import Point, gather_round, sendable, study_tag
from tasks.sharedhost import shared_host
from tasks.shipcomparison import log_comparison
from tasks.shipping import (
    close_round,
    open_round,
    reconcile,
    ship_round,
    ship_study,
)
from tasks.study import TRACKER_PRELOAD, Study
from tasks.trackerserver import default_uri, tracker_page, ui_command, ui_environment
from tasks.tracking import is_orphan, open_store, prepare_store

HELPERS = Path(__file__).parents[1] / "report"
ODD = 'Score > 90% | "quoted" ../x'


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """An empty database of the present schema: to make one takes seconds."""
    from mlflow.db import upgrade

    path = tmp_path_factory.mktemp("schema") / "mlflow.db"
    upgrade.callback(f"sqlite:///{path}")
    return path


@pytest.fixture
def study(fake_study, database, monkeypatch):
    """Two arms that share rounds 0 and 1, and an empty store of their own."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    study = fake_study(arms=("coevolved", "stale"), rounds=2)
    (study.root / "work/mlflow").mkdir(parents=True)
    shutil.copy(database, study.root / "work/mlflow/mlflow.db")
    return study


@pytest.fixture
def child(bench):
    """Start an interpreter that can import the fake study."""

    def start(code: str, *arguments: object):
        head = f"import sys; sys.path.insert(0, {str(HELPERS)!r})\n"
        return bench.python(head + code, *arguments)

    return start


def ship(study, key):
    outcome = ship_round(study.plan, key, study.root, study.config)
    assert outcome.ok, outcome.reason
    return outcome


def values(store, run_id, key):
    return [point.value for point in store.client.get_metric_history(run_id, key)]


def test_ship_round_of_a_shared_cell_has_a_run_under_each_arm(study):
    outcome = ship(study, "coevolved-s1-r1")
    store = open_store(study.root)
    runs = [store.client.get_run(run_id) for run_id in outcome.run_ids]
    parents = [store.client.get_run(run.data.tags["mlflow.parentRunId"]) for run in runs]
    assert [parent.data.tags["dr.arm"] for parent in parents] == ["coevolved", "stale"]
    assert {run.data.tags["dr.cell"] for run in runs} == {"coevolved-s1-r1"}
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert {parent.info.status for parent in parents} == {"SCHEDULED"}
    assert values(store, runs[0].info.run_id, "policy/reward") == pytest.approx(
        [0.1, 0.2, 0.3, 0.4]
    )
    assert runs[0].data.params["policy_training.steps"] == str(study.config.recipe.policy.steps)


def test_ship_round_names_where_its_results_came_from(study):
    outcome = ship(study, "coevolved-s1-r1")
    tags = open_store(study.root).client.get_run(outcome.run_id).data.tags
    assert tags["dr.cell_id"] == study.plan.cell("coevolved-s1-r1").id
    for name in ("generator", "policy", "evaluation"):
        assert len(tags[f"dr.artefact.{name}"]) == 64
    assert tags["dr.folder"] == "data/runs/coevolved-s1-r1"


def test_ship_round_twice_changes_nothing(study):
    first = ship(study, "stale-s1-r2")
    store = open_store(study.root)
    before = values(store, first.run_id, "generator/kl")
    assert ship(study, "stale-s1-r2").run_ids == first.run_ids
    assert len(store.find(arm="stale")) == 2
    assert values(store, first.run_id, "generator/kl") == before


def test_gather_round_leaves_out_the_log_that_came_with_an_untrained_generator(fake_study):
    study = fake_study(arms=("frozen",), rounds=1)
    points = gather_round(study.plan, "frozen-s1-r1", study.root).training_points
    keys = {point.key for point in points}
    assert keys == {"policy/reward", "policy/loss", "policy/kl", "policy/length"}


def test_ship_study_shows_each_arms_rounds_and_final_figures(study):
    assert ship_study(study.plan, study.root, study.config).ok
    store = open_store(study.root)
    for arm in ("coevolved", "stale"):
        (parent,) = store.find(kind="arm", arm=arm)
        history = store.client.get_metric_history(parent.info.run_id, "true_quality")
        assert [point.step for point in history] == [0, 1, 2]
        final = store.client.get_metric_history(parent.info.run_id, "final/true_quality")
        assert [(point.value, point.step) for point in final] == [(history[-1].value, 0)]
        assert parent.info.status == "FINISHED"
        assert len(store.find(kind="round", arm=arm)) == 3


def test_ship_study_after_one_arm_changed_keeps_the_other_arms_run_and_ships_no_old_results(study):
    ship_study(study.plan, study.root, study.config)
    store = open_store(study.root)
    (kept,) = store.find(kind="arm", arm="coevolved")
    diff = study.config.model_dump(mode="json")
    diff["study"]["arms"]["stale"]["generator"]["learning_rate"] = 0.01
    changed = Config.model_validate(diff)
    plan = expand(changed)
    assert ship_study(plan, study.root, changed).ok
    assert [run.info.run_id for run in store.find(kind="arm", arm="coevolved")] == [
        kept.info.run_id
    ]
    before, now = store.find(kind="arm", arm="stale")
    assert (before.info.status, now.info.status) == ("FINISHED", "SCHEDULED")
    history = store.client.get_metric_history(now.info.run_id, "true_quality")
    assert [point.step for point in history] == [0]  # shared with the other arm, and unchanged
    with pytest.raises(UserError, match="stale-s1-r2"):
        ship_round(plan, "stale-s1-r2", study.root, changed)


def test_ship_round_with_nan_and_infinity_sends_counts_instead(study):
    log = [{"reward": value} for value in (0.5, math.nan, math.inf, 0.7)]
    study.write_cell("stale-s1-r2", log=log)
    run_id = ship(study, "stale-s1-r2").run_id
    store = open_store(study.root)
    assert values(store, run_id, "policy/reward") == [0.5, 0.7]
    assert store.client.get_run(run_id).data.metrics["policy/reward_nonfinite"] == 2


def test_ship_round_with_500_odd_rubric_texts_adds_no_metric_key(study):
    study.prompts = 250
    study.write_cell("stale-s1-r2", rubric_texts=[f"{ODD} {n} <script>" for n in range(500)])
    run_id = ship(study, "stale-s1-r2").run_id
    store = open_store(study.root)
    assert set(store.client.get_run(run_id).data.metrics) <= tracker_keys()
    table = store.client.download_artifacts(run_id, "tables/rubrics.parquet")
    assert pq.read_table(table).num_rows == 500
    names = {item.path for item in store.client.list_artifacts(run_id, "tables")}
    assert "tables/verdicts_sample.csv" in names
    assert any(item.path == "rubric_samples.md" for item in store.client.list_artifacts(run_id))


def test_ship_round_with_an_unlisted_metric_is_refused(study):
    study.write_cell("stale-s1-r2", log=[{"reward|Score > 90%": 0.5}])
    with pytest.raises(AssertionError, match="TRAINING_METRICS"):
        ship_round(study.plan, "stale-s1-r2", study.root, study.config)
    with pytest.raises(AssertionError, match="not in dynamicrubric"):
        sendable([Point("policy/../x", 0.5, 1)])


def test_ship_round_of_an_unfinished_cell_is_an_error_not_tracking_trouble(study):
    shutil.rmtree(study.root / "data/runs/stale-s1-r2")
    with pytest.raises(UserError, match="stale-s1-r2"):
        ship_round(study.plan, "stale-s1-r2", study.root, study.config)


def test_ship_round_with_the_server_away_returns_soon_and_says_so(study, monkeypatch):
    asked: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def hang_up() -> None:
            with suppress(OSError):  # the socket is closed: the test is over
                while True:
                    caller, _ = listening.accept()
                    asked.append(caller)
                    caller.close()

        threading.Thread(target=hang_up, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        outcome = ship_round(study.plan, "stale-s1-r2", study.root, study.config)
        listening.shutdown(socket.SHUT_RDWR)
    assert 1 <= len(asked) <= 3  # MLflow's own patience is 8 calls in four minutes
    assert not outcome.ok
    assert outcome.run_id is None
    assert str(port) in outcome.reason


def test_ship_study_fills_in_what_a_tracker_that_was_away_has_missed(study, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:///nowhere")  # refused by MLflow 3.17
    assert not ship_round(study.plan, "stale-s1-r2", study.root, study.config).ok
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert ship_study(study.plan, study.root, study.config).ok
    assert len(open_store(study.root).find(kind="round", arm="stale", round=2)) == 1


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("http://[bad", "reading MLFLOW_TRACKING_URI: got an address that cannot be read"),
        ("postgresql://user:word@127.0.0.1:9/runs", "psycopg"),
    ],
)
def test_prepare_store_at_an_address_that_cannot_be_used_stops_nothing(
    study, monkeypatch, uri, said
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    outcome = prepare_store(study.root)
    assert not outcome.ok
    assert said in outcome.reason
    assert "word" not in outcome.reason


def test_prepare_store_of_a_file_that_is_no_database_says_so_soon(study, monkeypatch):
    path = study.root / "work/mlflow/mlflow.db"
    path.write_bytes(b"not a database, " * 100)
    from mlflow.db import upgrade

    def never(uri: str) -> None:
        raise AssertionError(f"MLflow is asked about {uri}, and tries for two minutes")

    monkeypatch.setattr(upgrade, "callback", never)
    outcome = prepare_store(study.root)
    assert not outcome.ok
    assert "not a database" in outcome.reason


def test_prepare_store_of_a_project_that_was_moved_says_what_to_do(study, tmp_path):
    assert prepare_store(study.root).ok
    moved = tmp_path / "elsewhere"
    study.root.rename(moved)
    outcome = prepare_store(moved)
    assert not outcome.ok
    assert "The project was moved" in outcome.reason


def test_ship_round_that_failed_half_way_is_replaced_by_the_next(study):
    artifacts = study.root / "work/mlflow/artifacts"
    artifacts.write_text("a file where the folder should be")
    failed = ship_round(study.plan, "stale-s1-r2", study.root, study.config)
    assert not failed.ok
    artifacts.unlink()
    run_id = ship(study, "stale-s1-r2").run_id
    store = open_store(study.root)
    assert [run.info.run_id for run in store.find(kind="round", arm="stale")] == [run_id]


def test_close_round_marks_an_open_round_failed(study):
    opened = open_round(study.plan, "stale-s1-r2", study.root, study.config)
    store = open_store(study.root)
    assert store.client.get_run(opened.run_id).info.status == "RUNNING"
    closed = close_round(study.plan, "stale-s1-r2", study.root, reason="out of memory")
    assert closed.run_ids == opened.run_ids
    run = store.client.get_run(opened.run_id)
    assert (run.info.status, run.data.tags["dr.reason"]) == ("FAILED", "out of memory")


def test_open_round_then_ship_round_fills_the_same_run(study):
    opened = open_round(study.plan, "stale-s1-r2", study.root, study.config)
    assert ship(study, "stale-s1-r2").run_ids == opened.run_ids


def test_reconcile_closes_the_run_of_a_killed_process_for_good(study, child):
    code = (
        "import pathlib, time\n"
        "from fakestudy import FakeStudy\n"
        "from tasks.shipping import open_round\n"
        "s = FakeStudy(pathlib.Path(sys.argv[1]), arms=('coevolved', 'stale'), rounds=2,"
        " write=False)\n"
        "print(open_round(s.plan, 'stale-s1-r2', s.root, s.config).run_id, flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = child(code, study.root)
    run_id = process.stdout.readline().strip()
    store = open_store(study.root)
    assert reconcile(study.root).run_ids == ()  # it is alive
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert run_id in reconcile(study.root).run_ids
    assert store.client.get_run(run_id).info.status == "KILLED"
    assert store.client.get_run(run_id).info.end_time is not None
    new = ship(study, "stale-s1-r2").run_id
    assert store.client.get_run(new).info.status == "FINISHED"
    assert store.client.get_run(run_id).info.status == "KILLED"


def test_log_comparison_has_the_files_and_each_arms_means(study, tmp_path, undrawn):
    found = write_comparison(study.plan, study.questions, study.root, tmp_path / "results")
    first = log_comparison(study.plan, found, study.root, study.config)
    assert log_comparison(study.plan, found, study.root, study.config) == first
    store = open_store(study.root)
    run = store.client.get_run(first.run_id)
    differences = {name for name in run.data.metrics if name.startswith("difference/")}
    assert len(run.data.metrics) - len(differences) == 2 * len(ROUND_METRICS)
    (own,) = [one for one in found.differences if one.metric == "true_quality"]
    for name, value in zip(("low", "high"), own.estimate.interval, strict=True):
        logged = run.data.metrics[f"difference/true_quality/stale/{name}"]
        assert logged == pytest.approx(value)
    expected = found.outcomes.mean("stale", 2, "true_quality")
    assert run.data.metrics["true_quality/stale"] == pytest.approx(expected)
    names = {item.path for item in store.client.list_artifacts(first.run_id)}
    assert {"metrics.csv", "table.md", "study.png", "study.svg", "report"} <= names
    report = {item.path for item in store.client.list_artifacts(first.run_id, "report")}
    assert report == {"report/index.html", "report/plots", "report/tables"}


def searched(store, comparison):
    """Return the names of the arms' runs that a comparison's description leads to."""
    note = store.client.get_run(comparison.run_id).data.tags["mlflow.note.content"]
    arms, everything = re.findall("search for `(.*)`", note)
    found = store.client.search_runs([store.experiment_id], arms)
    kinds = {
        run.data.tags["dr.kind"]
        for run in store.client.search_runs([store.experiment_id], everything)
    }
    assert kinds == {"arm", "round", "comparison"}
    return sorted(run.info.run_name for run in found)


def test_studies_that_share_arms_are_each_found_by_what_their_comparison_says(
    study, tmp_path, undrawn
):
    """The default study, then a selection of it, then the first once more."""
    document = study.config.model_dump(mode="json")
    document["study"]["run"] = ["coevolved"]
    fewer = Config.model_validate(document)
    logged = {}
    for name, config in (("both", study.config), ("one", fewer)):
        plan = expand(config)
        assert ship_study(plan, study.root, config).ok
        found = write_comparison(plan, study.questions, study.root, tmp_path / name)
        logged[name] = log_comparison(plan, found, study.root, config)
    assert ship_study(study.plan, study.root, study.config).ok
    store = open_store(study.root)
    assert searched(store, logged["both"]) == ["coevolved s1", "stale s1"]
    assert searched(store, logged["one"]) == ["coevolved s1"]
    assert len(store.find(kind="comparison")) == 2
    assert len(store.find(kind="round")) == 6  # shared by both studies, not made twice


def test_round_that_takes_anothers_place_stays_in_the_studies_of_both(study):
    ship_study(study.plan, study.root, study.config)
    store, tag = open_store(study.root), "dr.study.h0"  # another study's
    (before,) = store.find(kind="round", arm="stale", round=2)
    store.send_tags(before.info.run_id, {tag: "1", "dr.content": "older results"})
    now = ship(study, "stale-s1-r2")
    assert now.run_id != before.info.run_id
    tags = store.client.get_run(now.run_id).data.tags
    assert tags[tag] == tags[study_tag(study.plan)] == "1"


def test_study_tag_is_searched_for_without_backticks_whatever_its_hash(study, monkeypatch):
    monkeypatch.setattr(payload, "hash_of", lambda value: "1e34567890")
    tag, store = study_tag(study.plan), open_store(study.root)
    run_id = store.create("an arm", {tag: "1"})
    (found,) = store.client.search_runs([store.experiment_id], f"tags.{tag} = '1'")
    assert found.info.run_id == run_id


def test_log_comparison_of_an_unfinished_study_is_refused(study, tmp_path, undrawn):
    remove(study.root / study.plan.cell("stale-s1-r2").directory)
    found = write_comparison(
        study.plan, study.questions, study.root, tmp_path / "results", partial=True
    )
    with pytest.raises(ValueError, match="partial"):
        log_comparison(study.plan, found, study.root, study.config)


def test_ship_study_takes_dvc_hashes_only_of_the_present_cell(study):
    cells = study.plan.cells
    stages = {
        f"round@{key}": {
            "params": {"cells.json": {f"cells.{key}": {"id": named}}},
            "outs": [{"path": f"data/runs/{key}/policy", "md5": "ab12.dir"}],
        }
        for key, named in [
            ("coevolved-s1-r2", cells["coevolved-s1-r2"].id),
            ("stale-s1-r2", "stale-s1-r2-older"),
        ]
    }
    dump_yaml({"stages": stages}, study.root / "dvc.lock")
    assert ship_study(study.plan, study.root, study.config).ok
    store = open_store(study.root)
    (fresh,) = store.find(kind="round", arm="coevolved", round=2)
    (stale,) = store.find(kind="round", arm="stale", round=2)
    assert fresh.data.tags["dvc.data/runs/coevolved-s1-r2/policy"] == "ab12.dir"
    assert not any(name.startswith("dvc.") for name in stale.data.tags)


@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_processes_that_start_at_once_share_one_new_store(fake_study, child, monkeypatch, count):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    study = fake_study(rounds=2, write=False)
    keys = [*study.plan.starts, *study.plan.cells][:count]
    for key in keys:
        study.write_cell(key)
    code = (
        "import pathlib\n"
        "from fakestudy import FakeStudy\n"
        "from tasks.shipping import ship_round\n"
        "s = FakeStudy(pathlib.Path(sys.argv[1]), rounds=2, write=False)\n"
        "outcome = ship_round(s.plan, sys.argv[2], s.root, s.config)\n"
        "print(outcome)\n"
        "sys.exit(not outcome.ok)\n"
    )
    processes = [child(code, study.root, key) for key in keys]
    for process in processes:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, out + err
        assert "locked" not in err
        assert "duplicate column" not in err
    store = open_store(study.root)
    expected = {(arm, key) for key in keys for arm in study.plan.arms_of(key)}
    runs = store.find(kind="round")
    assert {(run.data.tags["dr.arm"], run.data.tags["dr.cell"]) for run in runs} == expected
    assert len(runs) == len(expected)
    assert len(store.find(kind="arm")) == len({arm for arm, _ in expected})


def test_import_of_shipping_does_not_load_mlflow():
    code = "import sys, tasks.shipping; print('mlflow' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_ui_command_listens_on_loopback_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    command = ui_command(tmp_path, port=5123)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--backend-store-uri") + 1] == default_uri(tmp_path)
    assert ui_environment()["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert os.environ.items() <= ui_environment().items()
    with pytest.raises(UserError, match=r"0\.0\.0\.0"):
        ui_command(tmp_path, host="0.0.0.0")


@pytest.mark.parametrize(
    ("uri", "page"),
    [
        ("http://tracker:5000", "http://tracker:5000"),
        ("https://me:secret@tracker/mlflow", "https://tracker/mlflow"),
        ("sqlite:////somewhere/mlflow.db", None),
        ("", None),
    ],
)
def test_tracker_page_is_a_servers_alone(tmp_path, monkeypatch, uri, page):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert tracker_page(tmp_path) == page
    if page is not None:
        with pytest.raises(UserError, match=page):
            ui_command(tmp_path)


@pytest.fixture
def with_settings(study):
    """The study with params.yaml and cells.yaml in its folder, as jobs in other processes need."""
    dump_yaml(study.config.model_dump(mode="json", exclude_none=True), study.root / "params.yaml")
    write_plan(expand(load_config(study.root / "params.yaml")), study.root / "cells.yaml")
    return Study(study.root)


@pytest.mark.parametrize("forked", [False, True])
def test_ship_of_an_altered_table_is_an_error_not_tracking_trouble(with_settings, study, forked):
    path = study.root / "data/runs/stale-s1-r2/evaluation/verdicts.parquet"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b"x")
    threads = study.config.runtime.threads_per_task
    host = shared_host(TRACKER_PRELOAD, threads, study.root / "work/locks")
    with host if forked else nullcontext(), pytest.raises(UserError, match=r"verdicts\.parquet"):
        shipjob.ship(with_settings, "stale-s1-r2")


def test_ship_by_a_fork_that_is_killed_says_so_and_stops_nothing(with_settings, study, monkeypatch):
    module = study.root / "killed.py"
    module.write_text("import os\ndef ship(**_): os.kill(os.getpid(), 9)\n")
    monkeypatch.syspath_prepend(study.root)
    monkeypatch.setattr(shipjob, "TARGET", "killed:ship")
    with shared_host((), study.config.runtime.threads_per_task, study.root / "work/locks"):
        monkeypatch.setattr(shipjob, "TRACKER_PRELOAD", ())
        outcome = shipjob.ship(with_settings, "stale-s1-r2")
    assert not outcome.ok
    assert "track_round of stale-s1-r2: its process was ended by SIGKILL" in outcome.reason


@pytest.mark.parametrize("forked", [False, True])
def test_round_that_fails_is_shown_running_and_then_failed(with_settings, study, forked):
    cell, store = study.plan.cell("stale-s1-r2"), open_store(study.root)
    shutil.rmtree(study.root / cell.directory)
    threads = study.config.runtime.threads_per_task
    host = shared_host(TRACKER_PRELOAD, threads, study.root / "work/locks")
    with host if forked else nullcontext():
        with pytest.raises(InstrumentError), shipjob.shown_running(with_settings, cell):
            (run,) = store.find(kind="round", arm="stale", round=2)
            assert run.info.status == "RUNNING"
            assert not is_orphan(run)  # ours, not the fork's that has ended
            assert reconcile(study.root).run_ids == ()
            raise InstrumentError("the verifier is down")
        (run,) = store.find(kind="round", arm="stale", round=2)
        assert (run.info.status, run.data.tags["dr.reason"]) == ("FAILED", "the verifier is down")
        with shipjob.shown_running(with_settings, cell):
            study.write_cell(cell.key)
            outcome = shipjob.ship(with_settings, cell.key)
    assert store.client.get_run(outcome.run_id).info.status == "FINISHED"
    (run,) = store.find(kind="round", arm="stale", round=2)
    assert run.info.run_id == outcome.run_id


def test_round_that_is_finished_keeps_its_run(with_settings, study):
    first = ship(study, "stale-s1-r2")
    with shipjob.shown_running(with_settings, study.plan.cell("stale-s1-r2")):
        pass
    (run,) = open_store(study.root).find(kind="round", arm="stale", round=2)
    assert (run.info.run_id, run.info.status) == (first.run_id, "FINISHED")


def test_round_runs_though_the_tracker_takes_nothing(with_settings, study, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:///nowhere")  # refused by MLflow 3.17
    cell = study.plan.cell("stale-s1-r2")
    shutil.rmtree(study.root / cell.directory)
    with (
        pytest.raises(InstrumentError, match="verifier"),
        shipjob.shown_running(with_settings, cell),
    ):
        raise InstrumentError("the verifier is down")


def test_arm_stays_running_while_another_of_its_rounds_is(study):
    open_round(study.plan, "coevolved-s1-r1", study.root, study.config)
    ship(study, "coevolved-s1-r0")
    store = open_store(study.root)
    (parent,) = store.find(kind="arm", arm="coevolved")
    assert parent.info.status == "RUNNING"
    ship(study, "coevolved-s1-r1")
    (parent,) = store.find(kind="arm", arm="coevolved")
    assert parent.info.status == "SCHEDULED"


ARTIFACTS = ("create_link_artifact", "create_table_artifact", "create_markdown_artifact")
PAGE_TROUBLE = (
    httpx.ConnectError("All connection attempts failed"),
    RuntimeError("Timed out while attempting to connect to ephemeral Prefect API server."),
)


@pytest.mark.parametrize("trouble", PAGE_TROUBLE, ids=lambda trouble: type(trouble).__name__)
@pytest.mark.parametrize("what", ARTIFACTS)
def test_track_round_whose_page_takes_nothing_ends_well(
    with_settings, study, monkeypatch, caplog, what, trouble
):
    def refuse(**_: object) -> None:
        raise trouble

    for name in ARTIFACTS:  # none of them looks for a server
        monkeypatch.setattr(track_round_module, name, lambda **_: None)
    monkeypatch.setattr(track_round_module, what, refuse)
    monkeypatch.setattr(track_round_module, "get_run_logger", lambda: logging.getLogger("page"))
    cell = study.plan.cell("stale-s1-r2")
    assert track_round_module.track_round.fn(with_settings, cell, {}) is None
    assert str(trouble) in caplog.text


def test_ship_in_a_fork_of_the_shared_host_is_what_shipping_here_is(
    with_settings, study, monkeypatch
):
    threads = study.config.runtime.threads_per_task
    with shared_host(TRACKER_PRELOAD, threads, study.root / "work/locks"):
        outcome = shipjob.ship(with_settings, "coevolved-s1-r1")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{study.root}/params.yaml")
        refused = shipjob.ship(with_settings, "coevolved-s1-r1")
        monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert outcome.ok and len(outcome.run_ids) == 2
    assert shipjob.ship(with_settings, "coevolved-s1-r1") == outcome
    assert not refused.ok and "not a database" in refused.reason
    assert with_settings.log_path("coevolved-s1-r1", "track_round").exists()
