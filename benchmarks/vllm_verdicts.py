"""The vLLM part of `benchmarks/verdicts.py`: runs in the environment that has vLLM, and only there.

Reads one JSON object from its input (model, dtype, threads, eager, prompts as token ids, ids of yes
and of no) and writes one as its last line: seconds, processor seconds, tokens that prefix caching
did not spare, and the logarithms of both masses for each prompt.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import Any


def main() -> None:
    job = json.load(sys.stdin)
    # Before the import: vLLM and OpenMP read them there.
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ["OMP_NUM_THREADS"] = str(job["threads"])
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # one process, whose seconds can be told
    os.environ["TORCHDYNAMO_DISABLE"] = str(int(job["eager"]))
    from vllm import LLM, SamplingParams

    longest = max(map(len, job["prompts"]))
    engine = LLM(
        model=job["model"],
        dtype=job["dtype"],
        enable_prefix_caching=True,
        block_size=32,  # the CPU's 128 would run up to 127 shared tokens again a question
        max_model_len=longest + 1,
        enforce_eager=job["eager"],
        skip_tokenizer_init=True,
        seed=0,
    )
    labels = [*job["yes"], *job["no"]]
    params = SamplingParams(
        max_tokens=1, temperature=0.0, logprob_token_ids=labels, detokenize=False
    )
    prompts = [{"prompt_token_ids": ids} for ids in job["prompts"]]
    warm = [{"prompt_token_ids": list(reversed(ids))} for ids in job["prompts"][:2]]
    engine.generate(warm, params, use_tqdm=False)
    started, worked = time.perf_counter(), time.process_time()
    outputs = engine.generate(prompts, params, use_tqdm=False)
    seconds, processor = time.perf_counter() - started, time.process_time() - worked
    tokens = sum(len(o.prompt_token_ids) - (o.num_cached_tokens or 0) for o in outputs)
    masses = [[log_sum(output, job["yes"]), log_sum(output, job["no"])] for output in outputs]
    found = {"seconds": seconds, "processor": processor, "tokens": tokens, "masses": masses}
    print(json.dumps(found), flush=True)


def log_sum(output: Any, ids: list[int]) -> float:  # noqa: ANN401
    """Return the logarithm of the mass on ids at the first token."""
    logprobs = output.outputs[0].logprobs[0]
    return math.log(max(math.fsum(math.exp(logprobs[i].logprob) for i in ids), 1e-300))


if __name__ == "__main__":
    main()
