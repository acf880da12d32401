"""What every cell starts from: the prepared data and the two warm starts, as Prefect tasks."""

from __future__ import annotations

from prefect import task

from tasks.console import log_line, task_name
from tasks.study import StepResult, Study, request_for


@task(task_run_name="prepare")
def prepare(study: Study) -> StepResult:
    """Write the world's prompts, anchors and warm-start texts, and train its tokenizer."""
    identity = _identity(study.plan.shared["prepare"])
    return study.run_gpu_step(
        request_for("prepare", identity),
        study.prepared,
        lambda dirs: {**identity, "out_dir": str(dirs.out)},
        group="shared",
        on_line=log_line(),
    )


@task(task_run_name=task_name("warm_start {role}"))
def warm_start(study: Study, role: str) -> StepResult:
    """Train P_0 or G_0 by supervised fine-tuning."""
    identity = {"role": role, **_identity(study.plan.shared["warm_start"][role])}
    return study.run_gpu_step(
        request_for("warm_start", identity, prepared=study.prepared),
        study.warm(role),
        lambda dirs: {
            **identity,
            "prepared_dir": str(study.prepared),
            "out_dir": str(dirs.out),
            "work_dir": str(dirs.work),
            "recompute_activations": study.config.runtime.recompute_activations,
        },
        group=f"shared-{role}",
        on_line=log_line(),
    )


def _identity(entry: dict[str, object]) -> dict[str, object]:
    """Return an entry of the plan without its version, which the request has a place for."""
    return {name: value for name, value in entry.items() if name != "version"}
