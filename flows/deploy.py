"""Registers the study with a Prefect server: what its UI and its schedules can start.

Command: `python -m flows deploy` (`make deploy`). Deployments `study/ablation`, `study/round` and
`study/compare` on a process work pool; `make ui` or `make worker` runs what they start. Run again
after a change of arms: the forms offer what params.yaml has now, schedules stay as they are.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound
from prefect.utilities.callables import parameter_schema
from prefect.workers.process import ProcessWorker

from dynamicrubric.config import Config, load_config
from dynamicrubric.errors import UserError
from flows import deployed
from flows.settings import profile_path, profiles
from flows.worker import POOL
from tasks.prefect_runs import place_tags
from tasks.study import Study

STUDY_DEPLOYMENT: Final = "ablation"


@dataclass(frozen=True)
class Offer:
    """A deployment: its name, its flow and the values that its form offers.

    Attributes:
        name: the deployment's name.
        entry: where a worker finds the flow.
        flow: the flow.
        choices: the values a parameter may have, by parameter.
    """

    name: str
    entry: str
    flow: Flow[..., Any]
    choices: Mapping[str, Sequence[str]]


def deploy(schedule: DeploymentScheduleCreate | None = None) -> None:
    """Register the deployments of the current folder's study with the server in use.

    Args:
        schedule: when the study is to run; None leaves the schedules that are there.

    Raises:
        UserError: settings are not valid, or the names belong to another project.
    """
    study = Study.here()
    config = load_config(study.root / "params.yaml")
    with get_client(sync_client=True) as client:
        _make_pool(client)
        for offer in offers(config, study.root):
            given = [schedule] if schedule and offer.name == STUDY_DEPLOYMENT else None
            _register(client, study.root, offer, given)
            print(f"{deployed.FLOW}/{offer.name}")


def offers(config: Config, root: Path) -> list[Offer]:
    """Return the deployments of a study; the forms offer the arms of the profiles as well."""
    names = profiles(root)
    configs = [config, *(load_config(profile_path(root, name)) for name in names)]
    known = [name for one in configs for name in (*one.study.groups, *one.study.arms)]
    of_study = {"arms": list(dict.fromkeys(known)), "profile": names}
    return [
        Offer(STUDY_DEPLOYMENT, "flows.deployed.ablation", deployed.ablation, of_study),
        Offer("round", "flows.deployed.one_round", deployed.one_round, {}),
        Offer("compare", "flows.deployed.comparison", deployed.comparison, {}),
    ]


def form_of(offer: Offer) -> dict[str, Any]:
    """Return the JSON schema of a deployment's parameters: the UI makes a form of it.

    The server refuses what the schema does not allow, so a wrong name never becomes a run. Empty
    stands for "as in params.yaml", so `null` is no choice of its own.
    """
    schema: dict[str, Any] = parameter_schema(offer.flow).model_dump_for_openapi()
    for name, field in schema["properties"].items():
        allowed = [one for one in field.pop("anyOf", []) if one.get("type") != "null"]
        field |= allowed[0] if allowed else {}
        if field.get("default", ...) is None:
            del field["default"]
        if field.get("type") == "array":
            field["uniqueItems"] = True
        if choices := offer.choices.get(name):
            place = field["items"] if field.get("type") == "array" else field
            place["enum"] = list(choices)
    return schema


def _make_pool(client: SyncPrefectClient) -> None:
    try:
        found = client.read_work_pool(POOL)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        client.create_work_pool(
            WorkPoolCreate(
                name=POOL,
                type=ProcessWorker.type,
                base_job_template=template,
                description="Runs studies as processes of the machine with the project's folder",
            )
        )
        return
    if found.type != ProcessWorker.type:
        raise UserError(
            doing="registering the study",
            got=f"a work pool {POOL!r} of the type {found.type!r}",
            expected=f"one of the type {ProcessWorker.type!r}",
            remedy="remove that pool, or use another Prefect server",
        )


def _register(
    client: SyncPrefectClient,
    root: Path,
    offer: Offer,
    schedules: list[DeploymentScheduleCreate] | None,
) -> UUID:
    before = _existing(client, root, offer.name)
    if schedules is None and before is not None:  # registering anew would remove them
        schedules = [
            DeploymentScheduleCreate(
                schedule=one.schedule, active=one.active, parameters=one.parameters, slug=one.slug
            )
            for one in before.schedules
        ]
    return client.create_deployment(
        flow_id=client.create_flow_from_name(deployed.FLOW),
        name=offer.name,
        description=offer.flow.description,
        entrypoint=offer.entry,
        path=str(root),
        work_pool_name=POOL,
        schedules=schedules,
        parameter_openapi_schema=form_of(offer),
        enforce_parameter_schema=True,
        tags=list(place_tags(root)),
        job_variables={
            "command": shlex.join([sys.executable, "-m", "flows", "run"]),
            "working_dir": str(root),
        },
    )


def _existing(client: SyncPrefectClient, root: Path, name: str) -> DeploymentResponse | None:
    """Return the deployment that is there.

    Raises:
        UserError: it is another project's.
    """
    try:
        found = client.read_deployment_by_name(f"{deployed.FLOW}/{name}")
    except ObjectNotFound:
        return None
    if not set(place_tags(root)) <= set(found.tags):
        raise UserError(
            doing=f"registering {deployed.FLOW}/{name}",
            got=f"a deployment of that name with the tags {', '.join(found.tags) or 'none'}",
            expected=f"none, or one of {root}",
            remedy="use this project's own server (unset PREFECT_API_URL), or remove the other "
            f"with `prefect deployment delete {deployed.FLOW}/{name}`",
        )
    return found
