"""The verifier's question: content is inert, the criterion last, the rest shared."""

from __future__ import annotations

from dynamicrubric.prompts.verifier import (
    verifier_context,
    verifier_messages,
    verifier_prompt_hash,
    verifier_question,
)


def test_message_shows_prompt_response_and_criterion_once_and_in_order() -> None:
    [(role, text)] = verifier_messages("PROMPT", "RESPONSE", "CRITERION")
    assert role == "user"
    assert text.index("PROMPT") < text.index("RESPONSE") < text.index("CRITERION")
    assert "{" not in text


def test_braces_in_contents_are_inert() -> None:
    [(_, text)] = verifier_messages("{response}", "{criterion} {prompt}", "{prompt}")
    plain = verifier_messages("PROMPT", "RESPONSE", "CRITERION")[0][1]
    expected = plain.replace("PROMPT", "{response}").replace("RESPONSE", "{criterion} {prompt}")
    assert text == expected.replace("CRITERION", "{prompt}")


def test_without_a_prompt_nothing_stands_in_its_place() -> None:
    [(_, text)] = verifier_messages("", "RESPONSE", "CRITERION")
    assert "Prompt:" not in text
    assert "\n\n\n" not in text
    assert "RESPONSE" in text


def test_context_and_question_meet_where_no_token_crosses() -> None:
    [(_, context)] = verifier_context("PROMPT", "RESPONSE")
    question = verifier_question("CRITERION")
    assert context[-1].isalpha()
    assert question.startswith(": ")
    assert context + question == verifier_messages("PROMPT", "RESPONSE", "CRITERION")[0][1]


def test_hash_is_a_short_hexadecimal_name() -> None:
    assert len(verifier_prompt_hash()) == 16
    assert int(verifier_prompt_hash(), 16) > 0
