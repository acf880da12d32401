"""Tokenizers of instruction-tuned models: the roles' prompts in the model's own chat frame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from dynamicrubric.engines.chat import chat_frame, content_encoder
from dynamicrubric.engines.chat import load_tokenizer as load_fast
from dynamicrubric.errors import UserError
from dynamicrubric.prompts.roles import generator_messages, policy_messages


class ChatTokenizer:
    """A tokenizer with a chat template; contents never yield a control token."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Wrap a fast tokenizer that has a chat template.

        Raises:
            UserError: it has none, or no token that ends a turn.
        """
        if tokenizer.eos_token_id is None:
            raise UserError(
                doing=f"reading the tokenizer {tokenizer.name_or_path}",
                got="no token that ends a turn",
                expected="an instruction-tuned model's tokenizer",
                remedy="use the model's Instruct version",
            )
        self.hf = tokenizer
        self.frame = chat_frame(tokenizer)
        self.control_ids = frozenset(tokenizer.added_tokens_decoder)
        # A training renders the same prompts and response sets over and over.
        self._content = lru_cache(maxsize=1 << 12)(content_encoder(tokenizer))
        self._settle_pad()

    @classmethod
    def load(cls, directory: Path) -> ChatTokenizer:
        """Load the tokenizer of a checkpoint folder."""
        return cls(load_fast(str(directory)))

    def content(self, text: str) -> list[int]:
        """Encode text as content: special-token parsing off, nothing added."""
        return list(self._content(text))

    @property
    def eos_id(self) -> int:
        """Id of the token that ends a completion."""
        return int(self.hf.eos_token_id)

    @property
    def pad_id(self) -> int:
        """Id that pads; another than the end token wherever the vocabulary has one."""
        return int(self.hf.pad_token_id)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode a completion, control tokens left out."""
        return str(self.hf.decode([i for i in ids if i not in self.control_ids]))

    def policy_prompt(self, prompt: str) -> list[int]:
        """Token ids that ask the policy for a response: the prompt as a user's turn."""
        return self.frame.render(policy_messages(prompt))

    def generator_prompt(self, prompt: str, responses: Sequence[str]) -> list[int]:
        """Token ids that ask the generator for a rubric; a static one sees no responses."""
        return self.frame.render(generator_messages(prompt, responses))

    def _settle_pad(self) -> None:
        """Choose a padding token that is not the end token: what pads is no lesson to stop."""
        if self.hf.pad_token_id not in (None, self.eos_id):
            return
        others = sorted(self.control_ids - {self.eos_id, self.hf.bos_token_id})
        pad = others[0] if others else self.eos_id
        self.hf.pad_token = self.hf.convert_ids_to_tokens(pad)
