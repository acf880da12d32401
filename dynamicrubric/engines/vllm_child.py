"""vLLM in a process of its own: token ids in, token ids and log-probabilities out.

    python -I vllm_child.py <read fd> <write fd> <settings as JSON>

Started by `vllm_process`, with the interpreter of vLLM's environment, so the standard library and
vLLM are all that is imported here, vLLM by the process alone. Messages are JSON behind a length of
four bytes; what vLLM prints goes to the log. No pickle on either side.

    child  -> parent  {"ready": {...}}          once, or the process ends and its log says why
    parent -> child   {"generate": [...], "sampling": {...}, "adapter": {...} or null}
    child  -> parent  {"progress": [done, of]}  while it works
    child  -> parent  {"results": [...]}        in the order asked

When the parent's end of the pipe closes, however it ended, this process ends its whole group.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

MAX_MESSAGE_BYTES = 1 << 30
_PROGRESS_SECONDS = 1.0
_CPU_BATCH_TOKENS = 4096
_GPU_SHARE = 0.01
GPU_BATCH_TOKENS = 8192
GPU_BATCH_ROWS = 256
_LENGTH = struct.Struct(">I")
_MODEL_FILES = (".safetensors", ".json", ".jinja", ".model", ".txt")
_NOT_THE_MODEL = frozenset(
    {"engines.json", "record.json", "trainer_state.json", "training_args.json"}
)


def write_message(stream: BinaryIO, message: Mapping[str, Any]) -> None:
    """Write one message; infinities are allowed, both ends are this module."""
    body = json.dumps(message, separators=(",", ":")).encode()
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def read_message(stream: BinaryIO) -> dict[str, Any] | None:
    """Read one message; None at the end of the stream.

    Raises:
        ValueError: the bytes are not a message.
    """
    head = _read_exactly(stream, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {length} bytes")
    body = _read_exactly(stream, length)
    if body is None:
        return None
    message = json.loads(body)
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return message


def _read_exactly(stream: BinaryIO, count: int) -> bytes | None:
    """Read so many bytes, or None if the stream ends first; a pipe hands out what it has."""
    parts = bytearray()
    while len(parts) < count:
        part = stream.read(count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def checkpoint_hash(directory: str | Path) -> str:
    """Hash what decides a model's output: weights, configs and tokenizer of a checkpoint folder.

    Names and contents of the files, not their dates; records, trainer states and the engines that
    took part in the training do not count.
    """
    total = hashlib.sha256()
    for path in sorted(Path(directory).iterdir(), key=lambda path: path.name):
        if path.suffix in _MODEL_FILES and path.name not in _NOT_THE_MODEL and path.is_file():
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            total.update(f"{path.name}\0{digest}\n".encode())
    return total.hexdigest()


def main(read_fd: int, write_fd: int, settings: Mapping[str, Any]) -> None:
    """Load the model, say so, and answer until the parent's end closes."""
    watch_parent(read_fd)
    engine = _Engine(settings)
    with os.fdopen(read_fd, "rb") as requests, os.fdopen(write_fd, "wb") as replies:
        write_message(replies, {"ready": engine.facts()})
        while (message := read_message(requests)) is not None:
            adapter = engine.adapter(message.get("adapter"))
            results = engine.generate(message["generate"], message["sampling"], adapter, replies)
            engine.check_adapter(message.get("adapter"))
            write_message(replies, {"results": results})


def watch_parent(read_fd: int) -> None:
    """End this process and its group once the parent's end of the pipe is closed."""
    threading.Thread(target=_end_with_parent, args=(read_fd, os.getppid()), daemon=True).start()


def _end_with_parent(read_fd: int, parent: int) -> None:
    """Wait until no other process holds the pipe's other end, or the parent is gone."""
    poll = select.poll()
    poll.register(read_fd, 0)  # hang-ups alone
    while not poll.poll(1000) and os.getppid() == parent:
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)  # vLLM's own workers are in the group


