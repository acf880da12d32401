"""What engines that talk in token ids need of a tokenizer: ids to text, and where to end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from dynamicrubric.engines.thinking import BLOCKS


@dataclass(frozen=True)
class Codec:
    """Reads token ids.

    Attributes:
        decode: completion ids to text, control tokens left out, thinking marks kept.
        text_of: text of one id.
        end_ids: every id that ends a completion.
        content_ids: ids that are no control tokens.
    """

    decode: Callable[[Sequence[int]], str]
    text_of: Callable[[int], str]
    end_ids: frozenset[int]
    content_ids: frozenset[int]


def codec_of(tokenizer: PreTrainedTokenizerFast, checkpoint: Path) -> Codec:
    """Return the codec of a checkpoint.

    Its end tokens are those of tokenizer and generation config together: models that end a turn
    with another token than a text would otherwise run on to their limit (case 19).
    """
    marks = {mark for block in BLOCKS for mark in block}
    added = {i: str(token) for i, token in tokenizer.added_tokens_decoder.items()}
    special = set(tokenizer.all_special_ids)
    end_ids = _end_ids(tokenizer, checkpoint)
    hidden = end_ids | {i for i in special if added.get(i) not in marks}

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode([i for i in ids if i not in hidden]))

    return Codec(
        decode=decode,
        text_of=lru_cache(maxsize=1 << 18)(lambda i: str(tokenizer.decode([i]))),
        end_ids=frozenset(end_ids),
        content_ids=frozenset(range(len(tokenizer))) - special - set(added),
    )


def _end_ids(tokenizer: PreTrainedTokenizerFast, checkpoint: Path) -> set[int]:
    found = {tokenizer.eos_token_id}
    config = checkpoint / "generation_config.json"
    if config.is_file():
        listed = json.loads(config.read_text("utf-8")).get("eos_token_id")
        found |= set(listed) if isinstance(listed, list) else {listed}
    return {i for i in found if isinstance(i, int)}
