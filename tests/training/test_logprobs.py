"""TRL's log-probabilities of completions are the same whichever positions it scores."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from trl.trainer import utils

from dynamicrubric.training.logprobs import completions_only


def small_model() -> LlamaForCausalLM:
    """Return a model as GRPOTrainer scores with it."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    utils.add_fused_lm_head(model)
    return model


def score(model: LlamaForCausalLM) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probabilities of a left-padded batch's last 4 tokens, and a gradient."""
    ids = torch.randint(3, 64, (5, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-4] = -100
    model.zero_grad()
    output = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    output.log_probs.square().sum().backward()
    gradient = model.get_input_embeddings().weight.grad
    assert gradient is not None
    return output.log_probs[:, -4:].detach(), gradient.clone()


def test_completions_only_gives_the_log_probabilities_and_gradients_of_all_positions():
    model = small_model()
    everywhere = score(model)
    with completions_only():
        alone = score(model)
    assert (everywhere[0] < 0).all()
    for one, other in zip(everywhere, alone, strict=True):
        torch.testing.assert_close(one, other)


def test_completions_only_scores_no_other_position(monkeypatch: pytest.MonkeyPatch):
    rows: list[int] = []
    scoring = utils._ChunkedLogProbFunction

    class Counted:
        @staticmethod
        def apply(hidden: torch.Tensor, *rest: object) -> object:
            rows.append(len(hidden))
            return scoring.apply(hidden, *rest)

    monkeypatch.setattr(utils, "_ChunkedLogProbFunction", Counted)
    model = small_model()
    score(model)
    with completions_only():
        score(model)
    assert rows == [5 * 11, 5 * 4]
