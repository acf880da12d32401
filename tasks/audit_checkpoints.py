"""Task: the generators of a seed's audit on their policies' held-out responses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefect import task

from dynamicrubric.audit.measure import Checkpoint
from dynamicrubric.audit.planned import AuditedPolicy, PlannedAudit
from dynamicrubric.hashing import sha256_of
from dynamicrubric.plan import Cell, identity_of
from tasks.artefact import Record
from tasks.console import log_line
from tasks.record import snapshots_of
from tasks.study import StepResult, Study, request_for


@task(task_run_name="audit_checkpoints")
def audit_checkpoints(study: Study, audit: PlannedAudit) -> StepResult:
    """Measure the seed's generators: those of one policy see the same sets, with the same draws."""
    group = f"audit-{audit.key}"
    checkpoints = [one for policy in audit.policies for one in policy_checkpoints(study, policy)]
    world = study.plan.shared["prepare"]["world"]
    policies = [
        {"name": one.name, "round": one.round, "sets": str(study.root / one.sets)}
        for one in audit.policies
    ]
    inputs = {f"sets/{one.name}": study.root / one.sets for one in audit.policies}
    for cell in audit.cells:
        inputs[f"start/{cell.key}"] = study.root / cell.generator_dir
        inputs[f"generator/{cell.key}"] = study.cell_dir(cell) / "generator"
    identity = {
        "seed": audit.seed,
        "world": dict(world),
        "rounds": {one.name: one.round for one in audit.policies},
        "checkpoints": [_identity(one) for one in checkpoints],
    }
    return study.run_gpu_step(
        request_for("audit_checkpoints", identity, prepared=study.prepared, **inputs),
        study.root / audit.directory,
        lambda dirs: {
            "policies": policies,
            "checkpoints": [one.values for one in checkpoints],
            "world": dict(world),
            "prepared_dir": str(study.prepared),
            "out_dir": str(dirs.out),
            "engines": study.engine_places(group),
        },
        group=group,
        on_line=log_line(),
    )


def policy_checkpoints(study: Study, policy: AuditedPolicy) -> Iterator[Checkpoint]:
    """Return what is measured on a policy's sets: each generator once, whoever starts from it."""
    seen: set[Path] = set()
    for cell in policy.cells:
        for step, folder in _weights(study, cell).items():
            if folder not in seen:
                seen.add(folder)
                yield _checkpoint(study, policy, cell, step, folder)


def _weights(study: Study, cell: Cell) -> dict[int, Path]:
    """Return the generators of a cell's training, by step: first, kept on the way, last."""
    training = cell.recipe.generator_training
    assert training is not None, "the plan has trainings alone"
    trained = study.cell_dir(cell) / "generator"
    kept = snapshots_of(Record.read(trained), study.work / "steps")
    return {0: study.root / cell.generator_dir, **kept, training.steps: trained}


def _checkpoint(
    study: Study, policy: AuditedPolicy, cell: Cell, step: int, folder: Path
) -> Checkpoint:
    training = cell.recipe.generator_training
    assert training is not None
    return Checkpoint(
        name=f"{cell.key}/{step}",
        policy=policy.name,
        cell=cell.key,
        step=step,
        steps=training.steps,
        directory=str(folder),
        trained=str(study.cell_dir(cell) / "generator"),
        recipe=cell.recipe,
    )


def _identity(one: Checkpoint) -> dict[str, Any]:
    """Return what determines a checkpoint's figures beside the artefacts that are inputs.

    Weights that were kept on the way are in no artefact: the hash of their files stands for them.
    """
    weights = sorted(Path(one.directory).glob("*.safetensors"))
    training = one.recipe.generator_training
    assert training is not None
    return {
        "name": one.name,
        "policy": one.policy,
        "weights": {path.name: sha256_of(path) for path in weights},
        "objective": identity_of(training.objective),
        "rubrics": identity_of(one.recipe.rubrics),
        "verifier": identity_of(one.recipe.verifier),
    }
