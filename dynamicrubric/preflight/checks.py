"""Runs a preflight: a profile in, a report out, in seconds and without weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

from dynamicrubric.config import Config, PretrainedConfig, resolve_arm
from dynamicrubric.engines.meta import ModelSize, measure_model
from dynamicrubric.engines.modelconfig import find_config
from dynamicrubric.engines.verifier import torch_dtype
from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan, expand
from dynamicrubric.preflight.batches import batch_checks, tasks_on_one
from dynamicrubric.preflight.facts import GIB, Check, Phase, Report, Work
from dynamicrubric.preflight.lengths import Lengths, longest_texts
from dynamicrubric.preflight.machine import Device, free_disk
from dynamicrubric.preflight.memory import Memory, largest_phases
from dynamicrubric.preflight.reach import reach_checks
from dynamicrubric.preflight.roles import (
    Arm,
    context_checks,
    judging_checks,
    ready_checks,
    served_checks,
)
from dynamicrubric.preflight.storage import TEXTS, planned_storage
from dynamicrubric.preflight.work import countable_plan, planned_work, timed

GPU_SHARE: Final = 0.9
"""Of a GPU's memory for tensors; the rest is for the CUDA context and for what the allocator cannot
use. It is the share that vLLM takes unless told otherwise (`gpu_memory_utilization`)."""
PROCESS_BYTES: Final = 0.6 * GIB
"""Main memory of a step's process before it has a model: Python, PyTorch, transformers, TRL."""


class _Model(NamedTuple):
    size: ModelSize | None
    source: str
    stored: int | None
    checks: list[Check]


def preflight(config: Config, name: str, device: Device, root: Path) -> Report:
    """Check a profile.

    Args:
        config: the profile.
        name: where it is from, for the report.
        device: what its tasks would run on.
        root: the project's folder: its records say how fast, its disk how much room there is.
    """
    recipes = {run.arm: resolve_arm(config, run.arm) for run in config.study.runs}
    arms = {arm: Arm(recipe, longest_texts(config, recipe)) for arm, recipe in recipes.items()}
    reached, hub_answers = reach_checks(config, arms, root)
    model = _model(config, hub_answers)
    columns = zip(*(arm.lengths for arm in arms.values()), strict=True)
    lengths = Lengths(*(max(column) for column in columns))
    plan = countable_plan(config)
    work = timed(planned_work(config, plan, lengths), config, root)
    phases: tuple[Phase, ...] = ()
    storage = {}
    if model.size is not None:
        size = model.size
        phases = largest_phases(
            [Memory(size, config, arm.recipe, arm.lengths).phases() for arm in arms.values()]
        )
        storage = dict(planned_storage(config, plan, size, work, model.stored))
    checks = [
        *batch_checks(config, recipes, device),
        *ready_checks(plan, config.runtime),
        *served_checks(arms),
        *_sources(config, plan),
        *reached,
        *model.checks,
        # A small model is made to fit its texts.
        *(context_checks(arms, model.size.context) if model.size and not _is_small(config) else ()),
        *judging_checks(arms),
        *_memory(config, phases, device),
        *_time(config, work),
        *_disk(storage, root),
    ]
    return Report(
        name, tuple(checks), model.size, model.source, lengths, phases, work, device.words, storage
    )


def _model(config: Config, ask_hub: bool) -> _Model:
    """Count the backbone; what stands in the way is a problem, not an end."""
    backbone = config.backbone
    try:
        if not isinstance(backbone, PretrainedConfig):
            from dynamicrubric.engines.smallmodel import small_config

            small = small_config(backbone, vocab_size=backbone.vocab_size, longest=1)
            size = measure_model(small, torch_dtype("float32"))
            return _Model(size, "the profile's backbone", None, [])
        found = find_config(backbone, ask_hub=ask_hub)
        size = measure_model(found.config, torch_dtype(backbone.dtype), backbone.lora)
    except UserError as error:
        got = f"{error.doing}: {error.got}; expected {error.expected}"
        return _Model(None, "", None, [Check("backbone", "problem", got, error.remedy or "")])
    checks = [
        Check("backbone", "problem", one, "copy the number of config.json") for one in found.wrong
    ]
    return _Model(size, found.source, found.stored_bytes, checks)


def _sources(config: Config, plan: Plan) -> Iterator[Check]:
    """Say whether what the study reads is there."""
    try:
        expand(config)
    except UserError as error:
        yield Check("sources", "problem", f"{error.doing}: {error.got}", error.remedy or "")
        return
    yield Check("sources", "ok", f"{len(plan.cells)} cells to train, {len(plan.starts)} to measure")


