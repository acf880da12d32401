from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from dynamicrubric import GroupRubricReward
from dynamicrubric.doors.opening import EvaluatorOptions, open_evaluator

with open_evaluator(EvaluatorOptions(generator="coevolved-s1-r1")) as opened:
    frame = "<|bos|><|policy|>{}<|answer|>"  # of the embedded world's models; others have a chat's
    rows = [{"prompt": frame.format(text), "asked": text} for text in opened.prompt_ids]
    reward = GroupRubricReward(opened.evaluator, group_size=8, prompt_column="asked")
    config = GRPOConfig(
        "work/grpo", max_steps=20, num_generations=8, per_device_train_batch_size=64,
        max_completion_length=32, learning_rate=1e-3, use_cpu=True, bf16=False, logging_steps=1,
        report_to="none", save_strategy="no",
    )  # fmt: skip
    trainer = GRPOTrainer("data/warm/policy", reward, config, Dataset.from_list(rows))
    trainer.train()
