"""Where and how fast: the section of the config that is never part of any identity."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from dynamicrubric.engines.access import EndpointPlace
from dynamicrubric.engines.vllm_process import VllmPlace
from dynamicrubric.settings import Grown, Steps


class RuntimeConfig(Grown):
    """Where and how fast."""

    later: ClassVar = frozenset({"vllm", "endpoints"})

    slots: Annotated[int, Field(ge=1, le=64)]
    """GPUs, or on a CPU machine the tasks that may run side by side; with several `processes`, as
    many sets of GPUs."""
    threads_per_task: Annotated[int, Field(ge=1, le=256)]
    """Processor threads of a task, or of each of its processes."""
    task_deadline_minutes: Annotated[float, Field(gt=0.0, le=100_000.0)]
    """Wall-clock limit of one GPU task, counted from when it holds its slot."""
    checkpoint_every_steps: Steps
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes of a GRPO training, each with a GPU of its own if there are any (`accelerate
    launch`). They share a step's groups, so prompts_per_step has to be a multiple of it."""
    rows_per_pass: Annotated[int, Field(ge=0, le=65_536)] = 0
    """Completions that each process takes through the model at once while it trains; fewer need
    less memory. 0 takes all of a step; a smaller number has to divide them. The logged entropy and
    KL are then means of passes, long or short."""
    recompute_activations: bool = False
    """Keep each layer's input alone for the backward pass and compute the rest again (gradient
    checkpointing): a third more work for a fraction of the memory."""
    vllm: VllmPlace = VllmPlace()
    """Where the engine `vllm` lives, and how it runs."""
    endpoints: dict[str, EndpointPlace] = Field(default_factory=dict)
    """Address of each model that the engines `openai` and `vllm_server` name, by that name."""
