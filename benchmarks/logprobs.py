"""Time TRL's log-probabilities over all positions against completions alone, in one run.

Command: `python benchmarks/logprobs.py`. Forward and backward of a generator's batch of the default
study (32 rubrics of 10 tokens behind prompts of 100), the two ways turn by turn, on one thread.
"""

from __future__ import annotations

import statistics
import time
from contextlib import AbstractContextManager, nullcontext

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM
from trl.trainer.utils import add_fused_lm_head

from dynamicrubric.training.logprobs import completions_only

TURNS = 15
ROWS, PROMPT, COMPLETION, VOCABULARY = 32, 100, 10, 1024


def main() -> None:
    """Print the median seconds of either way and their ratio."""
    torch.set_num_threads(1)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            tie_word_embeddings=True,
        )
    )
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids = torch.randint(7, VOCABULARY, (ROWS, PROMPT + COMPLETION))
    ways = {"all positions": nullcontext, "completions alone": completions_only}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in track(range(TURNS), "timing"):
        for name, way in ways.items():
            seconds[name].append(time_once(model, ids, way()))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    table = Table("way", "seconds of a step", "times")
    for name, median in medians.items():
        table.add_row(name, f"{median:.3f}", f"{median / medians['completions alone']:.2f}")
    Console().print(table)


def time_once(
    model: LlamaForCausalLM, ids: torch.Tensor, way: AbstractContextManager[None]
) -> float:
    """Return the processor seconds of one forward and backward pass."""
    labels = ids.clone()
    labels[:, :PROMPT] = -100
    started = time.process_time()
    with way:
        output = model(input_ids=ids, labels=labels, fused_lm_head=True)
        output.log_probs.sum().backward()
    return time.process_time() - started


if __name__ == "__main__":
    main()
