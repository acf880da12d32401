"""Tasks: attacks on a seed's evaluators, and the watch over one round (`dynamicrubric.probes`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from dynamicrubric.errors import UserError
from dynamicrubric.plan import Cell, identity_of
from dynamicrubric.probes.planned import PlannedProbe, ProbedCell
from dynamicrubric.versions import PROBE_VERSIONS
from tasks.console import log_line
from tasks.record import StepRequest
from tasks.study import StepResult, Study


@task(task_run_name="probe_evaluators")
def probe_evaluators(study: Study, probe: PlannedProbe) -> StepResult:
    """Attack the evaluators of a seed's probed cells."""
    settings = probe.settings
    identity = {
        "cells": {key: _identity(one.cell) for key, one in probe.cells.items()},
        "older": {key: _older(one) for key, one in probe.cells.items()},
        **settings,
    }
    inputs = {name: study.root / folder for name, folder in probe.inputs.items()}
    return study.run_gpu_step(
        _request("probe_evaluators", identity, {"prepared": study.prepared, **inputs}),
        study.root / probe.directory,
        lambda dirs: {
            "cells": [_document(study, one) for one in probe.cells.values()],
            "attacks": list(settings["attacks"]),
            "sets_per_prompt": settings["sets_per_prompt"],
            "gold_judge": settings["gold_judge"],
            "prepared_dir": str(study.prepared),
            "out_dir": str(dirs.out),
            "engines": study.engine_places(f"probe-{probe.key}"),
        },
        group=f"probe-{probe.key}",
        on_line=log_line(),
    )


@task(task_run_name="watch_course")
def watch_course(study: Study, cell: Cell, done: object) -> str:
    """Stop a run whose evaluator prefers a policy that has become worse.

    Args:
        study: the study.
        cell: a training round.
        done: the round's measurement, which has to be there.

    Returns:
        What was found, in a sentence.

    Raises:
        UserError: they diverge.
    """
    from dynamicrubric.probes.files import COURSE_FILE, read_courses
    from dynamicrubric.probes.watch import verdict_on

    assert cell.before is not None, "round 0 trains nothing"
    judge = study.config.probe.gold_judge if study.config.probe else None
    gold_judge = None if judge is None else judge.model_dump(mode="json")
    before = study.root / cell.before / "evaluation"
    own = ProbedCell(cell, (), {})
    folders = {
        "generator": study.root / own.generator_dir,
        "evaluation": study.root / own.evaluation_dir,
    }
    result = study.run_gpu_step(
        _request(
            "watch_course",
            {"cell": _identity(cell), "gold_judge": gold_judge},
            {"prepared": study.prepared, "before": before, **folders},
        ),
        study.work / "courses" / cell.key,
        lambda dirs: {
            "cell": _document(study, own) | {"older": {"before": str(before)}},
            "gold_judge": gold_judge,
            "prepared_dir": str(study.prepared),
            "out_dir": str(dirs.out),
            "engines": study.engine_places(cell.key),
        },
        group=cell.key,
        on_line=log_line(),
    )
    rows = read_courses(study.root / result.path / COURSE_FILE)[cell.key]
    found = verdict_on(cell.key, cell.recipe.seed, rows)
    if found.diverges:
        raise UserError(
            doing=f"training {cell.key}, round {cell.recipe.round}",
            got=found.sentence,
            expected="a policy that does not become worse while its evaluator says it gets better "
            "(evaluation.stop_on_divergence)",
            remedy="look at `dynamicrubric probe` of this cell; change its evaluator or its "
            "learning settings, or go on with evaluation.stop_on_divergence: false",
        )
    return found.sentence


def _request(step: str, identity: Mapping[str, Any], inputs: Mapping[str, Path]) -> StepRequest:
    return StepRequest(step, PROBE_VERSIONS[step], identity, dict(inputs))


def _identity(cell: Cell) -> dict[str, Any]:
    """Return what a cell's evaluator computes with, beside its artefacts."""
    recipe = cell.recipe
    return {
        "seed": recipe.seed,
        "round": recipe.round,
        "rubrics": identity_of(recipe.rubrics),
        "verifier": identity_of(recipe.verifier),
    }


def _older(one: ProbedCell) -> dict[str, str]:
    return {reference: cell.key for reference, cell in one.older.items()}


def _document(study: Study, one: ProbedCell) -> dict[str, Any]:
    return {
        "key": one.cell.key,
        "recipe": one.cell.recipe.model_dump(mode="json"),
        "generator_dir": str(study.root / one.generator_dir),
        "evaluation_dir": str(study.root / one.evaluation_dir),
        "older": {
            reference: str(study.root / cell.directory / "evaluation")
            for reference, cell in one.older.items()
        },
    }
