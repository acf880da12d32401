"""The data sets that are known by name: where the hub has them, and the shape of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dynamicrubric.errors import UserError


@dataclass(frozen=True)
class Known:
    """A published data set.

    Attributes:
        repository: owner/name on the hub; "" for one that is a file of its repository alone.
        shape: how its rows are read (`shapes.SHAPES`).
        parts: (configuration, split) of what is read, one after another; "" is the default
            configuration. Of several, each is a subset where rows name none.
        where: where else it is, for the message where the hub has none.
    """

    repository: str
    shape: str
    parts: tuple[tuple[str, str], ...] = (("", "train"),)
    where: str = ""


_LLMBAR: Final = (
    "Natural", "Adversarial_Neighbor", "Adversarial_GPTInst", "Adversarial_GPTOut",
    "Adversarial_Manual",
)  # fmt: skip
_HHH: Final = ("harmless", "helpful", "honest", "other")
_PREFERENCES: Final = (("", "test_prefs"),)
CATALOG: Final[dict[str, Known]] = {
    "llmbar": Known("princeton-nlp/LLMBar", "llmbar", tuple(("LLMBar", one) for one in _LLMBAR)),
    "autoj": Known("", "autoj", where="GAIR-NLP/auto-j on GitHub, data/test"),
    "pandalm": Known("WeOpenML/PandaLM_Testset", "pandalm"),
    "mt_bench_human": Known("lmsys/mt_bench_human_judgments", "mt_bench_human", (("", "human"),)),
    "hhh": Known("HuggingFaceH4/hhh_alignment", "hhh", tuple((one, "test") for one in _HHH)),
    "rm_bench": Known("THU-KEG/RM-Bench", "chosen_rejected"),
    "judgebench": Known("ScalerLab/JudgeBench", "judgebench", (("", "gpt"), ("", "claude"))),
    "rewardbench": Known("allenai/reward-bench", "chosen_rejected", (("", "filtered"),)),
    "rewardbench2": Known("allenai/reward-bench-2", "chosen_rejected", (("", "test"),)),
    "ppe": Known("lmarena-ai/PPE-Human-Preference-V1", "ppe_human", (("", "test"),)),
    "ultrafeedback": Known("HuggingFaceH4/ultrafeedback_binarized", "messages", _PREFERENCES),
    "personalized_rewardbench": Known(
        "QiyaoMa/Personalized-RewardBench", "chosen_rejected", (("", "test"),)
    ),
}
"""Published evaluator benchmarks by the name that settings give them."""


def known(name: str) -> Known:
    """Return a published data set.

    Raises:
        UserError: there is none of that name.
    """
    if name in CATALOG:
        return CATALOG[name]
    raise UserError(
        doing=f"reading the data set {name}",
        got="a name without a path",
        expected=f"a path to a file of yours, or one of {', '.join(CATALOG)}",
    )
