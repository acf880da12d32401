"""What would make a step fit into memory, each way with what it would need then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import Final

from dynamicrubric.config import Config, PretrainedConfig
from dynamicrubric.preflight.facts import GIB, Phase
from dynamicrubric.preflight.machine import Device
from dynamicrubric.preflight.work import TRAIN_REWARD

GPU_SHARE: Final = 0.9
"""Of a GPU's memory for tensors; the rest is for the CUDA context and for what the allocator cannot
use. It is the share that vLLM takes unless told otherwise (`gpu_memory_utilization`)."""
Way = tuple[str, Config]


def have_gib(device: Device) -> float:
    """Return the GiB that tensors may have."""
    return device.bytes * (GPU_SHARE if device.is_gpu else 1.0) / GIB


def relief(config: Config, phase: Phase, have: float, need: Callable[[Config], Phase]) -> str:
    """Say what would make a step fit.

    Args:
        config: the settings.
        phase: the step, which does not fit.
        have: GiB to be had.
        need: the same step under other settings.

    Returns:
        Settings that would change it, with what it would need then; what they come to together
        where none of them is enough; and the machine that would do as things are.
    """
    words, together = [], config
    for change, changed in _ways(config, phase):
        after = need(changed).all
        if after < phase.all:
            words.append(f"{change} ({after:.2f} GiB then)")
            together = _both(together, changed)
    least = need(together).all
    if len(words) > 1 and least > have:
        words.append(f"all of these ({least:.2f} GiB)")
    if _float32(config):
        words.append("set backbone.dtype to bfloat16")
    if phase.step.startswith("warm_start"):
        words.append("lower the warm start's batch_size or world.max_shown_letters")
    if phase.step == TRAIN_REWARD:
        words.append("lower recipe.reward_model.batch_size")
    words.append(f"use a GPU of {ceil(phase.one / GPU_SHARE)} GiB or more for each task")
    words.append("shorten texts (max_tokens, world.max_prompt_letters)")
    return "; or ".join(words)


def _ways(config: Config, phase: Phase) -> Iterator[Way]:
    """Yield changes of `runtime`, which move no figure of a study, those that do most first."""
    runtime = config.runtime
    if phase.highest == "forward and backward":
        if not runtime.recompute_activations:
            yield "set runtime.recompute_activations", _with(config, recompute_activations=True)
        whole = phase.step == TRAIN_REWARD or phase.step.startswith("warm_start")
        if not whole and runtime.rows_per_pass != 1:
            yield "set runtime.rows_per_pass to 1", _with(config, rows_per_pass=1)
    if phase.tasks > 1 and runtime.slots > 1:
        yield "lower runtime.slots to 1", _with(config, slots=1)
    if phase.tasks > 1 and runtime.processes > 1:
        yield "lower runtime.processes to 1", _with(config, processes=1)


def _with(config: Config, **changes: object) -> Config:
    return config.model_copy(update={"runtime": config.runtime.model_copy(update=changes)})


def _both(first: Config, second: Config) -> Config:
    """Return the changes of both to `runtime`."""
    defaults = second.runtime.model_dump()
    ours = first.runtime.model_dump()
    changed = {name: value for name, value in defaults.items() if value != ours[name]}
    return _with(first, **{name: getattr(second.runtime, name) for name in changed})


def _float32(config: Config) -> bool:
    return isinstance(config.backbone, PretrainedConfig) and config.backbone.dtype == "float32"
