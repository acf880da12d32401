"""One role's view of a vLLM child that several roles share: the base, or the base with an adapter.

An adapter goes in unmerged (vLLM's LoRARequest): the base is in memory once for all roles, and an
adapter's small changes are not rounded away in the base's number format. Its name in the child is
the hash of its folder, which the child compares with what it has loaded, and which is part of the
key of each block of the prefix cache: another adapter never finds this one's blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dynamicrubric.engines.base import GenerateRequest, PromptTokenizer
from dynamicrubric.engines.endpoint import BadReply
from dynamicrubric.engines.identity import (
    EngineIdentity,
    Probe,
    checkpoint_hash,
    verify_probe,
)
from dynamicrubric.engines.reading import VerdictReading
from dynamicrubric.engines.tokenengine import Completion, TokenEngine, TokenSampling
from dynamicrubric.engines.vllm import Adapter, VllmEngine

logger = logging.getLogger(__name__)

_CLEAR: Final = 4.0
"""An adapter's effect is told from rounding if it is so many times as large: half of it, which the
adapter's own rounding has to stay under, is then twice what was measured."""


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

    def verify_adapter(self, expected: Probe, base: Probe, tolerance: float) -> None:
        """Check that the child answers by the adapter, and not by the base or another adapter.

        The tolerance of a coarse number format is wider than what a short training changes. So the
        base is probed too: how far the child is off there, where the weights are known, is its
        rounding, and an adapter that does several times as much has to show at least half of it.

        Args:
            expected: what the adapter answers to a prompt, from another engine.
            base: what the base answers to it, from that engine.
            tolerance: largest difference of a log-probability between the engines.

        Raises:
            InstrumentError: the child answers otherwise.
        """
        found = self._host.probe(base.prompt_ids)
        what = f"the base below the {self.role} in {self.identity.engine}"
        verify_probe(found, base, tolerance=tolerance, what=what)
        effect, rounding = expected.distance(base), found.distance(base)
        if effect > _CLEAR * rounding:
            tolerance = min(tolerance, effect / 2)
        elif effect > 0.0:
            logger.warning(
                "the %s's adapter changes log-probabilities by %.2g at most, the engine's rounding "
                "by %.2g: the probe cannot tell whether the adapter is applied",
                self.role,
                effect,
                rounding,
            )
        self.verify(expected, tolerance)

    @property
    def max_model_len(self) -> int:
        """Longest prompt and completion together, in tokens."""
        return self._host.max_model_len

    def _complete(
        self, requests: Sequence[GenerateRequest], sampling: TokenSampling
    ) -> list[Completion | BadReply]:
        return self._host.complete(requests, sampling, self._adapter)
