"""Runs a preflight: a profile in, a report out, in seconds and without weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from dynamicrubric.preflight.relief import have_gib, relief
from dynamicrubric.preflight.roles import (
    Arm,
    Arms,
    cache_checks,
    context_checks,
    judging_checks,
    ready_checks,
    reward_checks,
    served_checks,
)
from dynamicrubric.preflight.storage import TEXTS, planned_storage, shown_gb
from dynamicrubric.preflight.work import countable_plan, planned_work, timed

PROCESS_BYTES: Final = 0.6 * GIB
"""Main memory of a step's process before it has a model: Python, PyTorch, transformers, TRL."""


SLOW_ON_CPUS: Final = 1e9
"""Parameters beyond which a study on a CPU takes weeks."""


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
        phases = phases_of(config, arms, size, device)
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
        *(cache_checks(arms, config.runtime, model.size) if model.size else ()),
        *reward_checks(arms, None if _is_small(config) or not model.size else model.size.context),
        *judging_checks(arms),
        *_device(config, model.size, device),
        *_memory(config, arms, model.size, phases, device),
        *_time(config, work),
        *_disk(storage, root),
    ]
    return Report(
        name, tuple(checks), model.size, model.source, lengths, phases, work, device.words, storage
    )


def phases_of(config: Config, arms: Arms, size: ModelSize, device: Device) -> tuple[Phase, ...]:
    """Return each step's memory in the arm where it needs most, on a device."""
    own = 0.0 if device.is_gpu else PROCESS_BYTES
    found = [Memory(size, config, arm.recipe, arm.lengths).phases() for arm in arms.values()]
    return tuple(
        replace(phase, process=own, tasks=tasks_on_one(config.runtime, device, phase.step))
        for phase in largest_phases(found)
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
        return _Model(None, "", None, [Check.refused("backbone", error)])
    checks = [
        Check("backbone", "problem", one, "copy the number of config.json") for one in found.wrong
    ]
    return _Model(size, found.source, found.stored_bytes, checks)


def _sources(config: Config, plan: Plan) -> Iterator[Check]:
    """Say whether what the study reads is there."""
    try:
        expand(config)
    except UserError as error:
        yield Check.refused("sources", error)
        return
    yield Check("sources", "ok", f"{len(plan.cells)} cells to train, {len(plan.starts)} to measure")


def _device(config: Config, size: ModelSize | None, device: Device) -> Iterator[Check]:
    """Say what tasks run on, and what is slow there."""
    if device.is_gpu:
        slow = _dtype(config) == "bfloat16" and not device.has_bfloat16
        found = f"{device.words}{', which computes bfloat16 slowly' if slow else ''}"
        yield Check("device", "note" if slow else "ok", found, "use a newer one" if slow else "")
    elif size is not None and size.num_params > SLOW_ON_CPUS:
        found = f"{device.words}: {size.num_params / 1e9:.1f}G parameters are slow there"
        yield Check("device", "note", found, "use a machine with a GPU")
    else:
        yield Check("device", "ok", device.words)


def _memory(
    config: Config, arms: Arms, size: ModelSize | None, phases: Sequence[Phase], device: Device
) -> Iterator[Check]:
    """Compare each step with the memory of what it runs on; each that does not fit has its own."""
    if size is None:
        return
    have = have_gib(device)
    too_large = [phase for phase in phases if phase.all > have]
    for phase in too_large:

        def with_(changed: Config, step: str = phase.step) -> Phase:
            return next(p for p in phases_of(changed, arms, size, device) if p.step == step)

        yield Check("memory", "problem", _needs(phase, have), relief(config, phase, have, with_))
    if not too_large:
        worst = max(phases, key=lambda phase: phase.all)
        yield Check("memory", "ok", _needs(worst, have))


def _needs(phase: Phase, have: float) -> str:
    several = f"{phase.tasks} x {phase.one:.2f} = " if phase.tasks > 1 else ""
    return (
        f"{phase.step} needs {several}{phase.all:.2f} GiB ({phase.highest}); "
        f"{have:.2f} GiB to be had"
    )


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
    weights = sum(shown_gb(size) for name, size in storage.items() if name != TEXTS)
    found = (
        f"{weights:.1f} GB of checkpoints and weights, texts of at most {shown_gb(texts):.1f} GB; "
        f"{have / 1e9:.1f} GB free"
    )
    change = "free space, or choose fewer arms, seeds or rounds to run"
    if need > have:
        yield Check("disk", "problem", found, change)
    elif need + texts > have:
        yield Check("disk", "note", found, "free space, if texts come near their limits")
    else:
        yield Check("disk", "ok", found)