def _memory(config: Config, phases: Sequence[Phase], device: Device) -> Iterator[Check]:
    """Compare each step with the memory of what it runs on."""
    if not phases:
        return
    fixed = 0.0 if device.is_gpu else PROCESS_BYTES
    have = device.bytes * (GPU_SHARE if device.is_gpu else 1.0)
    many = {phase.step: tasks_on_one(config.runtime, device, phase.step) for phase in phases}
    needs = {phase.step: many[phase.step] * (phase.total + fixed) for phase in phases}
    worst = max(phases, key=lambda phase: needs[phase.step])
    need, tasks = needs[worst.step], many[worst.step]
    whose = "processes" if not device.is_gpu and config.runtime.processes > 1 else "tasks"
    several = f"{tasks} {whose} at a time: " if tasks > 1 else ""
    found = (
        f"{several}{worst.step} needs {need / GIB:.1f} GiB ({worst.highest}); "
        f"{have / GIB:.1f} GiB to be had"
    )
    too_large = [phase for phase in phases if needs[phase.step] > have]
    largest = max(phase.total for phase in phases)
    change = _relief(config, too_large, tasks, largest) if too_large else ""
    yield Check("memory", "problem" if too_large else "ok", found, change)
    if device.is_gpu and _dtype(config) == "bfloat16" and not device.has_bfloat16:
        yield Check("memory", "note", "this GPU computes bfloat16 slowly", "use a newer one")


def _relief(config: Config, too_large: Sequence[Phase], tasks: int, largest: float) -> str:
    """Say what would make steps fit, the settings that do most first."""
    runtime = config.runtime
    ways = []
    passes = [phase for phase in too_large if phase.highest == "forward and backward"]
    if passes and not runtime.recompute_activations:
        ways.append("set runtime.recompute_activations")
    if any(not phase.step.startswith("warm") for phase in passes) and runtime.rows_per_pass != 1:
        ways.append("set runtime.rows_per_pass, to 1 at the least")
    if any(phase.step.startswith("warm") for phase in passes):
        ways.append("lower the warm start's batch_size or world.max_shown_letters")
    if tasks > 1:
        ways.append("lower runtime.slots" if runtime.slots > 1 else "lower runtime.processes")
    if _dtype(config) == "float32" and not _is_small(config):
        ways.append("set backbone.dtype to bfloat16")
    ways.append(f"use a GPU of {ceil(largest / GPU_SHARE / GIB)} GiB or more for each task")
    ways.append("shorten texts (max_tokens, world.max_prompt_letters)")
    return "; or ".join(ways)


def _is_small(config: Config) -> bool:
    return not isinstance(config.backbone, PretrainedConfig)


def _dtype(config: Config) -> str:
    return config.backbone.dtype if isinstance(config.backbone, PretrainedConfig) else "float32"


def _time(config: Config, work: Sequence[Work]) -> Iterator[Check]:
    """Compare the longest step with its deadline, where it is known."""
    known = {one.step: one.seconds / one.runs for one in work if one.seconds is not None}
    if not known:
        yield Check(
            "time", "note", "unknown: no earlier run of this model and these lengths in this folder"
        )
        return
    step, seconds = max(known.items(), key=lambda pair: pair[1])
    limit = config.runtime.task_deadline_minutes * 60
    found = f"{step} takes about {seconds / 60:.1f} min; the deadline is {limit / 60:.0f} min"
    fits = seconds <= limit
    yield Check(
        "time",
        "ok" if fits else "problem",
        found,
        "" if fits else "raise runtime.task_deadline_minutes, or lower the step's amounts",
    )


def _disk(storage: dict[str, float], root: Path) -> Iterator[Check]:
    if not storage:
        return
    have, texts = free_disk(root), storage[TEXTS]
    need = sum(storage.values()) - texts
    found = (
        f"{need / 1e9:.1f} GB of checkpoints and weights, texts of at most {texts / 1e9:.1f} GB; "
        f"{have / 1e9:.1f} GB free"
    )
    change = "free space, or choose fewer arms, seeds or rounds to run"
    if need > have:
        yield Check("disk", "problem", found, change)
    elif need + texts > have:
        yield Check("disk", "note", found, "free space, if texts come near their limits")
    else:
        yield Check("disk", "ok", found)
