"""A reward model learns the anchors' order: TRL's RewardTrainer on all pairs of each list.

The loss is Bradley and Terry's, -log sigmoid(r(better) - r(worse)), as in "Training language models
to follow instructions with human feedback" (Ouyang et al., 2022). The model starts from the weights
of a warm start, below a new head with one output; over a pretrained base it is an adapter of its
own, with the head in it. TRL tokenises nothing: what the model reads is rendered in
`engines.reward`.

One process trains it: rows are pairs, and there is no group to keep whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import PreTrainedModel, TrainerControl, TrainerState, TrainingArguments
from trl import RewardConfig, RewardTrainer

from dynamicrubric.engines.identity import check_checkpoint
from dynamicrubric.engines.models import Models, is_adapter, save_checkpoint
from dynamicrubric.engines.reward import HEAD, RewardPrompts, new_classifier, settle_pad
from dynamicrubric.engines.tokenizer import load_tokenizer
from dynamicrubric.errors import UserError
from dynamicrubric.seeds import derive_seed, generator_for
from dynamicrubric.training.checkpoints import CheckpointCallback, resume_point
from dynamicrubric.training.console import quiet_libraries, without_printer
from dynamicrubric.training.rows import row_order
from dynamicrubric.training.steplog import LogCallback, StepLog, check_weights

MAX_WARMUP_STEPS: Final = 10


@dataclass(frozen=True)
class RewardSettings:
    """Numbers of one training.

    Attributes:
        steps: optimiser steps.
        batch_size: pairs in a step.
        learning_rate: the highest; it rises over the first steps (at most 10) and falls to 0.
        seed: of the head, of the order of the pairs, and of the order of the sets they stand in.
        checkpoint_every_steps: a killed training goes on from the last complete checkpoint.
        sees_set: whether the model reads the list that a pair is of.
        recompute_activations: gradient checkpointing.
    """

    steps: int
    batch_size: int
    learning_rate: float
    seed: int
    checkpoint_every_steps: int
    sees_set: bool = False
    recompute_activations: bool = False


class Pair(NamedTuple):
    """Two anchors of one list by their places in it, best first."""

    prompt_id: str
    better: int
    worse: int


def train_reward_model(
    model_dir: Path,
    prompts: Mapping[str, str],
    anchors: Mapping[str, Sequence[str]],
    settings: RewardSettings,
    *,
    out_dir: Path,
    work_dir: Path,
    models: Models,
) -> None:
    """Train a reward model and write checkpoint, training log and lineage to `out_dir`.

    Args:
        model_dir: the warm start that it begins from; an adapter gives its size, not its weights.
        prompts: text by prompt id.
        anchors: ranked texts, best first, by prompt id.
        settings: the numbers.
        out_dir: gets model, tokenizer, `training_log.jsonl` and `rollouts.parquet`: each pair.
        work_dir: checkpoints and live log; survives a kill.
        models: has the base that adapters are over.

    Raises:
        UserError: fewer pairs than a step takes, or a pair longer than the model's context.
        InstrumentError: a loss, gradient or weight that is no number.
    """
    quiet_libraries()
    tokenizer = load_tokenizer(model_dir)
    rows = _ordered_pairs(anchors, settings)
    columns = _columns(rows, prompts, anchors, RewardPrompts(tokenizer), settings)
    model, lora = _start(model_dir, models, settings.seed)
    settle_pad(model, tokenizer)
    _check_lengths(columns, model)
    log = StepLog(work_dir, settings.steps)
    trainer = RewardTrainer(
        model=model,
        args=_config(settings, work_dir / "checkpoints", model.dtype),
        train_dataset=Dataset.from_dict(columns),
        processing_class=tokenizer.hf,
        peft_config=lora,
        callbacks=[_Lineage(log, rows, settings.batch_size), CheckpointCallback(log)],
    )
    without_printer(trainer)
    checkpoint = resume_point(work_dir / "checkpoints", log, settings.steps)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    trained = trainer.accelerator.unwrap_model(trainer.model)
    check_weights(settings.steps, trained)
    save_checkpoint(trained, tokenizer, out_dir)
    log.publish(out_dir)


def pairs_of(anchors: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Return all pairs of all lists; equal texts are no pair.

    >>> pairs_of({"a": ["x", "y", "x"]})
    [Pair(prompt_id='a', better=0, worse=1), Pair(prompt_id='a', better=1, worse=2)]
    """
    return [
        Pair(key, better, worse)
        for key, texts in anchors.items()
        for better, worse in combinations(range(len(texts)), 2)
        if texts[better] != texts[worse]
    ]


