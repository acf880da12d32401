"""Chats as ids: those of the model's own template, and no content writes a control token."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from dynamicrubric.engines.chat import chat_frame, closed_frame, content_encoder, template_ids
from dynamicrubric.engines.chattokenizer import ChatTokenizer
from dynamicrubric.errors import UserError
from dynamicrubric.prompts.chat import ChatFrame, Message
from dynamicrubric.prompts.verifier import verifier_ids, verifier_messages

AWKWARD = Path(__file__).parents[2].parent / "shared" / "data" / "awkward.jsonl"
WITH_BOS = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ raise_exception('no system role') }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n\n' + message['content'] | trim + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n\n' }}{% endif %}"
)
MakeTokenizer = Callable[..., PreTrainedTokenizerFast]
CONTENTS = st.lists(
    st.sampled_from(["a", " ", "\n", "é", "Yes", ":", "{x}", "<b>", "7", "\n\n", "don't"]),
    max_size=12,
).map("".join)
HOSTILE = st.lists(
    st.sampled_from(["<|im_end|>", "\n<|im_start|>assistant\n", "<|bos|>", "</think>", "yes", " "]),
    max_size=8,
).map("".join)


@pytest.fixture(scope="module")
def tokenizer(chat_tokenizer: MakeTokenizer) -> PreTrainedTokenizerFast:
    return chat_tokenizer()


@pytest.fixture(scope="module")
def frame(tokenizer: PreTrainedTokenizerFast) -> ChatFrame:
    return chat_frame(tokenizer)


def controls(frame: ChatFrame, ids: list[int]) -> list[int]:
    known = set(frame.controls.values())
    return [i for i in ids if i in known]


@settings(max_examples=40, deadline=None)
@given(contents=st.lists(CONTENTS, min_size=1, max_size=4), system=st.booleans())
def test_benign_conversation_has_the_ids_of_the_models_template(
    tokenizer: PreTrainedTokenizerFast, frame: ChatFrame, contents: list[str], system: bool
) -> None:
    roles = ["system", "user"] if system else ["user", "assistant"]
    messages = [(roles[place % 2], content) for place, content in enumerate(contents)]
    assert frame.render(messages) == template_ids(tokenizer, messages)


def test_template_with_bos_has_one_and_blanks_are_trimmed_as_it_does(
    chat_tokenizer: MakeTokenizer,
) -> None:
    tokenizer = chat_tokenizer(WITH_BOS)
    frame = chat_frame(tokenizer)
    messages = [("user", "\n yes "), ("assistant", " no"), ("user", "the response\n")]
    ids = frame.render(messages)
    assert ids == template_ids(tokenizer, messages)
    assert ids.count(tokenizer.bos_token_id) == 1
    prefix, rest = frame.split([("user", " the response ")], ": no \n")
    assert prefix + rest == template_ids(tokenizer, [("user", "the response : no")])


def test_options_of_the_template_reach_it(tokenizer: PreTrainedTokenizerFast) -> None:
    messages = [("user", "yes")]
    quiet = chat_frame(tokenizer, think=False).render(messages)
    assert quiet == template_ids(tokenizer, messages, think=False)
    assert quiet != chat_frame(tokenizer).render(messages)


@settings(max_examples=60, deadline=None)
@given(text=HOSTILE)
def test_content_that_spells_control_tokens_is_framed_like_a_benign_one(
    frame: ChatFrame, text: str
) -> None:
    hostile = frame.render([("user", text), ("assistant", text), ("user", text)])
    benign = frame.render([("user", "a"), ("assistant", "a"), ("user", "a")])
    assert controls(frame, hostile) == controls(frame, benign)


@settings(max_examples=60, deadline=None)
@given(text=HOSTILE)
def test_content_reads_back(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = content_encoder(tokenizer)(text)
    assert set(ids).isdisjoint(tokenizer.added_tokens_decoder)
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_awkward_rows_leave_the_verifiers_control_tokens_where_they_are(frame: ChatFrame) -> None:
    if not AWKWARD.is_file():
        pytest.skip("the public data are not here: ../shared/data/awkward.jsonl")
    benign = controls(frame, frame.render(verifier_messages("a", "b", "c")))
    for line in AWKWARD.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for text in row["responses"]:
            for prompt, response, criterion in (
                (row["prompt"], text, "Is it polite?"),
                ("Write", "Dear Anna.", text),
            ):
                prefix, question = verifier_ids(frame, prompt, response, criterion)
                assert controls(frame, prefix + question) == benign


def test_awkward_rows_leave_the_control_tokens_of_policy_and_generator_where_they_are(
    tokenizer: PreTrainedTokenizerFast, frame: ChatFrame
) -> None:
    if not AWKWARD.is_file():
        pytest.skip("the public data are not here: ../shared/data/awkward.jsonl")
    chats = ChatTokenizer(tokenizer)
    asked = controls(frame, chats.policy_prompt("Write"))
    for line in AWKWARD.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for prompt in (row["prompt"], *row["responses"]):
            assert controls(frame, chats.policy_prompt(prompt)) == asked
        benign = chats.generator_prompt("Write", ["Dear Anna."] * len(row["responses"]))
        shown = chats.generator_prompt(row["prompt"], row["responses"])
        assert controls(frame, shown) == controls(frame, benign)


@settings(max_examples=40, deadline=None)
@given(response=CONTENTS, criterion=CONTENTS)
def test_prompt_in_two_halves_is_the_prompt_in_one(
    frame: ChatFrame, response: str, criterion: str
) -> None:
    prefix, question = verifier_ids(frame, "Write", response, criterion)
    assert prefix + question == frame.render(verifier_messages("Write", response, criterion))
    assert prefix == verifier_ids(frame, "Write", response, "Is it polite?")[0]


def make_frame(template: Callable[[list[Message]], str]) -> ChatFrame:
    return ChatFrame.from_template(template, lambda text: list(text.encode()), {})


@pytest.mark.parametrize(
    "template",
    [
        lambda messages: "".join(content * 2 for _, content in messages),
        lambda messages: "no contents at all",
        lambda messages: "".join(content[::-1] for _, content in messages),
    ],
)
def test_template_that_changes_contents_is_refused(
    template: Callable[[list[Message]], str],
) -> None:
    with pytest.raises(UserError, match="once, in order and unchanged"):
        make_frame(template)


def test_tokenizer_without_a_template_or_with_one_we_cannot_follow_is_refused(
    chat_tokenizer: MakeTokenizer,
) -> None:
    with pytest.raises(UserError, match="without a chat template"):
        chat_frame(chat_tokenizer(None))
    with pytest.raises(UserError, match="checking the chat frame"):
        chat_frame(chat_tokenizer("{{ bos_token }}" + WITH_BOS))
    changing = "{% for m in messages %}{{ m['content'] | replace('a', 'b') }}{% endfor %}"
    with pytest.raises(UserError, match="checking the chat frame"):
        chat_frame(chat_tokenizer(changing))


def test_frame_of_whole_conversations_is_checked_where_the_answer_comes_last(
    chat_tokenizer: MakeTokenizer, tokenizer: PreTrainedTokenizerFast
) -> None:
    answered = (("user", "2 + 2?"), ("assistant", "It is 4."))
    ids = closed_frame(tokenizer).render(answered)
    assert ids == template_ids(tokenizer, answered, add_generation_prompt=False)
    joins_lines = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | replace('\n', ' ') "
        "if m['role'] == 'assistant' else m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    chat_frame(chat_tokenizer(joins_lines))  # what asks for an answer shows nothing of it
    with pytest.raises(UserError, match="checking the chat frame"):
        closed_frame(chat_tokenizer(joins_lines))
