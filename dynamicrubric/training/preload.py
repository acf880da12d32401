"""What a fork host imports once, so that no GPU task pays for it again."""

from __future__ import annotations

import datasets  # noqa: F401 - loaded for the forked children
import pandas  # noqa: F401 - loaded for the forked children
import pydantic  # noqa: F401 - loaded for the forked children
import ruamel.yaml  # noqa: F401 - loaded for the forked children
import torch  # noqa: F401 - loaded for the forked children
import transformers.models.llama.modeling_llama  # noqa: F401 - loaded for the forked children
from transformers.conversion_mapping import get_checkpoint_conversion_mapping
from trl import GRPOTrainer, SFTTrainer  # noqa: F401 - loaded for the forked children

# transformers builds this table of a thousand patterns when a process loads its first model (2 s).
get_checkpoint_conversion_mapping("llama")
