"""One co-evolution round as a DAG of GPU tasks.

Command: `python -m flows round CELL` (DVC runs it, one stage a cell). It works without a Prefect
server; with one (PREFECT_API_URL) every task run, its logs and two artifacts show in the UI.
"""

from __future__ import annotations

from prefect import flow

from dynamicrubric.probes.planned import is_watched
from flows.dag import finish, submit, thread_runner
from flows.lookup import start_of_arms, training_round
from tasks.evaluate_round import evaluate_round
from tasks.gpu import children_end_first
from tasks.probe_evaluators import watch_course
from tasks.publish_metrics import publish_metrics
from tasks.sample_responses import sample_responses
from tasks.shipjob import shown_running
from tasks.study import Study
from tasks.track_round import track_round
from tasks.train_generator import train_generator
from tasks.train_policy import train_policy


@flow(
    name="round",
    flow_run_name="{key}",
    task_runner=thread_runner(2),
    persist_result=False,
    validate_parameters=False,
)
def run_round(key: str) -> dict[str, float | None]:
    """Sample, train both roles, measure and track; finished steps are found, not done again.

    Args:
        key: the cell, a training round of the plan.

    Raises:
        UserError: there is no such cell, or it is a start.
    """
    study = Study.here()
    cell = training_round(study, key)
    with children_end_first(), shown_running(study, cell):
        responses = submit(sample_responses, study, cell)
        generator = submit(train_generator, study, cell, responses)
        policy = submit(train_policy, study, cell, generator)
        evaluation = submit(evaluate_round, study, cell, policy, generator)
        metrics = submit(publish_metrics, study, cell, evaluation)
        tracked = submit(track_round, study, cell, metrics)
        watched = [submit(watch_course, study, cell, tracked)] if is_watched(cell) else []
        finish([responses, generator, policy, evaluation, metrics, tracked, *watched])
        figures: dict[str, float | None] = metrics.result()
        return figures


@flow(
    name="start",
    flow_run_name="{key}",
    task_runner=thread_runner(2),
    persist_result=False,
    validate_parameters=False,
)
def run_start(key: str) -> dict[str, float | None]:
    """Measure the untrained policy under an untrained evaluator: round 0.

    Args:
        key: the cell, a start of the plan.

    Raises:
        UserError: there is no such cell, or it is a training round.
    """
    study = Study.here()
    cell = start_of_arms(study, key)
    with children_end_first(), shown_running(study, cell):
        evaluation = submit(evaluate_round, study, cell, None, None)
        metrics = submit(publish_metrics, study, cell, evaluation)
        tracked = submit(track_round, study, cell, metrics)
        finish([evaluation, metrics, tracked])
        figures: dict[str, float | None] = metrics.result()
        return figures
