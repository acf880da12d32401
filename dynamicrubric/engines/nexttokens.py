"""Probabilities of the next token from a model in this process, for judges that rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from dynamicrubric.engines.packing import Group, plan_batches
from dynamicrubric.engines.transformers import last_logits
from dynamicrubric.engines.verifier import CPU_BUDGET, Budget
from dynamicrubric.verdicts import UnscoredReason


@dataclass(frozen=True)
class ModelNextTokens:
    """Asks a causal language model (an `engines.rating.NextTokens`).

    Attributes:
        model: in evaluation mode.
        pad_id: id that pads rows.
        budget: tokens that run at once.
    """

    model: PreTrainedModel
    pad_id: int
    budget: Budget = CPU_BUDGET

    @property
    def max_tokens(self) -> int:
        """Longest prompt that the model reads."""
        return int(self.model.config.get_text_config().max_position_embeddings)

    def next_probabilities(
        self, prompts: Sequence[Sequence[int]], ids: Sequence[int]
    ) -> list[Mapping[int, float] | str]:
        """Return the probability of each id behind each prompt; "too_long" beyond the context."""
        found: list[Mapping[int, float] | str] = [str(UnscoredReason.TOO_LONG)] * len(prompts)
        fitting = [place for place, prompt in enumerate(prompts) if len(prompt) <= self.max_tokens]
        groups = [Group(prompts[place][:-1], [prompts[place][-1:]]) for place in fitting]
        columns = list(ids)
        for batch in plan_batches(groups, budget=self.budget.tokens):
            logits = last_logits(self.model, batch.rows, self.pad_id).double()
            shares = (logits - logits.logsumexp(dim=-1, keepdim=True))[:, columns].exp().tolist()
            for (group, _), row in zip(batch.keys, shares, strict=True):
                found[fitting[group]] = dict(zip(columns, row, strict=True))
        return found
