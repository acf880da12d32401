"""What the Prefect UI, a schedule or `prefect deployment run` starts: a study, a round, a table.

`flows.deploy` registers these flows. Each does what `make reproduce` does, or a part of it: it
takes the study's lock, writes the settings asked for, and runs DVC's stages side by side. While
another holds the lock it is skipped and says who that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas import State
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed
from pydantic import Field

from flows.ablation import submit_stages
from flows.driver import WHAT, all_stages, check_ended, lock_path, shared_imports, tidy
from flows.lookup import check_engines
from flows.planning import check_dvc_lock, settle_plan
from flows.progress import Progress
from flows.settings import Choice, lay_choice
from flows.stages import Stage, needed_for
from flows.staleness import fresh_stages
from flows.studypage import study_page
from tasks.locks import describe_holder, try_exclusive
from tasks.prefect_runs import process_tags, runs_of
from tasks.shipping import ship_study
from tasks.study import Study

FLOW: Final = "study"
Choose = Callable[[Study], list[Stage]]

Arms = tuple[str, ...]
Seeds = tuple[Annotated[int, Field(ge=0, le=2**31)], ...]
Key = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*-s[0-9]+-r[0-9]+$")]
Rounds = Annotated[int | None, Field(ge=1, le=100)]


@flow(name=FLOW, persist_result=False)
def ablation(
    arms: Arms = (), seeds: Seeds = (), rounds: Rounds = None, profile: str | None = None
) -> State[Any]:
    """Run the study: train every cell that is not trained yet, evaluate, compare.

    What is chosen here is written to params.yaml, cells.yaml and cells.json, as `dvc exp run -S`
    would; what is left empty stays as it is there.

    Args:
        arms: Arms, or one group of them (groups come first). Empty: as in params.yaml.
        seeds: Seeds, each once. Empty: as in params.yaml.
        rounds: Rounds of co-evolution. Empty: as in params.yaml.
        profile: A file of profiles/ to begin with. Empty: params.yaml as it is.
    """

    def stages(study: Study) -> list[Stage]:
        choice = Choice(arms, seeds, rounds, profile)
        lay_choice(study.root, choice, say=get_run_logger().info)
        fresh = Study(study.root)
        settle_plan(fresh, say=get_run_logger().info)
        return all_stages(fresh)

    return _run(stages)


@flow(name=FLOW, persist_result=False)
def one_round(cell: Key) -> State[Any]:
    """Run one cell of the plan (one round of one arm and seed) and all that it builds on.

    Args:
        cell: A cell of the plan, for example coevolved-s1-r2.
    """

    def stages(study: Study) -> list[Stage]:
        settle_plan(study, say=get_run_logger().info)
        kind = "start" if study.plan.cell(cell).key in study.plan.starts else "round"
        return needed_for(f"{kind}@{cell}", all_stages(study))

    return _run(stages)


@flow(name=FLOW, persist_result=False)
def comparison() -> State[Any]:
    """Compare the arms of a finished study: the tables, the picture, MLflow. Trains nothing."""

    def stages(study: Study) -> list[Stage]:
        settle_plan(study, say=get_run_logger().info)
        return [stage for stage in all_stages(study) if stage.name in ("plan", "compare")]

    return _run(stages)


def _run(choose_stages: Choose) -> State[Any]:
    """Run stages of the study in the current folder, unless somebody else is at it.

    Raises:
        DynamicRubricError: a setting is refused, or stages failed; it becomes the run's message.
    """
    study = Study.here()
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run.id, tags={*flow_run.tags, *process_tags(study.root)})
    lock = lock_path(study)
    held = try_exclusive(lock, f"{WHAT} that Prefect runs as {flow_run.name}")
    if held is None:
        return _skipped(describe_holder(lock))
    with held:
        check_dvc_lock(study.root)
        stages = choose_stages(study)
        return _run_stages(Study(study.root), stages)


def _skipped(holder: str) -> State[Any]:
    reason = f"skipped: {holder} is on in this folder; nothing was run or changed"
    get_run_logger().warning("%s", reason)
    return Cancelled(message=reason)  # not a name of our own: the UI's lists leave those out


def _run_stages(study: Study, stages: list[Stage]) -> State[Any]:
    tidy(study)
    fresh = fresh_stages(study.root, stages)
    check_engines(study, {stage.name for stage in stages} - fresh)
    progress = Progress(study.plan, stages, study.work, say=get_run_logger().info, fresh=fresh)
    with (
        shared_imports(study, fresh),
        runs_of(study.root),
        study_page(study, progress, flow_run.id),
    ):
        check_ended(submit_stages(study, stages, fresh, progress))
    ship_study(study.plan, study.root, study.config)
    if any(stage.name == "compare" for stage in stages):
        table = (study.root / "results" / "table.md").read_text(encoding="utf-8")
        create_markdown_artifact(table, key="comparison", description="Comparison of the arms")
    ran = sum(state == "done" for state in progress.states().values())
    return Completed(message=f"{ran} of {len(stages)} stages run, the others were up to date")
