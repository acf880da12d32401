"""Which generators are audited on whose responses, and what cells.yaml says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.arms import AuditConfig
from dynamicrubric.audit.planned import planned_audits, snapshot_every
from dynamicrubric.config import load_config, parse_config
from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan, expand, plan_document, stage_structure
from dynamicrubric.planview import measured_lines
from dynamicrubric.versions import STEP_VERSIONS

ROOT = Path(__file__).resolve().parents[2]
PROFILE = ROOT / "profiles/postcards.yaml"


def planned(audit: AuditConfig | None, arms: tuple[str, ...], **study: Any) -> Plan:
    config = load_config(PROFILE)
    chosen = {name: config.study.arms[name] for name in arms}
    changed = config.study.model_copy(
        update={"arms": chosen, "groups": {}, "run": None, "audit": audit, **study}
    )
    return expand(config.model_copy(update={"study": changed}))


def test_cells_are_put_together_by_the_policy_that_they_start_from() -> None:
    arms = ("coevolved", "stale", "disc_only", "frozen", "static", "oracle")
    audits = planned_audits(planned(AuditConfig(), arms, seeds=(2, 1), rounds=2))
    assert list(audits) == ["s1", "s2"]
    audit = audits["s2"]
    found = {one.name: [cell.key for cell in one.cells] for one in audit.policies}
    assert found == {
        "start": ["coevolved-s2-r1", "disc_only-s2-r1"],
        "coevolved-s2-r1": ["coevolved-s2-r2", "stale-s2-r2"],
        "disc_only-s2-r1": ["disc_only-s2-r2"],
    }
    assert {one.name: (one.round, one.sets) for one in audit.policies} == {
        "start": (1, "data/runs/coevolved-s2-r0/evaluation"),
        "coevolved-s2-r1": (2, "data/runs/coevolved-s2-r1/evaluation"),
        "disc_only-s2-r1": (2, "data/runs/disc_only-s2-r1/evaluation"),
    }


def test_arms_that_are_named_are_audited_alone_if_they_are_run() -> None:
    audit = AuditConfig(arms=("disc_only", "stale"))
    (found,) = planned_audits(planned(audit, ("coevolved", "disc_only"), rounds=1)).values()
    assert [cell.key for cell in found.cells] == ["disc_only-s1-r1"]
    assert planned_audits(planned(AuditConfig(), ("frozen", "static", "oracle"))) == {}
    assert planned_audits(planned(None, ("coevolved",))) == {}


def test_an_audit_changes_no_cell() -> None:
    arms = ("coevolved", "disc_only")
    without, with_it = planned(None, arms), planned(AuditConfig(), arms)
    assert [one.id for one in without.cells.values()] == [one.id for one in with_it.cells.values()]
    assert plan_document(without)["audits"] == {}
    entry = plan_document(with_it)["audits"]["s1"]
    assert entry["version"] == STEP_VERSIONS["audit_checkpoints"]
    assert entry["checkpoints"] == 5
    assert entry["policies"]["start"] == ["coevolved-s1-r1", "disc_only-s1-r1"]
    structure = stage_structure(plan_document(with_it))
    assert set(structure) - set(stage_structure(plan_document(without))) == {"audits/s1"}


@pytest.mark.parametrize(("checkpoints", "steps"), [(5, 40), (2, 80), (0, 0), (100, 2)])
def test_weights_are_kept_evenly(checkpoints: int, steps: int) -> None:
    cell = planned(None, ("coevolved",)).cells["coevolved-s1-r1"]  # 240 steps
    assert snapshot_every(cell, checkpoints) == steps


@pytest.mark.parametrize(
    ("audit", "said"),
    [
        ("{arms: [nobody]}", "names the arm 'nobody'"),
        ("{arms: [stale, stale]}", "more than once"),
        ("{arms: []}", "study.audit.arms"),
        ("{checkpoints: -1}", "study.audit.checkpoints"),
        ("{steps: 3}", "study.audit"),
        ("yes please", "study.audit"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(audit: str, said: str) -> None:
    text = PROFILE.read_text().replace(
        "  arms:\n    coevolved:", f"  audit: {audit}\n  arms:\n    coevolved:"
    )
    assert f"  audit: {audit}" in text
    with pytest.raises(UserError) as caught:
        parse_config(text, "params.yaml")
    assert said in str(caught.value)


def test_plan_says_which_arms_are_audited_and_probed_and_which_of_those_named_are_not() -> None:
    audit = AuditConfig(arms=("coevolved", "frozen", "disc_only"))
    found = planned(audit, ("coevolved", "frozen"), rounds=1)
    assert measured_lines(found) == [
        "Audited: coevolved. Not frozen, disc_only: not run, or without a generator that is "
        "trained for response sets."
    ]
    assert measured_lines(planned(AuditConfig(), ("coevolved", "frozen"))) == [
        "Audited: coevolved."
    ]
    probed = replace(found, audit=None, probe={"arms": ("frozen", "static"), "sets_per_prompt": 1})
    assert measured_lines(probed) == ["Probed: frozen. Not static: not run."]
    assert measured_lines(planned(None, ("coevolved",))) == []