class _Engine:
    """vLLM's offline engine."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from vllm import LLM

        self._llm = LLM(
            model=settings["checkpoint"],
            trust_remote_code=False,
            load_format="safetensors",
            generation_config="vllm",  # the checkpoint's sampling defaults are not ours
            enable_prefix_caching=True,
            logprobs_mode="raw_logprobs",
            **platform_arguments(settings["engine"]),
        )
        # After loading: the parent compares it with the hash from before.
        self._hash = checkpoint_hash(settings["checkpoint"])
        self._adapters: list[str] = []
        self._loaded = ""

    def facts(self) -> dict[str, Any]:
        """Return what the parent checks and records."""
        import torch
        import vllm

        config = self._llm.llm_engine.vllm_config
        return {
            "checkpoint": self._hash,
            "vllm": vllm.__version__,
            "torch": torch.__version__,
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "max_model_len": config.model_config.max_model_len,
            "block_size": config.cache_config.block_size,
            "prefix_caching": config.cache_config.enable_prefix_caching,
            "logprobs_mode": config.model_config.logprobs_mode,
            "pid": os.getpid(),
        }

    def adapter(self, asked: Mapping[str, str] | None) -> Any:  # noqa: ANN401
        """Return vLLM's request for an adapter: name and number are of this content alone."""
        if asked is None:
            return None
        from vllm.lora.request import LoRARequest

        if asked["hash"] not in self._adapters:
            self._adapters.append(asked["hash"])
        number = self._adapters.index(asked["hash"]) + 1
        return LoRARequest(asked["hash"], number, asked["folder"])

    def check_adapter(self, asked: Mapping[str, str] | None) -> None:
        """Compare an adapter's folder, after vLLM has read it, with what the parent asked for."""
        if asked is None or asked["hash"] == self._loaded:
            return
        if checkpoint_hash(asked["folder"]) != asked["hash"]:
            raise RuntimeError(f"the adapter {asked['folder']} changed while it was loaded")
        self._loaded = asked["hash"]

    def generate(
        self,
        requests: Sequence[Mapping[str, Any]],
        sampling: Mapping[str, Any],
        adapter: Any,  # noqa: ANN401
        replies: BinaryIO,
    ) -> list[dict[str, Any]]:
        outputs = self._llm.generate(
            [{"prompt_token_ids": request["prompt_ids"]} for request in requests],
            [_params(request["seed"], sampling) for request in requests],
            use_tqdm=_progress_to(replies),
            lora_request=adapter,
        )
        if [list(output.prompt_token_ids) for output in outputs] != [
            request["prompt_ids"] for request in requests
        ]:
            raise RuntimeError("vLLM ran other prompts than those asked: a second BOS, or an order")
        tells_top = bool(sampling["label_ids"]) or sampling["logprobs"] > 1
        return [
            {"id": request["id"], **_completion(output.outputs[0], tells_top)}
            for request, output in zip(requests, outputs, strict=True)
        ]


def platform_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return vLLM's arguments: on a GPU with room for others, on a CPU without chunked prefill.

    What runs at once on a GPU is said, since vLLM's own choice is twice as many tokens and four
    times as many sequences on one of 70 GiB and more (engine/arg_utils.py, get_batch_defaults), and
    `dynamicrubric preflight` counts their memory.

    vLLM 0.32 refuses a GPU of which less than `gpu_memory_utilization` is free, 0.92 by default
    (v1/worker/utils.py, request_memory). A step holds a model of its own there, and with the
    cache's size given the share decides nothing else.

    Where a prompt is cut into chunks, vLLM 0.32 rewinds a seeded request's generator, which CPU
    generators cannot do ("CPU Generator does not use offset"): the engine dies.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        batch = {"max_num_batched_tokens": GPU_BATCH_TOKENS, "max_num_seqs": GPU_BATCH_ROWS}
        return {**arguments, **batch, "gpu_memory_utilization": _GPU_SHARE}
    budget = max(_CPU_BATCH_TOKENS, arguments["max_model_len"])  # a prompt goes in whole
    whole = {"enable_chunked_prefill": False, "max_num_batched_tokens": budget}
    return {**arguments, **whole}


def _params(seed: int, sampling: Mapping[str, Any]) -> Any:  # noqa: ANN401
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    schema = sampling["schema"]
    label_ids = sampling["label_ids"]
    # The engine wants one of the two, or a number of log-probabilities equal to the labels'.
    top = len(label_ids) if label_ids else sampling["logprobs"]
    return SamplingParams(
        temperature=sampling["temperature"],
        top_p=1.0,
        top_k=0,
        min_p=sampling["min_p"],
        repetition_penalty=1.0,
        max_tokens=sampling["max_tokens"],
        seed=seed,
        stop_token_ids=sampling["end_ids"],
        logprobs=top,
        logprob_token_ids=label_ids or None,
        detokenize=False,
        structured_outputs=StructuredOutputsParams(json=dict(schema)) if schema else None,
    )


def _completion(output: Any, tells_top: bool) -> dict[str, Any]:  # noqa: ANN401
    positions = output.logprobs or []
    return {
        "token_ids": list(output.token_ids),
        "finish_reason": output.finish_reason,
        "logprobs": [
            position[token].logprob
            for token, position in zip(output.token_ids, positions, strict=False)
        ],
        "top": [[[token, one.logprob] for token, one in position.items()] for position in positions]
        if tells_top
        else [],
    }


def _progress_to(replies: BinaryIO) -> Any:  # noqa: ANN401
    class Progress:
        """What vLLM takes for a tqdm bar."""

        def __init__(self, items: Iterable[Any] | None = None, total: int = 0, **_: object) -> None:
            self.items, self.total, self.n = items, total, 0
            self.postfix = ""
            self.started = self.told = time.monotonic()

        def __iter__(self) -> Iterator[Any]:
            return iter(self.items or ())

        @property
        def format_dict(self) -> dict[str, float]:
            return {"elapsed": max(time.monotonic() - self.started, 1e-6)}

        def update(self, count: int = 1) -> None:
            self.n += count
            if time.monotonic() - self.told >= _PROGRESS_SECONDS:
                self.told = time.monotonic()
                write_message(replies, {"progress": [self.n, self.total]})

        def refresh(self) -> None:
            """Nothing is drawn."""

        def close(self) -> None:
            """Nothing was opened."""

    return Progress


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