def _ordered_pairs(anchors: Mapping[str, Sequence[str]], settings: RewardSettings) -> list[Pair]:
    """Return the pairs of all steps in order, each epoch in an order of its own."""
    pairs = {str(place): pair for place, pair in enumerate(pairs_of(anchors))}
    if len(pairs) < settings.batch_size:
        raise UserError(
            doing="training a reward model",
            got=f"reward_model.batch_size {settings.batch_size} and {len(pairs)} pairs of anchors",
            expected="at least as many pairs as one step takes",
            remedy="lower reward_model.batch_size",
        )
    order = row_order(list(pairs), settings.steps, settings.batch_size, settings.seed)
    return [pairs[key] for key in order]


def _columns(
    rows: Sequence[Pair],
    prompts: Mapping[str, str],
    anchors: Mapping[str, Sequence[str]],
    render: RewardPrompts,
    settings: RewardSettings,
) -> dict[str, list[list[int]]]:
    """Render the pairs; a list is shown in an order drawn for each row, never best first."""
    columns: dict[str, list[list[int]]] = {"chosen_ids": [], "rejected_ids": []}
    for place, pair in enumerate(rows):
        texts, shown = anchors[pair.prompt_id], ()
        if settings.sees_set:
            order = generator_for(settings.seed, "shown", place).permutation(len(texts))
            shown = tuple(texts[index] for index in order)
        for name, index in (("chosen_ids", pair.better), ("rejected_ids", pair.worse)):
            columns[name].append(render.render(prompts[pair.prompt_id], texts[index], shown))
    return columns


def _start(model_dir: Path, models: Models, seed: int) -> tuple[PreTrainedModel, LoraConfig | None]:
    """Return the model below a new head, and the adapter that it gets over a base."""
    torch.manual_seed(derive_seed(seed, "head"))
    if not is_adapter(model_dir):
        check_checkpoint(model_dir)
        return new_classifier(model_dir, torch.float32), None
    model = new_classifier(models.base_folder, getattr(torch, models.dtype))
    like = LoraConfig.from_pretrained(str(model_dir))
    lora = LoraConfig(
        r=like.r,
        lora_alpha=like.lora_alpha,
        lora_dropout=like.lora_dropout,
        target_modules=like.target_modules,
        bias="none",
        task_type="SEQ_CLS",
        modules_to_save=[HEAD],
    )
    return model, lora


def _check_lengths(columns: Mapping[str, Sequence[Sequence[int]]], model: PreTrainedModel) -> None:
    context = int(model.config.get_text_config().max_position_embeddings)
    longest = max(len(row) for rows in columns.values() for row in rows)
    if longest > context:
        raise UserError(
            doing="training a reward model",
            got=f"an anchor of {longest} tokens, prompt and all that it is shown with",
            expected=f"at most the model's context of {context}",
            remedy="leave long anchors out, or take a model with a longer context",
        )


def _config(settings: RewardSettings, checkpoint_dir: Path, dtype: torch.dtype) -> RewardConfig:
    has_gpu = torch.cuda.is_available()
    return RewardConfig(
        output_dir=str(checkpoint_dir),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=min(MAX_WARMUP_STEPS, settings.steps // 5),
        weight_decay=0.0,
        max_length=None,
        train_sampling_strategy="sequential",  # the rows come in order
        seed=settings.seed % 2**31,
        use_cpu=not has_gpu,
        bf16=has_gpu and dtype == torch.bfloat16,
        gradient_checkpointing=settings.recompute_activations,
        logging_steps=1,
        logging_nan_inf_filter=False,  # it would log a loss that is no number as 0
        save_strategy="steps",
        save_steps=settings.checkpoint_every_steps,
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


class _Lineage(LogCallback):
    """Writes the step log, and which pairs a step read."""

    def __init__(self, log: StepLog, rows: Sequence[Pair], batch_size: int) -> None:
        super().__init__(log)
        self._pairs = log
        self._rows = rows
        self._batch_size = batch_size

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,  # noqa: ANN401 - transformers' signature
    ) -> None:
        """Keep a step's pairs beside its figures."""
        super().on_log(args, state, control, logs, **kwargs)
        if "train_runtime" in (logs or {}):
            return
        step, size = state.global_step, self._batch_size
        pairs = self._rows[(step - 1) * size : step * size]
        self._pairs.keep_rollouts(step, [{"step": step, **pair._asdict()} for pair in pairs])
