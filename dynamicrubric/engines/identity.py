"""Which engine answered: its role and the hash of its checkpoint, and the proof of both.

An engine is one checkpoint. After a weight change there is a new engine, or a reload that a probe
has verified: log-probabilities of the next token after a fixed prompt, long enough to be cached,
against those that the trainer's copy of the weights gives. A stale prefix cache, or weights that
were not loaded, show there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dynamicrubric.engines.vllm_child import checkpoint_hash
from dynamicrubric.errors import InstrumentError, UserError

__all__ = [
    "EngineIdentity",
    "Probe",
    "check_checkpoint",
    "checkpoint_hash",
    "probe_prompt",
    "verify_probe",
]


@dataclass(frozen=True)
class EngineIdentity:
    """What every rollout records of the engine that made it.

    Attributes:
        role: policy, generator or verifier.
        checkpoint: hash of the checkpoint folder, as the engine found it; "named:" and a name for
            an endpoint that shows no weights.
        engine: kind and version, such as "vllm 0.32.0".
        settings: what may move the last digits: dtype, batch invariance.
    """

    role: str
    checkpoint: str
    engine: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def as_record(self) -> dict[str, Any]:
        """Return it as values that JSON can hold."""
        return asdict(self)


@dataclass(frozen=True)
class Probe:
    """Log-probabilities of the likeliest next tokens after a fixed prompt.

    Attributes:
        prompt_ids: the prompt.
        logprobs: token id -> natural-log probability, at temperature 1.
    """

    prompt_ids: tuple[int, ...]
    logprobs: Mapping[int, float] = field(hash=False)

    def distance(self, other: Probe) -> float:
        """Return the largest difference over the tokens that both have; infinite without any."""
        common = self.logprobs.keys() & other.logprobs.keys()
        differences = [abs(self.logprobs[i] - other.logprobs[i]) for i in common]
        return max(differences, default=float("inf"))


def probe_prompt(vocabulary: Collection[int], num_tokens: int) -> tuple[int, ...]:
    """Return the fixed prompt of a vocabulary: no text, but all weights have a say in what follows.

    Args:
        vocabulary: ids that may stand in it.
        num_tokens: its length; more than a block of the engine's cache, or nothing is cached.
    """
    ids = sorted(vocabulary)
    return tuple(ids[(place * 7919) % len(ids)] for place in range(num_tokens))


def verify_probe(found: Probe, expected: Probe, *, tolerance: float, what: str) -> None:
    """Check that an engine answers as the weights that it should have.

    Args:
        found: the engine's.
        expected: that of the weights, from another engine, for the same prompt.
        tolerance: largest difference in log-probability that is the engines' noise.
        what: who is probed, in the message.

    Raises:
        InstrumentError: other weights, or a stale cache.
    """
    if found.prompt_ids != expected.prompt_ids:
        raise ValueError("two probes with different prompts")
    distance = found.distance(expected)
    if not distance <= tolerance:
        raise InstrumentError(
            f"{what} does not answer as its checkpoint should: log-probabilities after the probe "
            f"prompt are off by {distance:.3g}, more than {tolerance:g}. It has other weights, or "
            "a prefix cache of earlier ones: start it anew with this checkpoint."
        )


def check_checkpoint(directory: Path, name: str = "") -> None:
    """Refuse a folder that is no checkpoint, or one that could run code of its own.

    Args:
        directory: the folder.
        name: what a person calls it, where that is no path.

    Raises:
        UserError: no config, no safetensors, or classes of its own (`auto_map`).
    """
    try:
        config = json.loads((directory / "config.json").read_text("utf-8"))
        own_code = isinstance(config, dict) and "auto_map" in config
    except (OSError, ValueError):
        raise _refusal(name or directory, "no config.json that can be read") from None
    if own_code:
        raise _refusal(
            name or directory, "classes of its own (`auto_map`), which would run its code"
        )
    if not any(directory.glob("*.safetensors")):
        raise _refusal(name or directory, "no weights as safetensors")


def _refusal(name: str | Path, got: str) -> UserError:
    return UserError(
        doing=f"loading the checkpoint {name}",
        got=got,
        expected="a folder with config.json, *.safetensors and a tokenizer",
        remedy="save the model with save_pretrained, or name another folder",
    )
