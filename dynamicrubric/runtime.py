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
    """GPUs, or on a CPU machine the tasks that may run side by side."""
    threads_per_task: Annotated[int, Field(ge=1, le=256)]
    task_deadline_minutes: Annotated[float, Field(gt=0.0, le=100_000.0)]
    """Wall-clock limit of one GPU task, counted from when it holds its slot."""
    checkpoint_every_steps: Steps
    vllm: VllmPlace = VllmPlace()
    """Where the engine `vllm` lives, and how it runs."""
    endpoints: dict[str, EndpointPlace] = Field(default_factory=dict)
    """Address of each model that the engines `openai` and `vllm_server` name, by that name."""
