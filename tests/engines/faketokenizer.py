"""A tokenizer of a few words, for engines whose model is a fake."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dynamicrubric.prompts.chat import ChatFrame


class FakeTokenizer:
    """Knows some words by id; every other id is "w" and its number."""

    hf = None

    def __init__(
        self,
        words: Mapping[int, str],
        *,
        ends: Collection[int],
        contents: Collection[int],
        frame: ChatFrame | None = None,
    ) -> None:
        self._words = words
        self.frame = frame
        self.end_ids = frozenset(ends)
        self.content_ids = frozenset(contents)
        self.eos_id = self.pad_id = min(ends)

    def text_of(self, token_id: int) -> str:
        return self._words.get(token_id, f"w{token_id}")

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.text_of(i) for i in ids if i not in self.end_ids)

    def content(self, text: str) -> list[int]:
        raise NotImplementedError

    def policy_prompt(self, prompt: str) -> list[int]:
        raise NotImplementedError

    def generator_prompt(self, prompt: str, responses: Sequence[str]) -> list[int]:
        raise NotImplementedError
