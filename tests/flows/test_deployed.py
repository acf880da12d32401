"""What a deployment's form accepts, what it writes, and that a second study is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound, ParameterTypeError
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.utilities.schema_tools import is_valid_schema, validate

from dynamicrubric.config import load_config
from dynamicrubric.errors import UserError
from dynamicrubric.plan import expand, write_plan
from flows import deployed
from flows.deploy import Offer, deploy, form_of, offers
from flows.driver import lock_path
from flows.schedule import wanted_schedule
from flows.settings import Choice, lay_choice
from tasks.locks import exclusive
from tasks.study import Study

PARAMS = Path(__file__).with_name("params.yaml")


@pytest.fixture
def study(tmp_path: Path, project_root: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    (tmp_path / "params.yaml").write_text(PARAMS.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "profiles").mkdir()
    profile = (project_root / "profiles" / "postcards.yaml").read_text(encoding="utf-8")
    (tmp_path / "profiles" / "postcards.yaml").write_text(profile, encoding="utf-8")
    write_plan(expand(load_config(tmp_path / "params.yaml")), tmp_path / "cells.yaml")
    monkeypatch.chdir(tmp_path)
    return Study(tmp_path)


@pytest.fixture
def forms(study: Study) -> dict[str, dict[str, Any]]:
    return {offer.name: form_of(offer) for offer in offers(study.config, study.root)}


def refused(form: dict[str, Any], **values: object) -> bool:
    return bool(validate(values, form, raise_on_error=False, ignore_required=False))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"arms": []},
        {"arms": ["coevolved", "frozen"], "seeds": [1, 2], "rounds": 3},
        {"arms": ["static"], "profile": "postcards"},  # the profile's arms are offered too
        {"arms": ["study"], "profile": "postcards"},  # and its groups
    ],
)
def test_form_of_the_study_accepts_arms_seeds_rounds_and_profile(
    forms: dict[str, dict[str, Any]], values: dict[str, object]
) -> None:
    assert is_valid_schema(forms["ablation"]) is None
    assert not refused(forms["ablation"], **values)


@pytest.mark.parametrize(
    "values",
    [
        {"arms": ["nonsense"]},
        {"arms": ["frozen", "frozen"]},
        {"arms": "frozen"},
        {"seeds": [-1]},
        {"seeds": [1, 1]},
        {"seeds": ["one"]},
        {"rounds": 0},
        {"rounds": 101},
        {"rounds": 1.5},
        {"profile": "nonsense"},
    ],
)
def test_form_of_the_study_refuses_wrong_values(
    forms: dict[str, dict[str, Any]], values: dict[str, object]
) -> None:
    assert refused(forms["ablation"], **values)


def test_form_of_a_round_takes_a_cell(forms: dict[str, dict[str, Any]]) -> None:
    assert not refused(forms["round"], cell="frozen-s1-r1")
    assert refused(forms["round"], cell="../frozen")
    assert refused(forms["round"])
    assert not refused(forms["compare"])


def test_wrong_values_are_refused_without_the_form_as_well() -> None:
    with pytest.raises(ParameterTypeError, match="rounds"):
        deployed.ablation.validate_parameters({"rounds": 0})
    with pytest.raises(ParameterTypeError, match="cell"):
        deployed.one_round.validate_parameters({"cell": "nonsense"})


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"arms": ["nonsense"]}, "nonsense"),
        ({"arms": ["static"]}, "static"),
        ({"seeds": [1, 1]}, "more than once"),
        ({"rounds": 0}, "rounds"),
        ({"profile": "nonsense"}, "one of postcards"),
        ({"profile": "../params"}, "one of postcards"),
        ({"arms": ("study", "frozen"), "profile": "postcards"}, "one group alone"),
    ],
)
def test_choice_that_is_not_possible_writes_nothing(
    study: Study, wanted: dict[str, Any], said: str
) -> None:
    before = (study.root / "params.yaml").read_bytes()
    with pytest.raises(UserError, match=said):
        lay_choice(study.root, Choice(**wanted), say=print)
    assert (study.root / "params.yaml").read_bytes() == before
    assert sorted(path.name for path in study.root.iterdir()) == [
        "cells.json",
        "cells.yaml",
        "params.yaml",
        "profiles",
    ]


def test_choice_is_written_once_and_the_rest_kept(study: Study) -> None:
    said: list[str] = []
    for _ in range(2):
        chosen = Choice(arms=("frozen",), seeds=(3, 4), rounds=2)
        lay_choice(study.root, chosen, say=said.append)
        config = load_config(study.root / "params.yaml")
        runs = {run.arm: (run.seeds, run.rounds) for run in config.study.runs}
        assert runs == {"frozen": ((3, 4), 2)}
        assert config.study.arms.keys() == {"coevolved", "frozen"}
        assert "# A study of seconds" in (study.root / "params.yaml").read_text(encoding="utf-8")
    assert len(said) == 1


@pytest.mark.parametrize("named", [{"arms": ("default",)}, {"group": "default"}])
def test_choice_of_a_profile_and_a_group_of_it(study: Study, named: dict[str, Any]) -> None:
    lay_choice(study.root, Choice(profile="postcards.yaml", **named), say=print)
    config = load_config(study.root / "params.yaml")
    assert [run.arm for run in config.study.runs] == ["coevolved", "stale", "frozen", "static"]


def test_settings_of_one_s_own_outlive_any_number_of_profiles(study: Study) -> None:
    path = study.root / "params.yaml"
    own = path.read_text(encoding="utf-8") + "# mine\n"
    path.write_text(own, encoding="utf-8")
    said: list[str] = []
    laid = []
    for seed in (3, 4):
        lay_choice(study.root, Choice(profile="postcards", seeds=(seed,)), say=said.append)
        laid.append(path.read_text(encoding="utf-8"))
    lay_choice(study.root, Choice(profile="postcards"), say=said.append)
    kept = {"": own, ".2": laid[0], ".3": laid[1]}
    for ending, text in kept.items():
        name = f"work/params.yaml.before{ending}"
        assert (study.root / name).read_text(encoding="utf-8") == text
        assert f"params.yaml as it was is kept as {name}" in said
    path.write_text(own, encoding="utf-8")
    lay_choice(study.root, Choice(profile="postcards"), say=said.append)
    assert len(list((study.root / "work").iterdir())) == 3, "what is kept already is not kept twice"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flow", "values"),
    [
        (deployed.ablation, {"arms": ("frozen",), "rounds": 2}),
        (deployed.one_round, {"cell": "frozen-s1-r1"}),
        (deployed.comparison, {}),
    ],
)
def test_run_while_a_study_is_on_is_skipped_and_says_whose(
    client: Any, study: Study, flow: Any, values: dict[str, Any]
) -> None:
    before = (study.root / "params.yaml").read_bytes()
    with exclusive(lock_path(study), "the study of somebody"):
        state = flow(**values, return_state=True)
    # A name of our own would be missing in the UI's lists of runs.
    assert (state.type.value, state.name) == ("CANCELLED", "Cancelled")
    assert state.message.startswith("skipped: ")
    assert "the study of somebody (process " in state.message
    assert (study.root / "params.yaml").read_bytes() == before
    assert not (study.root / "data").exists()


@pytest.mark.slow
def test_run_with_an_arm_that_is_not_there_fails_with_the_reason(server: str, study: Study) -> None:
    before = (study.root / "params.yaml").read_bytes()
    state = deployed.ablation(arms=("nonsense",), return_state=True)
    assert state.is_failed()
    assert "nonsense" in state.message
    assert (study.root / "params.yaml").read_bytes() == before


@pytest.fixture
def client(server: str) -> Iterator[Any]:
    with temporary_settings({PREFECT_API_URL: server}), get_client(sync_client=True) as found:
        yield found
        for name in ("ablation", "round", "compare"):  # the server is all tests'
            with suppress(ObjectNotFound):
                deployment = found.read_deployment_by_name(f"study/{name}")
                found.delete_deployment(deployment.id)


@pytest.mark.slow
def test_registering_again_keeps_the_schedule_and_its_switch(study: Study, client: Any) -> None:
    deploy(wanted_schedule("0 2 * * *", "Europe/Berlin", paused=True))
    deploy()
    found = client.read_deployment_by_name("study/ablation")
    (schedule,) = found.schedules
    assert (schedule.schedule.cron, schedule.schedule.timezone) == ("0 2 * * *", "Europe/Berlin")
    assert not schedule.active
    assert client.read_work_pool(found.work_pool_name).type == "process"
    assert client.read_deployment_by_name("study/round").schedules == []
    assert client.read_deployment_by_name("study/compare").schedules == []


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"cron": "at night"}, "five fields"),
        ({"cron": "0 2 * * * *"}, r"\(6 fields\).*five fields"),  # the sixth would be seconds
        ({"cron": "@daily"}, r"\(1 fields\).*five fields"),
        ({"cron": "0 2 * * *", "timezone": "Nowhere/City"}, "time zone"),
        ({"timezone": "Europe/Berlin"}, "--timezone without --cron"),
        ({"timezone": "UTC", "paused": True}, "--timezone and --paused without --cron"),
    ],
)
def test_schedule_that_is_none_is_refused(wanted: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        wanted_schedule(**wanted)


def test_schedule_without_a_time_zone_is_in_utc_and_on() -> None:
    found = wanted_schedule("0 2 * * *")
    assert found is not None
    assert isinstance(found.schedule, CronSchedule)
    assert (found.schedule.cron, found.schedule.timezone) == ("0 2 * * *", "UTC")
    assert found.active
    assert wanted_schedule() is None


@pytest.mark.slow
def test_registering_over_another_projects_deployment_is_refused(
    study: Study, client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deploy()
    other = tmp_path / "other"
    other.mkdir()
    for name in ("params.yaml", "cells.yaml", "cells.json"):
        (other / name).write_bytes((study.root / name).read_bytes())
    monkeypatch.chdir(other)
    with pytest.raises(UserError, match="prefect deployment delete"):
        deploy()


def test_offer_names_a_flow_that_a_worker_can_load(study: Study) -> None:
    from prefect.flows import load_flow_from_entrypoint

    for offer in offers(study.config, study.root):
        assert isinstance(offer, Offer)
        assert load_flow_from_entrypoint(offer.entry).name == deployed.FLOW
