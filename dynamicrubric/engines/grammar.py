"""Constrained decoding: tokens after which a text could not become of the wanted form are left out.

The form is a JSON schema and the library is llguidance, which vLLM has as well (its backend
"guidance"), so both engines leave out the same tokens. A grammar says nothing of the token limit:
a text that is cut there is as truncated as any other.
"""

from __future__ import annotations

import json
from typing import Final

import llguidance.hf
import numpy as np
import torch
from llguidance import LLMatcher
from transformers import LogitsProcessor, PreTrainedTokenizerFast

from dynamicrubric.engines.base import JsonSchema
from dynamicrubric.errors import InstrumentError, UserError

COMPACT: Final = {"x-guidance": {"whitespace_flexible": False}}
"""Added to a schema: JSON between whose tokens white space is free can go on for ever (case 30)."""


class Grammar:
    """A JSON schema, compiled for a tokenizer."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, num_logits: int, schema: JsonSchema
    ) -> None:
        """Compile.

        Args:
            tokenizer: the model's; its end token is what may follow a whole text.
            num_logits: width of the model's output: often more than the tokenizer has.
            schema: of the text, which will have no white space between its tokens.

        Raises:
            UserError: llguidance cannot follow the schema.
        """
        self._tokenizer = llguidance.hf.from_tokenizer(tokenizer, n_vocab=num_logits)
        self._grammar = LLMatcher.grammar_from_json_schema(json.dumps({**schema, **COMPACT}))
        trouble = LLMatcher.validate_grammar(self._grammar, self._tokenizer)
        if trouble:
            raise UserError(
                doing="preparing constrained decoding",
                got=trouble.strip().splitlines()[0],
                expected="a JSON schema that llguidance can follow",
                remedy="change the schema, or sample without it",
            )

    def processor(self, num_rows: int, prompt_length: int) -> GrammarMask:
        """Return what masks the logits of one batch."""
        matchers = [LLMatcher(self._tokenizer, self._grammar) for _ in range(num_rows)]
        return GrammarMask(matchers, prompt_length)


class GrammarMask(LogitsProcessor):
    """Leaves in each row the tokens that the grammar allows there."""

    def __init__(self, matchers: list[LLMatcher], prompt_length: int) -> None:
        """Take one matcher a row, each at the beginning of its text."""
        self._matchers = matchers
        self._prompt_length = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores of shape (rows, vocabulary), minus infinity where a token is left out."""
        tokens = input_ids[:, -1].tolist() if input_ids.shape[1] > self._prompt_length else []
        for matcher, token in zip(self._matchers, tokens, strict=bool(tokens)):
            # Where nothing can follow, a matcher stops and allows the end token alone.
            if not matcher.is_stopped() and not matcher.consume_token(token):
                raise InstrumentError(
                    f"token {token} was sampled against the grammar: {matcher.get_error()}"
                )
        allowed = np.stack([_allowed(matcher, scores.shape[1]) for matcher in self._matchers])
        return scores.masked_fill(~torch.from_numpy(allowed).to(scores.device), -torch.inf)


def _allowed(matcher: LLMatcher, width: int) -> np.ndarray:
    """Return which tokens may follow, shape (width,)."""
    bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    return np.unpackbits(bits, bitorder="little")[:width].astype(bool)
