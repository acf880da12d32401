"""Warm starts: random small Llama models become P_0 and G_0 with TRL's SFTTrainer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from transformers import (
    LlamaForCausalLM,
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import SFTConfig, SFTTrainer

from dynamicrubric.config import BackboneConfig, SupervisedConfig
from dynamicrubric.durable import sync
from dynamicrubric.engines.base import PromptTokenizer
from dynamicrubric.engines.models import save_checkpoint
from dynamicrubric.engines.smallmodel import small_config
from dynamicrubric.engines.tokenizer import FrameTokenizer
from dynamicrubric.training.console import progress_line, quiet_libraries, without_printer
from dynamicrubric.training.steplog import check_step, check_weights
from dynamicrubric.worlds.prepared import read_jsonl

Example = tuple[list[int], list[int]]


def new_backbone(
    backbone: BackboneConfig, tokenizer: FrameTokenizer, examples: Sequence[Example], seed: int
) -> LlamaForCausalLM:
    """Return a randomly initialised Llama in float32 with tied embeddings, for such examples."""
    torch.manual_seed(seed)
    longest = max(len(prompt) + len(completion) for prompt, completion in examples)
    return LlamaForCausalLM(
        small_config(
            backbone,
            vocab_size=len(tokenizer.hf),
            longest=longest,
            bos_id=tokenizer.hf.bos_token_id,
            eos_id=tokenizer.eos_id,
            pad_id=tokenizer.pad_id,
        )
    )


def policy_examples(prepared: Path, tokenizer: PromptTokenizer) -> list[Example]:
    """Return (prompt ids, completion ids) of the policy's warm start."""
    return [
        (
            tokenizer.policy_prompt(row["prompt"]),
            [*tokenizer.content(row["response"]), tokenizer.eos_id],
        )
        for row in read_jsonl(prepared / "sft_policy.jsonl")
    ]


def generator_examples(prepared: Path, tokenizer: PromptTokenizer) -> list[Example]:
    """Return (prompt ids, completion ids) of the generator's warm start."""
    return [
        (
            tokenizer.generator_prompt(row["prompt"], row["responses"]),
            [*tokenizer.content(row["rubric"]), tokenizer.eos_id],
        )
        for row in read_jsonl(prepared / "sft_generator.jsonl")
    ]


def train_supervised(
    examples: Sequence[Example],
    model: PreTrainedModel | PeftModel,
    settings: SupervisedConfig,
    tokenizer: PromptTokenizer,
    *,
    seed: int,
    out_dir: Path,
    work_dir: Path,
    recompute_activations: bool = False,
) -> None:
    """Train a new model on completions (the prompt carries no loss) and save it to `out_dir`.

    Without steps the model is saved as it is.

    Raises:
        InstrumentError: a loss, gradient or weight that is no number.
    """
    quiet_libraries()
    if not settings.steps:
        save_checkpoint(model, tokenizer, out_dir)
        return
    columns = {
        "input_ids": [prompt + completion for prompt, completion in examples],
        "labels": [[-100] * len(prompt) + completion for prompt, completion in examples],
    }
    work_dir.mkdir(parents=True, exist_ok=True)
    log = work_dir / "metrics.jsonl"
    log.write_text("", encoding="utf-8")
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=str(work_dir / "checkpoints"),
            max_steps=settings.steps,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=min(20, settings.steps // 10),
            weight_decay=0.0,
            seed=seed % 2**31,
            use_cpu=not torch.cuda.is_available(),
            bf16=False,
            gradient_checkpointing=recompute_activations,
            max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True},
            train_sampling_strategy="group_by_length",
            save_strategy="no",
            logging_steps=10,
            logging_nan_inf_filter=False,  # it would log a loss that is no number as 0
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=Dataset.from_dict(columns),
        processing_class=tokenizer.hf,
        callbacks=[_ProgressCallback(log)],
    )
    without_printer(trainer)
    trainer.train()
    check_weights(settings.steps, model)
    sync(log)
    save_checkpoint(model, tokenizer, out_dir)
    (out_dir / "training_log.jsonl").write_bytes(log.read_bytes())


class _ProgressCallback(TrainerCallback):
    """Writes the live log."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,  # noqa: ANN401 - transformers' signature
    ) -> None:
        """Append loss and gradient norm, no wall times."""
        kept = {n: float(v) for n, v in (logs or {}).items() if n in ("loss", "grad_norm")}
        if not kept:
            return
        line = {"step": state.global_step, "total": state.max_steps, "metrics": kept}
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        shown = progress_line(state.global_step, state.max_steps, kept)
        if shown:
            print(shown, flush=True)
        check_step(state.global_step, kept)
