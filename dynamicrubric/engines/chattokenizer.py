"""Tokenizers of instruction-tuned models: the roles' prompts in the model's own chat frame."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from dynamicrubric.engines.chat import chat_frame, content_encoder
from dynamicrubric.engines.chat import load_tokenizer as load_fast
from dynamicrubric.engines.thinking import MARKS
from dynamicrubric.errors import UserError
from dynamicrubric.prompts.roles import generator_messages, policy_messages


class ChatTokenizer:
    """A tokenizer with a chat template; contents never yield a control token."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        end_ids: frozenset[int] = frozenset(),
        **template: object,
    ) -> None:
        """Wrap a fast tokenizer that has a chat template.

        Args:
            tokenizer: of an instruction-tuned model.
            end_ids: ids that end a completion, beside the tokenizer's own.
            template: variables of the chat template, such as `enable_thinking`.

        Raises:
            UserError: it has no template, or no token that ends a turn.
        """
        if tokenizer.eos_token_id is None:
            raise UserError(
                doing=f"reading the tokenizer {tokenizer.name_or_path}",
                got="no token that ends a turn",
                expected="an instruction-tuned model's tokenizer",
                remedy="use the model's Instruct version",
            )
        self.hf = tokenizer
        self.frame = chat_frame(tokenizer, **template)
        added = tokenizer.added_tokens_decoder
        # Tokens that were added without being special are text, such as runs of blanks.
        special = {*tokenizer.all_special_ids, *(i for i, token in added.items() if token.special)}
        marks = {i for i, token in added.items() if str(token) in MARKS}
        self.end_ids = end_ids | {self.eos_id}
        self.content_ids = frozenset(tokenizer.get_vocab().values()) - special - added.keys()
        self._hidden = self.end_ids | (special - marks)
        self._content = lru_cache(maxsize=1 << 12)(content_encoder(tokenizer))
        self._text_of = lru_cache(maxsize=1 << 18)(lambda i: self._decoded([i]))
        self._settle_pad({*added} - self.end_ids - {tokenizer.bos_token_id})

    @classmethod
    def load(cls, name: Path | str, **template: object) -> ChatTokenizer:
        """Load the tokenizer of a checkpoint folder or hub id.

        A completion ends at the end tokens of tokenizer and generation config together: models that
        end a turn with another token than a text would otherwise run on to their limit (case 19).
        """
        return cls(load_fast(str(name)), _listed_end_ids(Path(name)), **template)

    def content(self, text: str) -> list[int]:
        """Encode text as content: special-token parsing off, nothing added."""
        return list(self._content(text))

    @property
    def eos_id(self) -> int:
        """Id of the token that ends a completion in training."""
        return int(self.hf.eos_token_id)

    @property
    def pad_id(self) -> int:
        """Id that pads; no end token wherever the vocabulary has another."""
        return int(self.hf.pad_token_id)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode a completion, control tokens left out; the marks of thinking stay."""
        return self._decoded([i for i in ids if i not in self._hidden])

    def text_of(self, token_id: int) -> str:
        """Return the text of one id, a control token's as well."""
        return self._text_of(token_id)

    def policy_prompt(self, prompt: str) -> list[int]:
        """Token ids that ask the policy for a response: the prompt as a user's turn."""
        return self.frame.render(policy_messages(prompt))

    def generator_prompt(self, prompt: str, responses: Sequence[str]) -> list[int]:
        """Token ids that ask the generator for a rubric; a static one sees no responses."""
        return self.frame.render(generator_messages(prompt, responses))

    def _decoded(self, ids: list[int]) -> str:
        # Some tokenizers would take blanks before marks away: the text would not be what was said.
        return str(self.hf.decode(ids, clean_up_tokenization_spaces=False))

    def _settle_pad(self, others: set[int]) -> None:
        """Choose a padding token that ends nothing: what pads is no lesson to stop."""
        if self.hf.pad_token_id is None or self.hf.pad_token_id in self.end_ids:
            pad = min(others, default=self.eos_id)
            self.hf.pad_token = self.hf.convert_ids_to_tokens(pad)


def _listed_end_ids(checkpoint: Path) -> frozenset[int]:
    config = checkpoint / "generation_config.json"
    if not config.is_file():
        return frozenset()
    listed = json.loads(config.read_text("utf-8")).get("eos_token_id")
    return frozenset(i for i in (listed if isinstance(listed, list) else [listed]) if i is not None)
