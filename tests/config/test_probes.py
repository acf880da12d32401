"""What probes a plan has, which settings are refused, and that no cell's id moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynamicrubric.config import Config, parse_config
from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan, expand, plan_document, stage_structure
from dynamicrubric.probes.planned import is_watched, planned_probes
from dynamicrubric.yamlio import parse_yaml, yaml_text

ROOT = Path(__file__).resolve().parents[2]
JUDGE: dict[str, Any] = {
    "verifier": {
        "error_rate": 0.0, "failure_rate": 0.0, "max_unscored_rate": 0.2,
        "kind": "language_model", "undecided_band": 0.3,
    },
    "rubric": [{"criterion": "Answers the question.", "weight": 5}],
}  # fmt: skip


def changed(**sections: Any) -> Config:
    document = parse_yaml((ROOT / "profiles/postcards.yaml").read_text(), "postcards")
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values}
    return parse_config(yaml_text(document), "params.yaml")


def language(**sections: Any) -> Config:
    document = parse_yaml((ROOT / "profiles/smollm2.yaml").read_text(), "smollm2")
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values}
    return parse_config(yaml_text(document), "params.yaml")


def ids(plan: Plan) -> dict[str, str]:
    return {cell.key: cell.id for group in (plan.starts, plan.cells) for cell in group.values()}


def test_probes_of_a_seed_are_the_cells_of_the_chosen_arms_each_once() -> None:
    plan = expand(changed(probe={"arms": ["static", "frozen", "coevolved"]}))
    (probe,) = planned_probes(plan).values()
    assert (probe.key, probe.directory) == ("s1", "data/probes/s1")
    assert len(probe.cells) == 11  # coevolved and frozen share their round 0
    shared = probe.cells["coevolved-s1-r0"]
    assert shared.arms == ("coevolved", "frozen")
    assert (shared.older, shared.generator_dir) == ({}, "data/warm/generator")
    last = probe.cells["static-s1-r3"]
    assert {name: cell.key for name, cell in last.older.items()} == {
        "before": "static-s1-r2", "start": "static-s1-r0"
    }  # fmt: skip
    assert last.generator_dir == "data/runs/static-s1-r3/generator"
    entry = plan_document(plan)["probes"]["s1"]
    assert entry["settings"] == {"sets_per_prompt": 1, "attacks": [], "gold_judge": None}
    assert stage_structure(plan_document(plan))["probes/s1"] == "data/probes"


def test_arms_that_are_not_run_are_passed_over() -> None:
    probes = planned_probes(expand(changed(probe={"arms": ["once", "coevolved"]})))
    assert {arm for one in probes["s1"].cells.values() for arm in one.arms} == {"coevolved"}
    assert planned_probes(expand(changed(probe={"arms": ["once"]}))) == {}
    assert planned_probes(expand(changed())) == {}


def test_probes_and_a_watch_that_is_off_move_no_id() -> None:
    plain = expand(changed())
    assert ids(expand(changed(probe={"arms": ["coevolved"]}))) == ids(plain)
    assert ids(expand(changed(evaluation={"stop_on_divergence": False}))) == ids(plain)


def test_watch_that_is_on_runs_the_stages_again_and_trains_nothing_anew() -> None:
    plain, watched = expand(changed()), expand(changed(evaluation={"stop_on_divergence": True}))
    for key, cell in watched.cells.items():
        assert cell.id != plain.cells[key].id
        assert cell.training_hash == plain.cells[key].training_hash
        assert is_watched(cell) and not is_watched(plain.cells[key])
    assert not any(is_watched(cell) for cell in watched.starts.values())


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"probe": {"arms": ["nonsense"]}}, "probe.arms has 'nonsense'"),
        ({"probe": {"arms": ["static", "static"]}}, "probe.arms has 'static' twice"),
        ({"probe": {"arms": ["oracle"]}}, "nothing to hack"),
        ({"probe": {"arms": []}}, "probe.arms"),
        ({"probe": {"arms": ["static"], "attacks": ["charm"]}}, "probe.attacks: 'charm'"),
        ({"probe": {"arms": ["static"], "attacks": ["filler"] * 2}}, "a name twice"),
        ({"probe": {"arms": ["static"], "sets_per_prompt": 5}}, "probe.sets_per_prompt is 5"),
        ({"probe": {"arms": ["static"], "sets_per_prompt": 0}}, "probe.sets_per_prompt"),
        ({"probe": {"arms": ["static"], "strength": 2}}, "probe.strength"),
        ({"probe": {"arms": ["static"], "gold_judge": JUDGE}}, "which knows true quality"),
        (
            {"evaluation": {"stop_on_divergence": True}, "world": {"num_heldout_prompts": 12}},
            "an interval takes 20",
        ),
        ({"evaluation": {"stop_on_divergence": "yes"}}, "evaluation.stop_on_divergence"),
    ],
)
def test_settings_that_do_not_suit_are_refused_by_name(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        changed(**sections)
    assert said in str(caught.value)


def judged(**judge: Any) -> dict[str, Any]:
    return {"probe": {"arms": ["coevolved"], "gold_judge": {**JUDGE, **judge}}}


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"evaluation": {"stop_on_divergence": True}}, "it takes a probe.gold_judge"),
        (judged(rubric=[]), "probe.gold_judge.rubric"),
        (judged(rubric=JUDGE["rubric"] * 2), "twice"),
        (judged(rubric=[{"criterion": "Is good.", "weight": 9}]), "weight"),
        (
            judged(
                verifier={**JUDGE["verifier"], "engine": {"kind": "openai", "model": "judge-9"}}
            ),
            "'judge-9', which has no address",
        ),
    ],
)
def test_judge_that_does_not_suit_a_world_without_truth_is_refused(
    sections: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as caught:
        language(**sections)
    assert said in str(caught.value)


def test_judge_of_the_gold_has_to_be_another_than_an_arms_verifier() -> None:
    profile = parse_yaml((ROOT / "profiles/smollm2.yaml").read_text(), "smollm2")
    with pytest.raises(UserError, match="has to be another one"):
        language(**judged(verifier=profile["recipe"]["verifier"]))
    found = language(**judged())
    assert found.probe is not None and found.probe.gold_judge is not None
    assert found.probe.gold_judge.rubric[0].weight == 5
