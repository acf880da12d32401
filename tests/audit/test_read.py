"""Finished audits are read with their records; what does not fit is said, not read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dynamicrubric.arms import AuditConfig
from dynamicrubric.audit.measure import Checkpoint
from dynamicrubric.audit.planned import planned_audits
from dynamicrubric.audit.read import read_audit, read_audits
from dynamicrubric.cli import app
from dynamicrubric.errors import UserError
from dynamicrubric.report.auditsection import audit_sections, read_audit_state
from tasks.audit_checkpoints import audit_checkpoints
from tasks.study import Study

OPTIONS = {
    "arms": ("coevolved", "disc_only"), "rounds": 2, "seeds": (1, 2),
    "audit": AuditConfig(checkpoints=1),
}  # fmt: skip


@pytest.fixture
def study(fake_study: Any) -> Any:
    return fake_study(**OPTIONS)


def read(study: Any, **options: Any) -> Any:
    return read_audits(list(planned_audits(study.plan).values()), study.root, **options)


def test_groups_have_the_means_of_the_rows(study: Any) -> None:
    import pyarrow.parquet as pq

    found = read(study)
    assert found.rounds == (1, 2) and found.seeds == (1, 2)
    assert [group.policy for group in found.of_round(1)] == ["start", "start"]
    assert found.identity_error <= 1e-12
    (group,) = (one for one in found.of_round(1) if one.seed == 2)
    assert [one.step for one in group.checkpoints] == [0, 2, 4, 0, 2, 4]
    assert group.checkpoints[4].objective == "disc only"
    assert group.checkpoints[3].objective == "before training"
    rows = pq.read_table(study.root / "data/audit/s2/measurements.parquet").to_pylist()
    own = [row for row in rows
           if row["checkpoint"] == group.checkpoints[1].name and row["valid"]]  # fmt: skip
    assert (group.checkpoints[1].sets, group.checkpoints[1].sets_total) == (len(own), 48)
    by_prompt: dict[str, list[float]] = {}
    for row in own:
        by_prompt.setdefault(row["prompt_id"], []).append(2 * row["r_dir"] + row["r_cov"])
    mean = np.mean([np.mean(values) for values in by_prompt.values()])
    assert group.means("eta_res")[1] == pytest.approx(mean)
    c_k_disc = group.c_k * group.means("r_disc")
    assert group.means("delta_gap") == pytest.approx(c_k_disc - group.means("eta_res"))


def test_missing_seed_is_named_and_left_out_only_on_purpose(study: Any) -> None:
    shutil.rmtree(study.root / "data/audit/s2")
    with pytest.raises(UserError, match=r"audit@s2 \(not there\)"):
        read(study)
    assert read(study, partial=True).seeds == (1,)
    shutil.rmtree(study.root / "data/audit/s1")
    with pytest.raises(UserError, match="audit@s1"):
        read(study, partial=True)
    with pytest.raises(UserError, match=r"study\.audit"):
        read_audits([], study.root)


def test_audit_of_generators_that_were_trained_anew_is_not_read(study: Any) -> None:
    study.write_cell("disc_only-s1-r1", log=[{"reward": 9.0}])
    with pytest.raises(UserError, match=r"audit@s1 \(measured of other generators"):
        read(study)


def test_altered_measurements_are_not_read(study: Any) -> None:
    path = study.root / "data/audit/s1/checkpoints.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("disc_only-s1-r1/2", "disc_only-s1-r1/3"))
    with pytest.raises(UserError, match=r"audit@s1 \(.*checkpoints\.json was altered: sha256"):
        read(study)


def test_parts_that_do_not_add_up_are_not_read(study: Any) -> None:
    audit = planned_audits(study.plan)["s1"]

    def alter(rows: list[dict[str, Any]]) -> None:
        rows[0]["r_dir"] += 1e-6

    study.write_audit(audit, alter)
    with pytest.raises(UserError, match=r"delta_gap - \(c_K r_disc"):
        read(study)


def test_generator_without_a_rubric_is_left_out_and_named(study: Any) -> None:
    audit = planned_audits(study.plan)["s1"]

    def alter(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row["checkpoint"] == "coevolved-s1-r1/2":
                row |= dict.fromkeys(("delta_gap", "r_disc", "r_dir", "r_cov"))

    study.write_audit(audit, alter)
    found = read_audit(study.root / audit.directory, 1)
    assert found.left_out == ("coevolved-s1-r1/2",)
    names = [one.name for group in found.groups for one in group.checkpoints]
    assert "coevolved-s1-r1/2" not in names and "coevolved-s1-r1/4" in names


def test_command_writes_the_page_and_says_the_answer(study: Any, tmp_path: Path) -> None:
    from dynamicrubric.yamlio import dump_yaml

    study.root.mkdir(exist_ok=True)
    document = study.config.model_dump(mode="json", exclude_defaults=False)
    dump_yaml(document, study.root / "params.yaml")
    out = tmp_path / "page"
    arguments = ["audit", "--params", str(study.root / "params.yaml"), "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "beta = c_K" in " ".join(done.output.split())
    assert (out / "index.html").is_file() and (out / "audit_pairs.csv").is_file()
    shutil.rmtree(study.root / "data/audit/s2")
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, UserError) and "audit@s2" in str(refused.exception)
    done = CliRunner().invoke(app, [*arguments, "--partial"])
    assert done.exit_code == 0 and "PARTIAL: 1 of 2" in done.output
    assert "PARTIAL: 1 of 2" in (out / "index.html").read_text()


def test_report_has_the_audit_or_says_why_not(study: Any, tmp_path: Path) -> None:
    state = read_audit_state(study.plan, study.root)
    (section,) = audit_sections(state, tmp_path, tmp_path, "")
    assert "beta = c_K" in section.lead and section.grids
    assert (tmp_path / "audit_bound.csv").is_file()
    shutil.rmtree(study.root / "data/audit/s2")
    (section,) = audit_sections(read_audit_state(study.plan, study.root), tmp_path, tmp_path, "")
    assert "audit@s2" in section.lead and not section.charts


def test_task_asks_for_every_generator_once_and_for_its_weights_bytes(
    study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.artefact import Record
    from tasks.record import run_step, snapshots_of  # noqa: F401 - the folder is that of run_step

    audit = planned_audits(study.plan)["s1"]
    warm = study.root / "data/warm/generator"
    prepared = study.root / "data/prepared"
    for place in (warm, prepared):
        study.write_bare(place)
    record = Record.read(study.root / "data/runs/coevolved-s1-r1/generator")
    kept = study.root / "work/steps" / record.identity_hash[:16] / "snapshots/step-000002"
    kept.mkdir(parents=True)
    (kept / "model.safetensors").write_bytes(b"weights")
    asked: dict[str, Any] = {}

    def keep(self: Study, request: Any, out_dir: Path, arguments: Any, **rest: Any) -> None:
        asked.update(request=request, out=out_dir, **rest)

    monkeypatch.setattr(Study, "run_gpu_step", keep)
    monkeypatch.setattr(Study, "plan", study.plan)
    monkeypatch.setattr("tasks.audit_checkpoints.log_line", lambda: print)  # wants a flow
    audit_checkpoints.fn(Study(study.root), audit)
    assert asked["out"] == study.root / "data/audit/s1" and asked["group"] == "audit-s1"
    found = [one["name"] for one in asked["request"].identity["checkpoints"]]
    assert found == [
        "coevolved-s1-r1/0", "coevolved-s1-r1/2", "coevolved-s1-r1/4",
        "disc_only-s1-r1/4",  # it starts from the same generator
        "coevolved-s1-r2/0", "coevolved-s1-r2/4",
        "disc_only-s1-r2/0", "disc_only-s1-r2/4",
    ]  # fmt: skip
    (weights,) = (one["weights"] for one in asked["request"].identity["checkpoints"]
                  if one["name"] == "coevolved-s1-r1/2")  # fmt: skip
    before = asked["request"].identity_hash
    assert list(weights) == ["model.safetensors"]
    (kept / "model.safetensors").write_bytes(b"others")
    audit_checkpoints.fn(Study(study.root), audit)
    assert asked["request"].identity_hash != before
    assert {"prepared", "sets/start", "generator/disc_only-s1-r2"} <= set(asked["request"].inputs)


def test_checkpoint_travels_as_values(study: Any) -> None:
    cell = study.plan.cells["coevolved-s1-r1"]
    one = Checkpoint("a/1", "start", cell.key, 1, 4, "here", "there", cell.recipe)
    assert Checkpoint.of(one.values) == one


def test_page_that_cannot_be_written_is_said_before_the_audit(
    study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynamicrubric.config.load_config", lambda path: study.config)
    monkeypatch.setattr(
        "dynamicrubric.audit.findings.audit_of", lambda *a: pytest.fail("audited first")
    )
    (study.root / "taken").write_text("mine")
    arguments = ["--params", str(study.root / "params.yaml"), "--out", str(study.root / "taken")]
    with pytest.raises(UserError, match="got a file of that name; expected a folder"):
        CliRunner().invoke(app, ["audit", *arguments], catch_exceptions=False)
    assert (study.root / "taken").read_text() == "mine"
