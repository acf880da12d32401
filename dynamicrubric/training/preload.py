"""What a fork host imports once, so that no GPU task pays for it again. Imports only."""

from __future__ import annotations

import datasets  # noqa: F401 - loaded for the forked children
import pandas  # noqa: F401 - loaded for the forked children
import pydantic  # noqa: F401 - loaded for the forked children
import ruamel.yaml  # noqa: F401 - loaded for the forked children
import torch  # noqa: F401 - loaded for the forked children
import transformers.models.llama.modeling_llama  # noqa: F401 - loaded for the forked children
from trl import GRPOTrainer, SFTTrainer  # noqa: F401 - loaded for the forked children
