"""Which files of an artefact go to the hub, and which of a checkpoint come from it.

Named one by one: nothing with pickles in it, no log, no optimizer's state and no lineage can slip
through a pattern that was written for something else.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

CARD: Final = "README.md"
ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
MODEL_FILES: Final = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model-?????-of-?????.safetensors",
    "model.safetensors.index.json",
)
TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
PUSHED: Final = (*MODEL_FILES, *TOKENIZER_FILES, ADAPTER_CONFIG, ADAPTER_WEIGHTS)
"""Of a policy or a generator."""
BASE_FILES: Final = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    *TOKENIZER_FILES,
    "LICENSE*",
)
"""Of a base that is loaded."""


def is_pushed(name: str) -> bool:
    """Say whether a file of a policy's or generator's artefact goes to the hub.

    >>> is_pushed("model-00001-of-00002.safetensors"), is_pushed("optimizer.safetensors")
    (True, False)
    """
    return any(fnmatchcase(name, pattern) for pattern in PUSHED)
