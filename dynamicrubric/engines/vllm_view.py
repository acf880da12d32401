"""One role's view of a vLLM child that several roles share: the base, or the base with an adapter.

An adapter goes in unmerged (vLLM's LoRARequest): the base is in memory once for all roles, and an
adapter's small changes are not rounded away in the base's number format. Its name in the child is
the hash of its folder, which the child compares with what it has loaded, and which is part of the
key of each block of the prefix cache: another adapter never finds this one's blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dynamicrubric.engines.base import GenerateRequest, PromptTokenizer
from dynamicrubric.engines.endpoint import BadReply
from dynamicrubric.engines.identity import EngineIdentity, checkpoint_hash
from dynamicrubric.engines.reading import VerdictReading
from dynamicrubric.engines.tokenengine import Completion, TokenEngine, TokenSampling
from dynamicrubric.engines.vllm import Adapter, VllmEngine


class VllmView(TokenEngine):
    """Generates and judges as one role by another engine's child, which that one closes."""

    def __init__(
        self,
        host: VllmEngine,
        role: str,
        tokenizer: PromptTokenizer,
        *,
        adapter: Path | None = None,
        reading: VerdictReading | None = None,
        max_verdict_tokens: int = 1,
    ) -> None:
        """Share a child.

        Args:
            host: the engine that has it, started with room for the adapter.
            role: policy, generator or verifier.
            tokenizer: the role's; one with a chat frame to judge.
            adapter: folder of a PEFT adapter over the host's checkpoint; None: the base itself.
            reading: languages and limits of verdicts.
            max_verdict_tokens: see `TokenEngine`.
        """
        super().__init__(tokenizer, reading=reading, max_verdict_tokens=max_verdict_tokens)
        self.role = role
        self._host = host
        self._adapter = None if adapter is None else Adapter(adapter, checkpoint_hash(adapter))

    @property
    def identity(self) -> EngineIdentity:
        """Role, and the hashes of base and adapter."""
        base = self._host.identity
        adapter = "" if self._adapter is None else f"+{self._adapter.hash}"
        return replace(base, role=self.role, checkpoint=base.checkpoint + adapter)

    @property
    def max_model_len(self) -> int:
        """Longest prompt and completion together, in tokens."""
        return self._host.max_model_len

    def _complete(
        self, requests: Sequence[GenerateRequest], sampling: TokenSampling
    ) -> list[Completion | BadReply]:
        return self._host.complete(requests, sampling, self._adapter)
