"""Stands for vLLM's process, and computes: transformers and PEFT behind the same messages.

With FAKE_CHILD_IGNORES_ADAPTERS it answers by the base alone, as an engine would that takes an
adapter and does not apply it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

spec = importlib.util.spec_from_file_location("protocol", os.environ["FAKE_CHILD_PROTOCOL"])
assert spec is not None and spec.loader is not None
protocol = importlib.util.module_from_spec(spec)
spec.loader.exec_module(protocol)


class Model:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.folder = Path(settings["checkpoint"])
        self.asked = settings["engine"]
        self._adapters: dict[str, Any] = {}

    def facts(self) -> dict[str, Any]:
        import torch

        return {
            "checkpoint": protocol.checkpoint_hash(self.folder),
            "vllm": "0.fake",
            "torch": torch.__version__,
            "dtype": self.asked["dtype"],
            "max_model_len": self.asked["max_model_len"],
            "block_size": 16,
            "prefix_caching": True,
            "logprobs_mode": "raw_logprobs",
            "pid": os.getpid(),
        }

    def under(self, adapter: dict[str, str] | None) -> Any:
        name = "" if adapter is None else adapter["hash"]
        if name not in self._adapters:
            import torch
            from peft import PeftModel
            from transformers import AutoModelForCausalLM

            model = AutoModelForCausalLM.from_pretrained(str(self.folder), dtype=torch.float32)
            if adapter is not None:
                assert self.asked["enable_lora"]
                if "FAKE_CHILD_IGNORES_ADAPTERS" not in os.environ:
                    model = PeftModel.from_pretrained(model, adapter["folder"])
            self._adapters[name] = model.eval()
        return self._adapters[name]


def complete(model: Any, request: dict[str, Any], sampling: dict[str, Any]) -> dict[str, Any]:
    import torch

    ids, tokens, top, chosen = list(request["prompt_ids"]), [], [], []
    draws = torch.Generator().manual_seed(request["seed"] % 2**63)
    while len(tokens) < sampling["max_tokens"]:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([ids + tokens])).logits[0, -1].double()
        logprobs = torch.log_softmax(logits, dim=-1)
        told = sampling["label_ids"] or logprobs.topk(sampling["logprobs"]).indices.tolist()
        if sampling["temperature"]:
            shares = torch.softmax(logits / sampling["temperature"], dim=-1)
            shares = shares.masked_fill(shares < sampling["min_p"] * shares.max(), 0.0)
            token = int(torch.multinomial(shares, 1, generator=draws))
        else:
            token = int(logprobs.argmax())
        tokens.append(token)
        chosen.append(float(logprobs[token]))
        top.append([[i, float(logprobs[i])] for i in told])
        if token in sampling["end_ids"]:
            break
    stopped = tokens[-1] in sampling["end_ids"]
    return {
        "id": request["id"],
        "token_ids": tokens,
        "finish_reason": "stop" if stopped else "length",
        "logprobs": chosen,
        "top": top,
    }


def main() -> None:
    read_fd, write_fd, settings = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    protocol.watch_parent(read_fd)  # before torch, whose import takes long
    model = Model(settings)
    with os.fdopen(read_fd, "rb") as requests, os.fdopen(write_fd, "wb") as replies:
        protocol.write_message(replies, {"ready": model.facts()})
        while (message := protocol.read_message(requests)) is not None:
            found = model.under(message["adapter"])
            results = [complete(found, one, message["sampling"]) for one in message["generate"]]
            protocol.write_message(replies, {"results": results})


if __name__ == "__main__":
    main()
