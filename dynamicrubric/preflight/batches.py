"""How steps divide into passes, epochs into steps, and tasks among GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Final

from dynamicrubric.config import Config, RecipeConfig, RuntimeConfig
from dynamicrubric.preflight.facts import Check, of_arms
from dynamicrubric.preflight.machine import Device
from dynamicrubric.preflight.work import num_prompts

SHARED_STEPS: Final = ("train_generator", "train_policy")
"""The steps that `runtime.processes` share; all others are one process."""


def batch_checks(
    config: Config, recipes: Mapping[str, RecipeConfig], device: Device
) -> Iterator[Check]:
    """Yield what batches and tasks divide into, arm by arm where arms differ."""
    yield from of_arms({arm: list(_steps(config, recipe)) for arm, recipe in recipes.items()})
    yield from _gpus(config.runtime, device)


def tasks_on_one(runtime: RuntimeConfig, device: Device, step: str) -> int:
    """Return how many processes of a step may have one GPU, or the whole machine, at a time.

    On GPUs a slot is a set of `runtime.processes`, and slots in excess of the sets share them.
    """
    if device.is_gpu:
        return ceil(runtime.slots / max(1, device.num_gpus // runtime.processes))
    return runtime.slots * (runtime.processes if step in SHARED_STEPS else 1)


def _steps(config: Config, recipe: RecipeConfig) -> Iterator[Check]:
    rows, processes = config.runtime.rows_per_pass, config.runtime.processes
    for role, section, group in (
        ("generator", recipe.generator, recipe.generator.group_size),
        ("policy", recipe.policy, recipe.responses_per_set),
    ):
        own = section.batch_size // processes
        a_pass = min(rows or own, own)
        yield Check(
            "batches",
            "ok",
            f"{role}: {section.prompts_per_step} groups x {group} = {section.batch_size} "
            f"completions a step; {processes} x {own // a_pass} passes of {a_pass} "
            "(processes x passes)",
        )
        left = num_prompts(config)[0] % section.prompts_per_step
        if left:
            yield Check(
                "batches",
                "note",
                f"{role}: {num_prompts(config)[0]} training prompts are no whole number of steps "
                f"of {section.prompts_per_step}: {left} sit out each epoch, others each time",
            )


def _gpus(runtime: RuntimeConfig, device: Device) -> Iterator[Check]:
    """Compare slots, sets of `processes` GPUs each, with the GPUs."""
    if not device.is_gpu:
        return
    gpus, processes, slots = device.num_gpus, runtime.processes, runtime.slots
    sets = gpus // processes
    if not sets:
        yield Check(
            "batches",
            "problem",
            f"runtime.processes is {processes} with {gpus} GPUs; each process needs one",
            "lower runtime.processes, or show more GPUs in CUDA_VISIBLE_DEVICES",
        )
        return
    asked = f"{slots} slots (runtime.slots) of {processes} GPUs (runtime.processes), {gpus} GPUs"
    if slots > sets:
        yield Check("batches", "note", f"{asked}: {ceil(slots / sets)} tasks share a GPU")
    idle = gpus - min(slots, sets) * processes
    if idle:
        yield Check(
            "batches",
            "note",
            f"{asked}: {idle} idle",
            "raise runtime.processes, or runtime.slots if the plan has arms side by side",
        )
