"""The offline vLLM engine: a child process for each checkpoint.

New weights are a new child, so no cache outlives the weights that filled it. vLLM is not imported
here: see `vllm_process` for the child, `vllm_server` for a server that runs elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from dynamicrubric.engines.base import GenerateRequest, PromptTokenizer
from dynamicrubric.engines.endpoint import BadReply
from dynamicrubric.engines.identity import (
    EngineIdentity,
    Probe,
    check_checkpoint,
    checkpoint_hash,
    probe_prompt,
)
from dynamicrubric.engines.reading import VerdictReading
from dynamicrubric.engines.tokenengine import (
    Completion,
    TokenEngine,
    TokenSampling,
    finish_reason_of,
)
from dynamicrubric.engines.tokenizer import load_tokenizer
from dynamicrubric.engines.vllm_process import VllmChild, VllmConfig
from dynamicrubric.errors import InstrumentError, UserError

PROBE_TOLERANCE: Final = {"float32": 1e-3, "bfloat16": 0.25, "float16": 0.05}
"""Largest difference of a log-probability between two engines with the same weights, by dtype."""


@dataclass(frozen=True)
class Adapter:
    """A PEFT adapter over an engine's checkpoint.

    Attributes:
        folder: its safetensors and config.
        hash: of the folder, `identity.checkpoint_hash`.
    """

    folder: Path
    hash: str

    def as_message(self) -> dict[str, str]:
        """Return it as the child is told."""
        return {"folder": str(self.folder.absolute()), "hash": self.hash}


class VllmEngine(TokenEngine):
    """Generates and judges with vLLM in a process of its own; use it in a `with` statement."""

    def __init__(
        self,
        role: str,
        checkpoint: Path,
        config: VllmConfig,
        tokenizer: PromptTokenizer,
        *,
        log_dir: Path,
        reading: VerdictReading | None = None,
        max_verdict_tokens: int = 1,
        on_progress: Callable[[str], None] | None = None,
        script: Path | None = None,
    ) -> None:
        """Start the child and load the checkpoint.

        Args:
            role: policy, generator or verifier.
            checkpoint: folder with safetensors.
            config: interpreter, dtype, limits.
            tokenizer: the checkpoint's; one with a chat frame to judge.
            log_dir: folder of the child's logs.
            reading: languages and limits of verdicts.
            max_verdict_tokens: see `TokenEngine`.
            on_progress: told what the child is at, now and then.
            script: the child's program, for tests of this end.

        Raises:
            UserError: no such interpreter, or no checkpoint.
            InstrumentError: the child ended or was not ready in time.
        """
        super().__init__(
            tokenizer,
            reading=reading,
            max_verdict_tokens=max_verdict_tokens,
            on_progress=on_progress,
        )
        self.role = role
        self.config = config
        self._log_dir = log_dir
        self._script = script
        self._child = self._start(checkpoint)

    @classmethod
    def load(
        cls,
        role: str,
        checkpoint: Path,
        config: VllmConfig,
        *,
        log_dir: Path,
        template: Mapping[str, object] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Self:
        """Start an engine with the checkpoint's own tokenizer.

        Args:
            role: policy, generator or verifier.
            checkpoint: folder with safetensors.
            config: interpreter, dtype, limits.
            log_dir: folder of the child's logs.
            template: variables of the chat template, such as `enable_thinking`.
            options: what else the engine takes.
        """
        check_checkpoint(checkpoint)
        tokenizer = load_tokenizer(checkpoint, **(template or {}))
        return cls(role, checkpoint, config, tokenizer, log_dir=log_dir, **options)

    @property
    def identity(self) -> EngineIdentity:
        """Role, checkpoint hash as the child found it, vLLM's version, dtype."""
        facts = self._child.facts
        return EngineIdentity(
            role=self.role,
            checkpoint=facts["checkpoint"],
            engine=f"vllm {facts['vllm']}",
            settings={
                "dtype": facts["dtype"],
                "torch": facts["torch"],
                "batch_invariant": self.config.batch_invariant,
            },
        )

    @property
    def max_model_len(self) -> int:
        """Longest prompt and completion together, in tokens."""
        return int(self._child.facts["max_model_len"])

    @property
    def pid(self) -> int:
        """The child's process."""
        return self._child.pid

    def probe_prompt(self) -> tuple[int, ...]:
        """Return the prompt by which this engine's weights are told apart: cached in part."""
        length = 2 * int(self._child.facts["block_size"]) + 1
        return probe_prompt(self.tokenizer.content_ids, min(length, self.max_model_len - 1))

    def reload(self, checkpoint: Path, expected: Probe | None = None) -> None:
        """Go on with another checkpoint, in a new child.

        Args:
            checkpoint: the folder.
            expected: what the weights answer to `probe_prompt()`, from another engine
                (`engines.reference`); it is checked if given.

        Raises:
            InstrumentError: the child does not start or does not answer as expected; none is left.
        """
        self._child.close()  # first: two models may not fit
        self._child = self._start(checkpoint)
        if expected is not None:
            try:
                self.verify(expected, PROBE_TOLERANCE[self.config.dtype])
            except InstrumentError:
                self.close()
                raise

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, checkpoint: Path) -> VllmChild:
        check_checkpoint(checkpoint)
        asked = checkpoint_hash(checkpoint)
        what = f"vLLM for the {self.role}"
        child = VllmChild(
            self.config,
            checkpoint,
            self._log_dir / f"vllm-{self.role}-{asked[:12]}.log",
            what=what,
            on_progress=self._on_progress,
            script=self._script,
        )
        facts = child.facts
        trouble = None
        if facts["checkpoint"] != asked:
            trouble = f"loaded a checkpoint that changed meanwhile: {checkpoint}"
        elif not facts["prefix_caching"] or facts["logprobs_mode"] != "raw_logprobs":
            trouble = f"did not take its settings: {dict(facts)}"
        if trouble is not None:
            child.close()
            raise InstrumentError(f"{what} {trouble}")
        return child

    def _complete(
        self, requests: Sequence[GenerateRequest], sampling: TokenSampling
    ) -> list[Completion | BadReply]:
        return self.complete(requests, sampling, None)

    def complete(
        self,
        requests: Sequence[GenerateRequest],
        sampling: TokenSampling,
        adapter: Adapter | None,
    ) -> list[Completion | BadReply]:
        """Return a completion for each request, in order, by the checkpoint with an adapter.

        Raises:
            InstrumentError: the child crashed, stalled or mixed requests up; it is gone.
            UserError: a schema is asked for, and the child has no tokenizer.
        """
        if sampling.schema is not None and not self.config.constrained:
            raise UserError(
                doing=f"keeping completions of vLLM for the {self.role} to a schema",
                got="an engine that was started without a tokenizer",
                remedy="set `constrained` in its VllmConfig",
            )
        asked = [
            {"id": place, "prompt_ids": list(request.prompt_ids), "seed": request.seed}
            for place, request in enumerate(requests)
        ]
        message = {
            "generate": asked,
            "sampling": {
                "temperature": sampling.temperature,
                "min_p": sampling.min_p,
                "max_tokens": sampling.max_tokens,
                "logprobs": sampling.logprobs,
                "label_ids": list(sampling.label_ids),
                "end_ids": sorted(self.tokenizer.end_ids),
                "schema": sampling.schema,
            },
            "adapter": None if adapter is None else adapter.as_message(),
        }
        results = self._child.ask(message)
        if [result["id"] for result in results] != list(range(len(requests))):
            self.close()
            raise InstrumentError(
                f"vLLM for the {self.role} answered {len(results)} requests out of order or not "
                f"one for one; {len(requests)} were asked"
            )
        return [_completion(result) for result in results]


def _completion(result: dict[str, Any]) -> Completion | BadReply:
    finish_reason = finish_reason_of(result["finish_reason"])
    if finish_reason is None:
        return BadReply("unknown_finish_reason", str(result["finish_reason"]))
    return Completion(
        token_ids=tuple(result["token_ids"]),
        finish_reason=finish_reason,
        logprobs=tuple(result["logprobs"]),
        top=tuple(tuple((i, logprob) for i, logprob in place) for place in result["top"]),
    )
