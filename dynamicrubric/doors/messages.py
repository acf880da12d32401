"""Prompts and completions as trainers hand them over: plain texts, or lists of chat messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_SPEAKERS: Final = {"user": "Human", "assistant": "Assistant", "system": "System"}


def prompt_text(prompt: object) -> str | None:
    r"""Return what is answered: the text, the one message, or the conversation with its speakers.

    Speakers are named as in anchor lists (`data.rows`), so that a generator reads one form.

    Returns:
        None for what is no prompt.

    >>> prompt_text([{"role": "user", "content": "Why?"}])
    'Why?'
    >>> prompt_text([{"role": "system", "content": "Hm."}, {"role": "user", "content": "Why?"}])
    'System: Hm.\n\nHuman: Why?'
    """
    if isinstance(prompt, str):
        return prompt
    messages = _messages(prompt)
    texts = [(str(one.get("role")), _content(one.get("content"))) for one in messages or []]
    if not texts:
        return None
    if len(texts) == 1 and texts[0][0] == "user":
        return texts[0][1]
    named = [f"{_SPEAKERS.get(role, role)}: {text}" for role, text in texts if text is not None]
    return "\n\n".join(named) or None


def completion_text(completion: object) -> str | None:
    """Return a completion's text: of messages, what the assistant said last.

    Returns:
        None where there is none, such as a message that only calls a tool.

    >>> completion_text([{"role": "assistant", "content": "Because."}])
    'Because.'
    """
    if isinstance(completion, str):
        return completion
    said = [one for one in _messages(completion) or [] if one.get("role") in (None, "assistant")]
    return _content(said[-1].get("content")) if said else None


def _messages(value: object) -> Sequence[Mapping[str, Any]] | None:
    if isinstance(value, Mapping):
        return [value]
    if isinstance(value, Sequence) and all(isinstance(one, Mapping) for one in value):
        return value
    return None


def _content(content: object) -> str | None:
    """Return a message's text: its content, or that of its text blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return None
    blocks = [one.get("text") for one in content if isinstance(one, Mapping)]
    texts = [text for text in blocks if isinstance(text, str)]
    return "\n".join(texts) if texts else None
