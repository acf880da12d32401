"""Which engine serves a role: what of it can change a figure, and so is part of a cell's identity.

The kind of engine, its number format, the longest prompt that it takes, how a verdict is asked for
and the name of a model that is not ours: arms may differ in them (a study of verifiers does), and
cells that do are different cells. Where an engine runs and what it costs is in `runtime`: a server
that has moved, more calls at a time, another price or another interpreter give the same figures to
rounding, and throw nothing away. What such an address stands for is checked where it can be: by the
hash of a checkpoint, or a probe of a server's weights. Of somebody else's model the name is all
there is, and a step records beside it which host answered.

The role that a step trains samples with the trainer's own model, whatever engine is chosen here:
its weights change with each optimiser step.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from dynamicrubric.settings import Section

Dtype = Literal["float32", "bfloat16", "float16"]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class InProcess(Section):
    """The backbone in the step's own process, in the backbone's number format."""

    kind: Literal["transformers"] = "transformers"


class Vllm(Section):
    """The backbone in vLLM, a child process of the step; a role's adapter goes in as it is."""

    kind: Literal["vllm"]
    dtype: Dtype = "bfloat16"
    """Number format of weights and activations."""
    max_model_len: Annotated[int, Field(ge=16)] = 4096
    """Longest prompt and completion together, in tokens; what is longer is unscored."""


class OpenAI(Section):
    """A model that somebody serves: an OpenAI-compatible chat endpoint."""

    kind: Literal["openai"]
    model: ModelName
    """Its name there; `runtime.endpoints` has its address under this name."""


class OwnFrame(Section):
    """A verifier whose chat frame is ours."""

    enable_thinking: bool | None = None
    """Variable of the chat template, for models that can leave their thinking out."""


class InProcessVerifier(OwnFrame, InProcess):
    """The backbone's base, packed (`engines.verifier`)."""


class VllmVerifier(OwnFrame, Vllm):
    """The backbone's base in vLLM."""

    max_verdict_tokens: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Limit of a verdict's reply: 1 looks at the first token; thousands for a model that thinks."""


class VllmServerVerifier(OwnFrame):
    """The backbone's base in a `vllm serve` that runs elsewhere; a probe has to show that."""

    kind: Literal["vllm_server"]
    model: ModelName
    """Its --served-model-name; `runtime.endpoints` has its address under this name."""
    dtype: Dtype = "bfloat16"
    """The server's --dtype: how far its answer to the probe may be off."""
    max_verdict_tokens: Annotated[int, Field(ge=1, le=65_536)] = 1
    """As in vllm."""


class OpenAIVerifier(OpenAI):
    """Somebody else's model as the verifier."""

    top_logprobs: Annotated[int, Field(ge=0, le=20)] = 20
    """Alternatives asked for in each place; 0 reads verdicts off the text."""
    max_verdict_tokens: Annotated[int, Field(ge=1, le=65_536)] = 8
    """Limit of a verdict's reply: thousands for a model that thinks."""


VerifierEngine = Annotated[
    InProcessVerifier | VllmVerifier | VllmServerVerifier | OpenAIVerifier,
    Field(discriminator="kind"),
]
GeneratorEngine = Annotated[InProcess | Vllm | OpenAI, Field(discriminator="kind")]
PolicyEngine = Annotated[InProcess | Vllm, Field(discriminator="kind")]
IN_PROCESS: Final = InProcess()
IN_PROCESS_VERIFIER: Final = InProcessVerifier()
MAX_LORA_RANK: Final = 512
"""Largest rank of an adapter that vLLM takes."""
