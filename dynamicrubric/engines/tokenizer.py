"""Tokenizers as encoders of frames and content, and the embedded world's byte-level BPE."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from dynamicrubric.engines.base import PromptTokenizer
from dynamicrubric.errors import UserError
from dynamicrubric.prompts.frames import (
    BOS,
    CONTROL_TOKENS,
    EOS,
    PAD,
    generator_prompt,
    policy_prompt,
)


class FrameTokenizer:
    """A tokenizer whose content encoding never yields a control token."""

    frame: None = None
    """It has no chats, so nothing can be asked yes or no."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Wrap a fast tokenizer that has every control token of the frames.

        Raises:
            UserError: it has not: it is neither of the embedded world nor of a chat model.
        """
        self.hf = tokenizer
        known = tokenizer.get_vocab()
        missing = [token for token in CONTROL_TOKENS if token not in known]
        if missing:
            raise UserError(
                doing=f"reading the tokenizer {tokenizer.name_or_path}",
                got=f"no chat template, and no token {missing[0]}",
                expected="an instruction-tuned model's tokenizer, or the embedded world's",
                remedy="use the model's Instruct version",
            )
        self._control: dict[str, int] = {token: known[token] for token in CONTROL_TOKENS}
        self.control_ids = frozenset(self._control.values())
        self.end_ids = frozenset({self.eos_id})
        self.content_ids = frozenset(tokenizer.get_vocab().values()) - self.control_ids
        # A training renders the same prompts and response sets over and over.
        self._encode = lru_cache(maxsize=1 << 14)(self._encode_content)

    @classmethod
    def load(cls, directory: Path) -> FrameTokenizer:
        """Load the tokenizer of a checkpoint folder."""
        return cls(PreTrainedTokenizerFast.from_pretrained(str(directory), padding_side="left"))

    def content(self, text: str) -> list[int]:
        """Encode text as content: special-token parsing off, nothing added."""
        return list(self._encode(text))

    def _encode_content(self, text: str) -> tuple[int, ...]:
        ids = self.hf(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return tuple(ids)

    def control(self, token: str) -> int:
        """Return the id of a control token."""
        return self._control[token]

    @property
    def eos_id(self) -> int:
        """Id of the token that ends a completion."""
        return self.control(EOS)

    @property
    def pad_id(self) -> int:
        """Id that pads; different from the end token, so that models learn to stop."""
        return self.control(PAD)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode a completion, control tokens left out."""
        return str(self.hf.decode([i for i in ids if i not in self.control_ids]))

    def text_of(self, token_id: int) -> str:
        """Return the text of one id, a control token's as well."""
        return str(self.hf.decode([token_id]))

    def policy_prompt(self, prompt: str) -> list[int]:
        """Token ids that ask the policy for a response."""
        return policy_prompt(self, prompt)

    def generator_prompt(self, prompt: str, responses: Sequence[str]) -> list[int]:
        """Token ids that ask the generator for a rubric; a static one sees no responses."""
        return generator_prompt(self, prompt, responses)


def load_tokenizer(directory: Path, **template: object) -> PromptTokenizer:
    """Load a checkpoint's tokenizer: a chat's if it has a chat template, else the frames' own.

    Args:
        directory: the checkpoint.
        template: variables of the chat template, such as `enable_thinking`.
    """
    if not _has_chat_template(directory):
        return FrameTokenizer.load(directory)
    from dynamicrubric.engines.chattokenizer import ChatTokenizer

    return ChatTokenizer.load(directory, **template)


def _has_chat_template(directory: Path) -> bool:
    if (directory / "chat_template.jinja").is_file():
        return True
    config = directory / "tokenizer_config.json"
    return config.is_file() and bool(json.loads(config.read_text("utf-8")).get("chat_template"))


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, names: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on the world's texts.

    Without the regex split (`use_regex=False`) merges cross spaces and punctuation, so that JSON
    scaffolding and whole phrases become single tokens and sequences stay short. They do not cross
    commas: a token that held two phrases of one training text would teach nothing about others.

    Args:
        texts: what the models read and write.
        vocab_size: most tokens, the control tokens and the 256 bytes included.
        names: words that stay tokens of their own, wherever they stand, so that a model can copy
            them from its prompt.
    """
    whole = Regex(" (?:" + "|".join(map(re.escape, names)) + ")") if names else Regex("$^")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(",", "merged_with_next"),
            pre_tokenizers.Split(whole, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        additional_special_tokens=[t for t in CONTROL_TOKENS if t not in (PAD, BOS, EOS)],
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
