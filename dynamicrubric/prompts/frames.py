"""The one renderer of the embedded world's prompts: token ids, never text.

The frame (control tokens) is ours. Content is encoded with special-token parsing off, so a
response that spells `<|answer|>` is those characters and not a control token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

PAD: Final = "<|pad|>"
BOS: Final = "<|bos|>"
EOS: Final = "<|eos|>"
POLICY: Final = "<|policy|>"
GENERATOR: Final = "<|generator|>"
RESPONSE: Final = "<|response|>"
ANSWER: Final = "<|answer|>"
CONTROL_TOKENS: Final = (PAD, BOS, EOS, POLICY, GENERATOR, RESPONSE, ANSWER)


class Encoder(Protocol):
    """What a renderer needs of a tokenizer."""

    def content(self, text: str) -> list[int]:
        """Encode text as content: special-token parsing off, nothing added."""
        ...

    def control(self, token: str) -> int:
        """Return the id of a control token."""
        ...


def policy_prompt(encoder: Encoder, prompt: str) -> list[int]:
    """Token ids that ask the policy for a response: one BOS, the task, the prompt."""
    return [
        encoder.control(BOS),
        encoder.control(POLICY),
        *encoder.content(prompt),
        encoder.control(ANSWER),
    ]


def generator_prompt(encoder: Encoder, prompt: str, responses: Sequence[str]) -> list[int]:
    """Token ids that ask the generator for a rubric.

    Args:
        encoder: the generator's tokenizer.
        prompt: x.
        responses: the response set C, or nothing for a static evaluator, which reads x alone.
    """
    ids = [encoder.control(BOS), encoder.control(GENERATOR), *encoder.content(prompt)]
    for response in responses:
        ids.append(encoder.control(RESPONSE))
        ids.extend(encoder.content(response))
    ids.append(encoder.control(ANSWER))
    return ids


def reward_prompt(encoder: Encoder, prompt: str, responses: Sequence[str]) -> list[int]:
    """Token ids in front of the response that a reward model reads.

    Args:
        encoder: the reward model's tokenizer.
        prompt: x.
        responses: the response set C; without it these are the ids that ask the policy.
    """
    ids = [encoder.control(BOS), encoder.control(POLICY), *encoder.content(prompt)]
    for response in responses:
        ids.append(encoder.control(RESPONSE))
        ids.extend(encoder.content(response))
    ids.append(encoder.control(ANSWER))
    return ids
