"""Verdicts of a language model: joined by id, over the whole vocabulary, nothing cut in silence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from dynamicrubric.engines.base import JudgeRequest
from dynamicrubric.engines.chattokenizer import ChatTokenizer
from dynamicrubric.engines.packing import token_bound
from dynamicrubric.engines.reading import labels_of
from dynamicrubric.engines.verifier import (
    Budget,
    LanguageModelVerifier,
    Reading,
    checked_verifier,
    load_verifier,
    noise_floor,
    torch_dtype,
)
from dynamicrubric.errors import InstrumentError, UserError

CRITERIA = ("Is it polite?", "Does it name a city?", "Is it short?")
REQUESTS = [
    JudgeRequest("Dear Anna, greetings from Lisbon.", CRITERIA, 0, "Write a postcard."),
    JudgeRequest("", CRITERIA[:2], 0, "Write a postcard."),
    JudgeRequest("WOW", CRITERIA[1:], 0),
    JudgeRequest("x" * 90, (), 0, "Write a postcard."),
    JudgeRequest("Dear Anna, greetings from Lisbon.", ("Is it long?",), 0, "Write a postcard."),
]


class ConstantModel(LlamaForCausalLM):
    """Gives the same logits whatever it reads, shifted by `shift` a row of its batch."""

    logits: torch.Tensor
    shift: torch.Tensor

    def forward(self, **inputs: object) -> object:
        output = super().forward(**inputs)
        rows = output.logits.shape[0]
        output.logits = (self.logits + self.shift * rows).expand_as(output.logits)
        return output


@pytest.fixture(scope="module")
def tokenizer(chat_tokenizer: Callable[..., PreTrainedTokenizerFast]) -> PreTrainedTokenizerFast:
    return chat_tokenizer()


def make_verifier(
    tokenizer: PreTrainedTokenizerFast, kind: type[LlamaForCausalLM] = LlamaForCausalLM
) -> LanguageModelVerifier:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.2,
    )
    chats = ChatTokenizer(tokenizer)
    return LanguageModelVerifier(
        kind(config).eval(),
        chats.frame,
        labels_of(chats, ("en",)),
        pad_id=0,
        coverage_floor=0.0,
    )


@pytest.fixture(scope="module")
def verifier(tokenizer: PreTrainedTokenizerFast) -> LanguageModelVerifier:
    return make_verifier(tokenizer)


def constant(
    tokenizer: PreTrainedTokenizerFast, shares: dict[str, float], shift: dict[str, float]
) -> LanguageModelVerifier:
    made = make_verifier(tokenizer, ConstantModel)
    model = made.model
    assert isinstance(model, ConstantModel)
    model.logits = torch.full((len(tokenizer),), -60.0)
    model.shift = torch.zeros(len(tokenizer))
    for token, share in shares.items():
        model.logits[tokenizer.convert_tokens_to_ids(token)] = math.log(share)
    for token, amount in shift.items():
        model.shift[tokenizer.convert_tokens_to_ids(token)] = amount
    return made


def shares_of_yes(verifier: LanguageModelVerifier, requests: list[JudgeRequest]) -> list[float]:
    verdicts = [verdict for row in verifier.judge(requests) for verdict in row]
    assert all(verdict.p_yes is not None for verdict in verdicts)
    return [float(verdict.p_yes or 0.0) for verdict in verdicts]


def test_verdicts_come_in_order_whatever_their_neighbours(verifier: LanguageModelVerifier) -> None:
    together = shares_of_yes(verifier, REQUESTS)
    assert [len(row) for row in verifier.judge(REQUESTS)] == [3, 2, 2, 0, 1]
    assert len({round(share, 6) for share in together}) == len(together), "nothing told apart"
    alone = [
        shares_of_yes(verifier, [replace(request, criteria=(criterion,))])[0]
        for request in REQUESTS
        for criterion in request.criteria
    ]
    assert together == pytest.approx(alone, abs=1e-4)
    backwards = [
        share for request in REQUESTS[::-1] for share in shares_of_yes(verifier, [request])[::-1]
    ]
    assert together == pytest.approx(backwards[::-1], abs=1e-4)


@pytest.mark.parametrize("budget", [Budget(1, 1), Budget(400, 300), Budget(8192, 8192)])
def test_budget_changes_no_probability(verifier: LanguageModelVerifier, budget: Budget) -> None:
    groups = verifier.questions(REQUESTS).groups
    expected = verifier.masses(groups, "single")
    for way in ("packed", "batched"):
        found = replace(verifier, budget=budget).masses(groups, way)
        assert found.keys() == expected.keys()
        for key, masses in found.items():
            assert masses == pytest.approx(expected[key], abs=1e-3)


def test_rubrics_about_one_response_share_its_beginning(verifier: LanguageModelVerifier) -> None:
    response, prompt = REQUESTS[0].response, REQUESTS[0].prompt
    rubrics = [CRITERIA, CRITERIA[::-1], ("Is it long?", CRITERIA[0])]
    requests = [JudgeRequest(response, rubric, seed, prompt) for seed, rubric in enumerate(rubrics)]
    questions = verifier.questions(requests)
    [group] = questions.groups
    assert len(group.questions) == 4, "a criterion that three rubrics share is asked once"
    verdicts = verifier.judge(requests)
    assert verdicts[0] == verdicts[1][::-1]
    assert verdicts[2][1] == verdicts[0][0]
    assert token_bound([group]) < sum(map(len, group.questions)) + 2 * len(group.prefix)


def test_question_beyond_the_context_is_unscored_and_shifts_nothing(
    verifier: LanguageModelVerifier,
) -> None:
    """Case 14: the middle one is too long; the others are as if it were not there."""
    long = JudgeRequest("word " * 5000, CRITERIA, 0, "Write a postcard.")
    [first, second] = verifier.judge(REQUESTS[:2])
    rows = verifier.judge([REQUESTS[0], long, REQUESTS[1]])
    assert [verdict.value for verdict in rows[0]] == [verdict.value for verdict in first]
    assert [verdict.reason for verdict in rows[1]] == ["too_long"] * 3
    assert [verdict.value for verdict in rows[2]] == [verdict.value for verdict in second]


def test_question_of_exactly_the_context_is_asked_and_one_more_token_is_not(
    verifier: LanguageModelVerifier,
) -> None:
    def length(text: str) -> int:
        [group] = verifier.questions([JudgeRequest(text, CRITERIA[:1], 0)]).groups
        return len(group.prefix) + len(group.questions[0])

    fits = "7" * (verifier.max_tokens - length("7") + 1)
    assert length(fits) == verifier.max_tokens
    [[asked], [refused]] = verifier.judge(
        [JudgeRequest(text, CRITERIA[:1], 0) for text in (fits, fits + "7")]
    )
    assert asked.reason != "too_long"
    assert refused.reason == "too_long"


def test_masses_are_summed_over_every_spelling_in_the_vocabulary(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    shares = {"Yes": 0.2, "Ġyes": 0.1, "yes": 0.1, "ĠNo": 0.1, "Ġthe": 0.5}
    missing = [token for token in shares if token not in tokenizer.get_vocab()]
    assert missing == []
    [[verdict]] = constant(tokenizer, shares, {}).judge([JudgeRequest("x", ("Is it?",), 0)])
    assert verdict.value == "yes"
    assert verdict.p_yes == pytest.approx(0.4 / 0.5, abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"coverage_floor": 0.45}, "yes"),
        ({"coverage_floor": 0.55}, "low_coverage"),
        ({"undecided_band": 0.29}, "yes"),
        ({"undecided_band": 0.31}, "undecided"),
    ],
)
def test_floor_and_band_leave_verdicts_unscored(
    tokenizer: PreTrainedTokenizerFast, settings: dict[str, float], expected: str
) -> None:
    made = replace(constant(tokenizer, {"yes": 0.4, "no": 0.1, "Ġthe": 0.5}, {}), **settings)
    [[verdict]] = made.judge([JudgeRequest("x", ("Is it?",), 0)])
    assert (verdict.reason or verdict.value) == expected


def test_noise_floor_is_rounding_for_a_sound_engine(verifier: LanguageModelVerifier) -> None:
    floor = noise_floor(verifier, REQUESTS)
    assert floor.num_questions == 8
    assert floor.largest < 1e-4
    assert 0.0 < floor.band < 1e-3


def test_noise_floor_shows_what_the_batch_does_to_a_verdict(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    """Case 28: log-odds that rise by 0.02 with each row of the batch; 8 rows against one."""
    noisy = constant(tokenizer, {"yes": 0.45, "no": 0.45, "Ġthe": 0.1}, {"yes": 0.02})
    floor = noise_floor(noisy, REQUESTS)
    assert floor.band == pytest.approx(2 * 0.02 * 7 / 4, rel=1e-3)
    assert floor.largest == pytest.approx(
        1 / (1 + math.exp(-0.16)) - 1 / (1 + math.exp(-0.02)), rel=1e-3
    )
    [[verdict]] = replace(noisy, undecided_band=floor.band).judge(
        [JudgeRequest("x", ("Is it?",), 0)]
    )
    assert verdict.reason == "undecided"


def test_verifier_is_loaded_from_a_folder_with_its_band_measured(
    verifier: LanguageModelVerifier, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    verifier.model.save_pretrained(str(tmp_path))
    tokenizer.save_pretrained(str(tmp_path))
    loaded = load_verifier(tmp_path, dtype="float32", settings=Reading(coverage_floor=0.0))
    assert 0.0 < loaded.undecided_band < 1e-3
    assert shares_of_yes(loaded, REQUESTS) == pytest.approx(
        shares_of_yes(verifier, REQUESTS), abs=1e-4
    )
    wide = checked_verifier(loaded.model, ChatTokenizer(tokenizer), Reading(undecided_band=0.2))
    assert wide.undecided_band == 0.2


def test_model_whose_answers_depend_on_the_batch_is_refused(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    noisy = constant(tokenizer, {"yes": 0.45, "no": 0.45, "Ġthe": 0.1}, {"yes": 0.2})
    with pytest.raises(InstrumentError, match="alone, in a batch and packed"):
        checked_verifier(noisy.model, ChatTokenizer(tokenizer))


def test_language_that_the_vocabulary_lacks_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(UserError, match="0 tokens for yes"):
        labels_of(ChatTokenizer(tokenizer), ("ja",))


def test_number_format_auto_is_float32_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert torch_dtype("auto") is torch.float32
    assert torch_dtype("bfloat16") is torch.bfloat16
