"""GRPO with TRL's GRPOTrainer, composed and not subclassed; shared by generator and policy.

Departures from the paper, from TRL's defaults that we keep:
- Loss type `dapo`: token losses are averaged over the batch, not over each sequence first.
- With several rewards `normalize_then_sum` normalises each reward in its group, adds them with
  their weights, and normalises the sum once more over the batch.
- The reference of the KL term is the model that the round started from.

Rollouts are ours (`rollout_func`): prompts are token ids, every completion has its own seed, each
group stays whole on one process, and every row is kept for lineage. Several processes share the
groups of a step; the first alone writes (`training.processes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from dynamicrubric.engines.base import PromptTokenizer
from dynamicrubric.engines.identity import check_checkpoint
from dynamicrubric.engines.models import Models, is_adapter, save_checkpoint
from dynamicrubric.engines.tokenizer import load_tokenizer
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.errors import InstrumentError
from dynamicrubric.rewards import zero_std_rate
from dynamicrubric.training import processes
from dynamicrubric.training.checkpoints import CheckpointCallback, resume_point
from dynamicrubric.training.console import quiet_libraries, without_printer
from dynamicrubric.training.logprobs import completions_only
from dynamicrubric.training.rollout import Rollout, RolloutBatch
from dynamicrubric.training.rows import groups_per_process, row_order, whole_groups
from dynamicrubric.training.snapshots import SnapshotCallback
from dynamicrubric.training.steplog import LogCallback, StepLog, check_weights

MAX_WARMUP_STEPS: Final = 10
"""Adam's first steps move every weight by the whole learning rate: without a warm-up a round could
begin by breaking the rubrics that the rounds before had taught."""


@dataclass(frozen=True)
class GrpoSettings:
    """Numbers of one GRPO training.

    Attributes:
        steps: optimiser steps.
        prompts_per_step: groups in a step.
        group_size: completions in a group.
        learning_rate: the highest; it rises over the first steps (at most 10) and falls to 0.
        kl_beta: weight of the KL to the model that the round started from.
        temperature: of sampling, and of the log-probabilities that are trained.
        max_tokens: longest completion.
        reward_weights: weight of each reward by name, applied to advantages.
        seed: of the order of the rows.
        checkpoint_every_steps: a killed training goes on from the last complete checkpoint.
        rows_per_pass: most completions that a process takes through the model at once in training;
            0 takes all of its step. Fewer need less memory; their gradients are added.
        recompute_activations: gradient checkpointing: a third more work, a fraction of the memory.
        cuts_count: completions that are cut at max_tokens are rewarded like others, so that a step
            of nothing else is no sign of a training that comes to nothing.
        snapshot_every_steps: the weights are kept so often while they are trained; 0: never. They
            are for measurement (`snapshots.py`) and change nothing that is trained.
    """

    steps: int
    prompts_per_step: int
    group_size: int
    learning_rate: float
    kl_beta: float
    temperature: float
    max_tokens: int
    reward_weights: Mapping[str, float]
    seed: int
    checkpoint_every_steps: int
    rows_per_pass: int = 0
    recompute_activations: bool = False
    cuts_count: bool = False
    snapshot_every_steps: int = 0


def train_grpo(
    model_dir: Path,
    row_keys: Sequence[str],
    rollout: Rollout,
    settings: GrpoSettings,
    *,
    out_dir: Path,
    work_dir: Path,
    models: Models | None = None,
) -> None:
    """Train a model and write checkpoint, training log and lineage to `out_dir`.

    Args:
        model_dir: checkpoint to start from; also the KL reference.
        row_keys: one key for each row of training data; the rollout knows what they mean.
        rollout: samples and rewards.
        settings: the numbers.
        out_dir: gets model, tokenizer, `training_log.jsonl` and `rollouts.parquet`.
        work_dir: checkpoints and live log; survives a kill.
        models: loads an adapter over the base that the step's other roles use; only the adapter is
            trained, and TRL keeps a copy of it as the reference.

    Raises:
        UserError: the groups of a step cannot be shared whole among the processes.
        InstrumentError: a rate above its limit, or a loss, gradient or weight that is no number.
    """
    quiet_libraries()
    tokenizer = load_tokenizer(model_dir)
    adapter = models is not None and is_adapter(model_dir)
    if not adapter:
        check_checkpoint(model_dir)  # TRL loads it by its path
    base = models.base().dtype if models and adapter else None
    config = _grpo_config(settings, work_dir / "checkpoints", base)
    log = StepLog(work_dir, settings.steps)
    order = row_order(row_keys, settings.steps, settings.prompts_per_step, settings.seed)
    trainer = GRPOTrainer(
        model=models.load(model_dir, trainable=True) if models and adapter else str(model_dir),
        reward_funcs=[_reward_function(name) for name in settings.reward_weights],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": order}),
        processing_class=tokenizer.hf,
        rollout_func=_rollout_function(rollout, tokenizer, settings, log),
        callbacks=[
            LogCallback(log, cuts_count=settings.cuts_count),
            CheckpointCallback(log),
            SnapshotCallback(tokenizer, work_dir, settings.snapshot_every_steps),
        ],
    )
    without_printer(trainer)
    checkpoint = resume_point(work_dir / "checkpoints", log, settings.steps)
    with completions_only():
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    model = trainer.accelerator.unwrap_model(trainer.model)
    check_weights(settings.steps, model)
    if processes.is_first():
        save_checkpoint(model, tokenizer, out_dir)
        log.publish(out_dir)
    processes.wait_for_all()


def _grpo_config(
    settings: GrpoSettings, checkpoint_dir: Path, base: torch.dtype | None
) -> GRPOConfig:
    """Return TRL's settings.

    On a GPU an adapter over a bfloat16 base computes in bfloat16 too; its weights stay float32.

    Args:
        settings: ours.
        checkpoint_dir: where checkpoints go.
        base: number format of the base under an adapter; None trains a whole model.
    """
    rows = settings.group_size * groups_per_process(
        settings.prompts_per_step, processes.num_processes()
    )
    rows_per_pass = min(rows, settings.rows_per_pass or rows)
    assert rows % rows_per_pass == 0, "the config refuses passes of unequal size"
    has_gpu = torch.cuda.is_available()
    return GRPOConfig(
        output_dir=str(checkpoint_dir),
        max_steps=settings.steps,
        per_device_train_batch_size=rows_per_pass,
        gradient_accumulation_steps=rows // rows_per_pass,
        num_generations=settings.group_size,
        max_completion_length=settings.max_tokens,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=min(MAX_WARMUP_STEPS, settings.steps // 5),
        beta=settings.kl_beta,
        temperature=settings.temperature,
        loss_type="dapo",
        reward_weights=list(settings.reward_weights.values()),
        multi_objective_aggregation=(
            "normalize_then_sum" if len(settings.reward_weights) > 1 else "sum_then_normalize"
        ),
        seed=settings.seed % 2**31,
        shuffle_dataset=False,  # the rows come in order
        model_init_kwargs={"dtype": "float32"} if base is None else None,
        use_cpu=not has_gpu,
        bf16=has_gpu and base == torch.bfloat16,
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


def _rollout_function(
    rollout: Rollout, tokenizer: PromptTokenizer, settings: GrpoSettings, log: StepLog
) -> Callable[[list[str], GRPOTrainer], dict[str, Any]]:
    """Adapt a role's rollout to TRL's `rollout_func`; rewards travel as extra fields."""

    def roll_out(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        groups = whole_groups(prompts, settings.group_size)
        model = trainer.accelerator.unwrap_model(trainer.model)
        step = trainer.state.global_step + 1
        training = model.training
        batch = rollout(groups, TransformersEngine(model.eval(), tokenizer), step)
        model.train(training)
        _check_lengths(batch, len(prompts))
        lineage = batch.lineage_with_advantages(groups, settings.reward_weights)
        _keep_lineage(log, step, [group.key for group in groups], lineage, settings)
        return {
            "prompt_ids": batch.prompt_ids,
            "completion_ids": batch.completion_ids,
            "logprobs": None,
            **batch.rewards,
            "step_metrics": {**batch.metrics, "zero_std_rate": _zero_std_rate(batch, settings)},
        }

    return roll_out


def _keep_lineage(
    log: StepLog,
    step: int,
    keys: Sequence[str],
    lineage: Sequence[Mapping[str, Any]],
    settings: GrpoSettings,
) -> None:
    """Keep the rows of all processes, which hand them to the first.

    Raises:
        InstrumentError: a group is missing, or on two processes.
    """
    keys, rows = processes.gathered(keys), processes.gathered(lineage)
    if len(set(keys)) != settings.prompts_per_step or len(keys) != settings.prompts_per_step:
        raise InstrumentError(
            f"step {step} has {settings.prompts_per_step} groups, but its "
            f"{processes.num_processes()} processes rolled out {sorted(keys)}"
        )
    assert len(rows) == len(keys) * settings.group_size, "one row of lineage for each completion"
    if processes.is_first():
        log.keep_rollouts(step, rows)


def _zero_std_rate(batch: RolloutBatch, settings: GrpoSettings) -> float:
    weighted = [
        processes.gathered(batch.rewards[name])
        for name, weight in settings.reward_weights.items()
        if weight
    ]
    return zero_std_rate(weighted, settings.group_size)


def _check_lengths(batch: RolloutBatch, expected: int) -> None:
    lengths = {
        "prompt_ids": len(batch.prompt_ids),
        "completion_ids": len(batch.completion_ids),
        "lineage": len(batch.lineage),
        **{name: len(values) for name, values in batch.rewards.items()},
    }
    assert all(n == expected for n in lengths.values()), f"{lengths}, expected {expected} of each"


def _reward_function(name: str) -> Callable[..., list[float | None]]:
    """Make a TRL reward function that hands on the rewards the rollout computed.

    It accepts strings and message lists alike, since it reads neither.
    """

    def reward(
        completions: Sequence[object],
        log_metric: Callable[[str, float], None],
        step_metrics: Sequence[Mapping[str, float]] | None = None,
        **fields: Any,  # noqa: ANN401 - TRL passes every column
    ) -> list[float | None]:
        values = list(fields[name])
        assert len(values) == len(completions), "one reward for each completion"
        if step_metrics:
            for metric, value in step_metrics[0].items():
                log_metric(metric, value)
        return values

    reward.__name__ = name
    return reward
