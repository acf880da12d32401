"""Chat frames of transformers tokenizers: content encoding, control tokens, and the check."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from dynamicrubric.errors import UserError
from dynamicrubric.prompts.chat import ChatFrame, Message

PROBES: tuple[tuple[Message, ...], ...] = (
    (("user", "Write a postcard from Lisbon, in 20 words."),),
    (("user", "Two lines:\n  a list\n- and  a dash\n\nDon't stop"),),
    (("user", "Καλημέρα, 你好, émile 🙂\t{braces} <b>"),),
    (("system", "Be brief."), ("user", "Hello")),
    (("user", "2 + 2?"), ("assistant", "It is 4."), ("user", "Why?")),
)
"""Benign conversations in which our ids have to be those of the template."""


def load_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """Load the fast tokenizer of a checkpoint folder or hub id: no remote code, padding left."""
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, padding_side="left")
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise UserError(
            doing=f"loading the tokenizer of {name}",
            got=type(tokenizer).__name__,
            expected="a fast tokenizer (tokenizer.json)",
            remedy="convert it with transformers first, or use another checkpoint",
        )
    return tokenizer


def content_encoder(tokenizer: PreTrainedTokenizerFast) -> Callable[[str], list[int]]:
    """Return a function from text to ids that knows no control token.

    `split_special_tokens` is not enough: it lets tokens pass that were added without being special,
    such as thinking markers. So the text goes through a copy of the tokenizer without any.
    """
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    added = {entry["id"] for entry in state["added_tokens"]}
    plain = Tokenizer.from_str(json.dumps({**state, "added_tokens": [], "post_processor": None}))
    plain.no_truncation()
    plain.no_padding()

    def encode(text: str) -> list[int]:
        ids: list[int] = plain.encode(text, add_special_tokens=False).ids
        if added.isdisjoint(ids):
            return ids
        # A vocabulary that holds its control tokens as whole words: letter by letter it cannot.
        return [i for letter in text for i in plain.encode(letter, add_special_tokens=False).ids]

    return encode


def chat_frame(tokenizer: PreTrainedTokenizerFast, **options: Any) -> ChatFrame:  # noqa: ANN401
    """Derive the frame of a tokenizer's chat template and check it on benign conversations.

    Args:
        tokenizer: of an instruction-tuned model.
        options: variables of the template, such as `enable_thinking=False`.

    Raises:
        UserError: no template, or one that our rendering does not reproduce.
    """
    if not tokenizer.chat_template:
        raise UserError(
            doing=f"deriving the chat frame of {tokenizer.name_or_path}",
            got="a tokenizer without a chat template",
            expected="an instruction-tuned model",
            remedy="use the model's Instruct version",
        )

    def template(messages: Sequence[Message]) -> str:
        return str(_apply(tokenizer, messages, tokenize=False, **options))

    controls = {str(token): id for id, token in tokenizer.added_tokens_decoder.items()}
    frame = ChatFrame.from_template(template, content_encoder(tokenizer), controls)
    for probe in PROBES:
        _check(frame, tokenizer, probe, options)
    return frame


def closed_frame(tokenizer: PreTrainedTokenizerFast) -> ChatFrame:
    """Derive the frame of whole conversations: for a model that reads one and answers nothing.

    Checked on conversations that end in an answer too, which nobody else renders.

    Raises:
        UserError: see `chat_frame`.
    """
    options = {"add_generation_prompt": False}
    frame = chat_frame(tokenizer, **options)
    for probe in PROBES:
        _check(frame, tokenizer, (*probe, ("assistant", "It is 4.\n\n- so: 2 + 2")), options)
    return frame


def template_ids(
    tokenizer: PreTrainedTokenizerFast,
    messages: Sequence[Message],
    **options: Any,  # noqa: ANN401
) -> list[int]:
    """Return the ids that transformers and TRL make of a conversation."""
    return list(_apply(tokenizer, messages, tokenize=True, return_dict=False, **options))


def _apply(
    tokenizer: PreTrainedTokenizerFast,
    messages: Sequence[Message],
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    chat = [{"role": role, "content": content} for role, content in messages]
    return tokenizer.apply_chat_template(chat, **{"add_generation_prompt": True, **options})


def _check(
    frame: ChatFrame,
    tokenizer: PreTrainedTokenizerFast,
    probe: Sequence[Message],
    options: dict[str, Any],
) -> None:
    try:
        expected = template_ids(tokenizer, probe, **options)
    except TemplateError:
        return  # a template may refuse roles that we then never use
    ids = frame.render(probe)
    bos = tokenizer.bos_token_id
    if ids != expected or ids[:2] == [bos, bos]:
        raise UserError(
            doing=f"checking the chat frame of {tokenizer.name_or_path} on {probe[-1][1]!r}",
            got=f"ids {ids}",
            expected=f"those of its template, {expected}",
            remedy="use a checkpoint with a byte-level tokenizer and a plain chat template",
        )
