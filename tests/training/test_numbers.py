"""A training whose numbers are none stops with a remedy and leaves nothing that could be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from trl import GRPOTrainer, SFTTrainer

from dynamicrubric import steps
from dynamicrubric.errors import InstrumentError
from dynamicrubric.training import grpo, sft

Change = Callable[[torch.Tensor, torch.nn.Module], torch.Tensor]


def spoilt(trainer: type, step: int, change: Change) -> type:
    """Return a trainer whose loss is changed in one step."""

    class Spoilt(trainer):
        def compute_loss(self, model: Any, *rest: Any, **named: Any) -> Any:
            loss = super().compute_loss(model, *rest, **named)
            return change(loss, model) if self.state.global_step + 1 == step else loss

    return Spoilt


def no_number(loss: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
    return loss * torch.nan


def steep(loss: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
    """Add nought, with a gradient that is infinite there."""
    weight = next(model.parameters()).reshape(-1)[0]
    return loss + (weight - weight.detach()).sqrt()


def kept(where: Path) -> list[str]:
    """Return the checkpoints that a resumption would take."""
    found = (where / "work" / "checkpoints").glob("checkpoint-*/complete.json")
    return sorted(path.parent.name for path in found)


@pytest.mark.parametrize(
    ("change", "words"),
    [(no_number, "the loss at step 2 is nan"), (steep, "the gradient norm at step 2 is (inf|nan)")],
)
@pytest.mark.parametrize("role", ["policy", "generator"])
def test_figure_that_is_no_number_stops_the_training_at_its_step(
    tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, change: Change, words: str
) -> None:
    monkeypatch.setattr(grpo, "GRPOTrainer", spoilt(GRPOTrainer, 2, change))
    train = tiny.train_policy if role == "policy" else tiny.train_generator
    with pytest.raises(InstrumentError, match=f"{words}; lower the learning rate"):
        train(tmp_path, every=1)
    assert kept(tmp_path) == ["checkpoint-1"]
    assert not list((tmp_path / "out").iterdir())


def test_weights_blown_up_by_a_step_are_no_checkpoint_to_go_on_from(
    tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and gradient of the step that blows them up are finite; there is no later one."""
    whole = grpo._grpo_config

    def far_too_fast(*settings: Any) -> Any:
        config = whole(*settings)
        config.learning_rate = 1e39
        return config

    monkeypatch.setattr(grpo, "_grpo_config", far_too_fast)
    with pytest.raises(InstrumentError, match="after step 1 are not all finite"):
        tiny.train_policy(tmp_path, every=1, policy_training={"steps": 1})
    assert (tmp_path / "work" / "checkpoints" / "checkpoint-1").is_dir()
    assert kept(tmp_path) == []
    assert not list((tmp_path / "out").iterdir())


def test_finished_checkpoint_with_weights_that_are_no_numbers_is_not_published(
    tiny, tmp_path: Path
) -> None:
    tiny.train_policy(tmp_path, policy_training={"steps": 1})
    weights = tmp_path / "work" / "checkpoints" / "checkpoint-1" / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.norm.weight"][0] = torch.inf
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(InstrumentError, match=r"model\.norm\.weight after step 1"):
        tiny.train_policy(tmp_path, policy_training={"steps": 1})
    assert not list((tmp_path / "out").iterdir())


# Logged every ten steps: step 7 is in the first line, step 12 of 12 in none.
@pytest.mark.parametrize(
    ("step", "words"), [(7, "the loss at step 10 is nan"), (12, "after step 12 are not all finite")]
)
def test_warm_start_whose_numbers_are_none_stops(
    tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, words: str
) -> None:
    monkeypatch.setattr(sft, "SFTTrainer", spoilt(SFTTrainer, step, no_number))
    (tmp_path / "out").mkdir()
    with pytest.raises(InstrumentError, match=words):
        steps.warm_start(
            role="policy",
            prepared_dir=str(tiny.prepared),
            backbone={"hidden_size": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 1024},
            settings={"steps": 12, "batch_size": 2, "learning_rate": 1e-3},
            seed=1,
            out_dir=str(tmp_path / "out"),
            work_dir=str(tmp_path / "work"),
        )
    assert not list((tmp_path / "out").iterdir())
