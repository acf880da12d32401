"""Stands for vLLM's process: the same arguments, pipes and messages, and no model.

What it does is in `fake.json` of the checkpoint folder: {"does": ..., "shift": ...}. Its model
gives each prompt the labels' log-probabilities by a hash of prompt and shift, and samples by a hash
of prompt, seed and place, until the end token or the limit.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

spec = importlib.util.spec_from_file_location("protocol", os.environ["FAKE_CHILD_PROTOCOL"])
assert spec is not None and spec.loader is not None
protocol = importlib.util.module_from_spec(spec)
spec.loader.exec_module(protocol)


def share(*name: object) -> float:
    """Return a number in (0, 1) that depends on the name alone."""
    digest = hashlib.sha256(json.dumps(name).encode()).digest()
    return (int.from_bytes(digest[:4], "big") + 1) / (2**32 + 2)


class FakeModel:
    def __init__(self, checkpoint: Path, behaviour: dict[str, Any]) -> None:
        self.checkpoint = checkpoint
        self.does = behaviour.get("does", "")
        self.shift = behaviour.get("shift", 0)

    def facts(self) -> dict[str, Any]:
        found = protocol.checkpoint_hash(self.checkpoint)
        return {
            "checkpoint": "0" * 64 if self.does == "other checkpoint" else found,
            "vllm": "0.fake",
            "torch": "none",
            "dtype": "float32",
            "max_model_len": 3000,
            "block_size": 128,
            "prefix_caching": self.does != "no prefix caching",
            "logprobs_mode": "raw_logprobs",
            "pid": os.getpid(),
        }

    def complete(
        self, request: dict[str, Any], sampling: dict[str, Any], adapter: str = ""
    ) -> dict[str, Any]:
        ids = request["prompt_ids"]
        tokens: list[int] = []
        while len(tokens) < sampling["max_tokens"]:
            seed = request["seed"] if sampling["temperature"] else 0
            draw = share(ids, tokens, seed, self.shift, adapter)
            ends = sampling["end_ids"]
            tokens.append(ends[0] if ends and draw < 0.1 else 20 + int(draw * 50))
            if tokens[-1] in ends:
                break
        told = sampling["label_ids"] or range(30, 30 + sampling["logprobs"])
        top = [[[i, self.logprob(ids, i, len(told), adapter)] for i in told] for _ in tokens]
        return {
            "id": request["id"],
            "token_ids": tokens,
            "finish_reason": self.finish(tokens[-1] in sampling["end_ids"]),
            "logprobs": [-1.0] * len(tokens),
            "top": top,
        }

    def finish(self, stopped: bool) -> str:
        if self.does == "abort":
            return "abort"
        return "stop" if stopped else "length"

    def logprob(self, ids: list[int], token: int, of: int, adapter: str) -> float:
        return math.log(share(ids, token, self.shift, adapter) / max(of, 1))


def main() -> None:
    read_fd, write_fd, settings = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    checkpoint = Path(settings["checkpoint"])
    model = FakeModel(checkpoint, json.loads((checkpoint / "fake.json").read_text()))
    protocol.watch_parent(read_fd)
    with os.fdopen(read_fd, "rb") as requests, os.fdopen(write_fd, "wb") as replies:
        print("loading", checkpoint.name, flush=True)
        if model.does == "end at start":
            print("RuntimeError: no memory for the cache", file=sys.stderr)
            sys.exit(3)
        if model.does == "never ready":
            requests.read()
        protocol.write_message(replies, {"ready": model.facts()})
        while (message := protocol.read_message(requests)) is not None:
            answer(model, message, requests, replies)


def answer(model: FakeModel, message: dict[str, Any], requests: Any, replies: Any) -> None:
    asked = message["generate"]
    if model.does == "crash":
        raise RuntimeError("the engine core died")
    if model.does == "kill itself":
        os.kill(os.getpid(), 9)
    if model.does == "stall":
        requests.read()
    if model.does == "babble":
        replies.write(b"INFO 11-30 vLLM says hello on the wrong pipe\n")
        replies.flush()
    if model.does == "tell":
        (model.checkpoint / "asked.json").write_text(json.dumps(message))
    adapter = (message["adapter"] or {}).get("hash", "")
    results = [model.complete(one, message["sampling"], adapter) for one in asked]
    protocol.write_message(replies, {"progress": [len(asked), len(asked)]})
    if model.does == "lose one":
        results = results[:-1]
    if model.does == "mix up":
        results = results[::-1]
    protocol.write_message(replies, {"results": results})


if __name__ == "__main__":
    main()
