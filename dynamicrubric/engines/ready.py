"""Whether the engines of a study could be opened: looked at before anything is trained.

Nothing is called and no model is loaded: an interpreter that is there, an address that may be used
and a key that is set are what can be known in a moment, and what a night's run fails on.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from dynamicrubric.cells import CellRecipe
from dynamicrubric.engines.access import EndpointConfig, check_access
from dynamicrubric.engines.vllm_process import no_interpreter
from dynamicrubric.enginesettings import (
    GeneratorEngine,
    OpenAI,
    PolicyEngine,
    VerifierEngine,
    Vllm,
    VllmServerVerifier,
)
from dynamicrubric.runtime import RuntimeConfig


def check_ready(recipes: Iterable[CellRecipe], runtime: RuntimeConfig) -> None:
    """Check what the engines of these cells need, in the folder that their steps will run in.

    Raises:
        UserError: no interpreter of vLLM's environment, no key in its variable, or no package.
    """
    wanted: dict[GeneratorEngine | PolicyEngine | VerifierEngine, None] = {}
    for recipe in recipes:
        wanted |= dict.fromkeys(
            (recipe.verifier.engine, recipe.rubrics.engine, recipe.policy_engine)
        )
    for engine in wanted:
        if isinstance(engine, Vllm) and shutil.which(runtime.vllm.python) is None:
            raise no_interpreter("vLLM", runtime.vllm.python, "no such program")
        if isinstance(engine, OpenAI | VllmServerVerifier):
            place = runtime.endpoints[engine.model]  # the config checks that it is there
            check_access(EndpointConfig(**place.model_dump(), model=engine.model))
