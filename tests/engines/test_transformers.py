"""Sampling that depends on a request's own seed alone, and log-probabilities that add up."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    PreTrainedModel,
    TemperatureLogitsWarper,
)

from dynamicrubric.config import Sampling
from dynamicrubric.engines import transformers as engine_module
from dynamicrubric.engines.base import GenerateRequest, Generation
from dynamicrubric.engines.tokenizer import FrameTokenizer
from dynamicrubric.engines.transformers import (
    SeededSampler,
    TransformersEngine,
    load_model,
    pad_left,
    sequence_logprobs,
)
from dynamicrubric.errors import UserError
from dynamicrubric.prompts.frames import generator_prompt, policy_prompt

TEXTS = ["Write", "Write to Anna, from Lisbon, for the wedding", "Write to Ben " * 12]


@pytest.fixture(scope="module")
def requests(tokenizer: FrameTokenizer) -> list[GenerateRequest]:
    prompts = [policy_prompt(tokenizer, text) for text in TEXTS]
    prompts += [generator_prompt(tokenizer, TEXTS[1], ["dear Anna.", "WOW"])]
    return [
        GenerateRequest(ids, 10 * row + seed) for row, ids in enumerate(prompts) for seed in (1, 2)
    ]


def run(
    engine: TransformersEngine,
    asked: list[GenerateRequest],
    *,
    temperature: float = 1.0,
    min_p: float = 0.0,
    max_tokens: int = 16,
) -> list[Generation]:
    sampling = Sampling(temperature=temperature, min_p=min_p, max_tokens=max_tokens)
    return engine.generate(asked, sampling)


def test_request_gets_the_same_tokens_alone_and_among_neighbours(
    engine: TransformersEngine, requests: list[GenerateRequest]
) -> None:
    together = run(engine, requests)
    backwards = run(engine, requests[::-1])[::-1]
    alone = [run(engine, [request])[0] for request in requests]
    assert together == alone == backwards


def test_request_gets_the_same_tokens_in_one_batch_and_in_many(
    engine: TransformersEngine,
    requests: list[GenerateRequest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = run(engine, requests)
    monkeypatch.setattr(engine_module, "MAX_BATCH_TOKENS", 100)
    assert run(engine, requests) == together


@pytest.mark.parametrize(
    ("lengths", "batches"),
    [
        ([10] * 8 + [18] * 8, [8, 8]),  # 8 rows would have 8 more tokens each: more than 16 x 3
        ([10] * 6 + [18] * 8, [14]),
        ([10] * 30, [30]),
        ([1, 50, 51, 200], [1, 2, 1]),
        ([5, 5, 400], [2, 1]),
    ],
)
def test_batches_have_no_more_padding_than_another_batch_is_worth(
    engine: TransformersEngine,
    monkeypatch: pytest.MonkeyPatch,
    lengths: list[int],
    batches: list[int],
) -> None:
    monkeypatch.setattr(engine_module, "PADDING_A_STEP", {"cpu": 16, "cuda": 0})
    sizes: list[int] = []
    whole = engine._generate_batch
    monkeypatch.setattr(
        engine, "_generate_batch", lambda r, *rest: (sizes.append(len(r)), whole(r, *rest))[1]
    )
    run(engine, [GenerateRequest([40] * length, 7) for length in lengths], max_tokens=3)
    assert sizes == batches


def test_seeds_decide_the_tokens(
    engine: TransformersEngine, requests: list[GenerateRequest]
) -> None:
    ids = requests[0].prompt_ids
    found = run(engine, [GenerateRequest(ids, seed) for seed in range(20)])
    assert len({one.token_ids for one in found}) == 20
    torch.manual_seed(123)  # the global stream is none of a request's business
    assert run(engine, [GenerateRequest(ids, seed) for seed in range(20)]) == found


def test_shorter_limit_gives_a_beginning_of_the_longer_completion(
    engine: TransformersEngine, requests: list[GenerateRequest]
) -> None:
    long, short = run(engine, requests, max_tokens=16), run(engine, requests, max_tokens=5)
    for whole, cut in zip(long, short, strict=True):
        assert whole.token_ids[: len(cut.token_ids)] == cut.token_ids


def test_prompt_beyond_the_context_fails_alone_and_a_completion_ends_with_it(
    model: PreTrainedModel, tokenizer: FrameTokenizer, requests: list[GenerateRequest]
) -> None:
    endless = torch.full((len(tokenizer.hf),), -60.0)
    endless[torch.tensor([40, 41])] = 0.0
    engine = TransformersEngine(always(model, endless), tokenizer)
    assert engine.context == 512
    asked = [GenerateRequest([40] * length, 7) for length in (512, 10, 511, 508, 10_000, 505)]
    found = run(engine, asked, max_tokens=6)
    assert [one.failure for one in found] == ["too_long", None, None, None, "too_long", None]
    assert [len(one.token_ids) for one in found] == [0, 6, 1, 4, 0, 6]
    assert {one.finish_reason for one in found} == {"length"}
    assert [run(engine, [one], max_tokens=6)[0] for one in asked] == found


def test_no_requests_are_no_generations(engine: TransformersEngine) -> None:
    assert run(engine, []) == []


def always(model: PreTrainedModel, logits: torch.Tensor) -> PreTrainedModel:
    """Make a model give the same logits whatever it reads."""
    found = type(model)(model.config).eval()
    for parameter in found.parameters():
        torch.nn.init.zeros_(parameter)
    head = torch.nn.Linear(found.config.hidden_size, len(logits), bias=True)
    torch.nn.init.zeros_(head.weight)
    head.bias = torch.nn.Parameter(logits)
    found.lm_head = head
    return found


class Ends:
    """The frames' tokenizer with a second token that ends a completion (case 19)."""

    def __init__(self, tokenizer: FrameTokenizer, *others: int) -> None:
        self._tokenizer = tokenizer
        self.end_ids = tokenizer.end_ids | set(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def test_completion_ends_at_whichever_end_token_comes_first(
    model: PreTrainedModel, tokenizer: FrameTokenizer
) -> None:
    logits = torch.full((len(tokenizer.hf),), -60.0)
    logits[torch.tensor([40, 41, 77, tokenizer.eos_id])] = 0.0
    engine = TransformersEngine(always(model, logits), Ends(tokenizer, 77))
    ids = policy_prompt(tokenizer, "Write")
    found = run(engine, [GenerateRequest(ids, seed) for seed in range(60)], max_tokens=8)
    stopped = [one for one in found if one.finish_reason == "stop"]
    assert {one.token_ids[-1] for one in stopped} == {77, tokenizer.eos_id}
    for one in found:
        body = one.token_ids[:-1] if one in stopped else one.token_ids
        assert set(body) <= {40, 41}


def test_checkpoints_own_sampling_defaults_do_not_hold(
    model: PreTrainedModel, tokenizer: FrameTokenizer, requests: list[GenerateRequest]
) -> None:
    expected = run(TransformersEngine(model, tokenizer), requests)
    changed = copy.deepcopy(model)
    changed.generation_config.repetition_penalty = 3.0
    changed.generation_config.no_repeat_ngram_size = 1
    changed.generation_config.min_new_tokens = 9
    assert run(TransformersEngine(changed, tokenizer), requests) == expected


def test_folder_that_is_not_there_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config\.json"):
        load_model(tmp_path / "absent")


@pytest.mark.parametrize("min_p", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_follow_the_softmax_above_its_floor(
    model: PreTrainedModel, tokenizer: FrameTokenizer, temperature: float, min_p: float
) -> None:
    logits = torch.full((len(tokenizer.hf),), -60.0)
    support = torch.tensor([40, 41, 77, 300, 511])
    logits[support] = torch.tensor([0.0, 1.0, -1.0, 0.5, 2.0])
    engine = TransformersEngine(always(model, logits), tokenizer)
    ids = policy_prompt(tokenizer, "Write")
    found = run(
        engine,
        [GenerateRequest(ids, seed) for seed in range(300)],
        temperature=temperature,
        min_p=min_p,
        max_tokens=10,
    )
    drawn = np.array([one.token_ids for one in found])
    assert drawn.shape == (300, 10)
    warpers = [TemperatureLogitsWarper(temperature), MinPLogitsWarper(min_p)]
    warped = LogitsProcessorList(warpers)(torch.zeros((1, 0)), logits[None].double())[0]
    expected = torch.softmax(warped, 0)[support].numpy() * drawn.size
    observed = np.array([(drawn == int(token)).sum() for token in support])
    assert observed.sum() == drawn.size, "a token of no probability was drawn"
    assert (observed[expected == 0.0] == 0).all(), "a token below the floor was drawn"
    kept = expected > 0.0
    assert kept.sum() == 1 or stats.chisquare(observed[kept], expected[kept]).pvalue > 1e-4
    follows = stats.pearsonr(drawn[:, :-1].ravel(), drawn[:, 1:].ravel())
    assert not follows.pvalue <= 1e-4, "a token's draw follows the one before"


@pytest.mark.parametrize("stop", [True, False])
def test_finish_reason_says_whether_the_completion_ended(
    model: PreTrainedModel, tokenizer: FrameTokenizer, stop: bool
) -> None:
    logits = torch.full((len(tokenizer.hf),), -60.0)
    letter = tokenizer.content("x")[0]
    logits[tokenizer.eos_id if stop else letter] = 0.0
    engine = TransformersEngine(always(model, logits), tokenizer)
    asked = [GenerateRequest(policy_prompt(tokenizer, "Write"), seed) for seed in range(3)]
    for one in run(engine, asked, max_tokens=4):
        expected = ((tokenizer.eos_id,), "", "stop") if stop else ((letter,) * 4, "xxxx", "length")
        assert (one.token_ids, one.text, one.finish_reason) == expected


def test_completion_keeps_its_end_token_and_nothing_after(
    model: PreTrainedModel, tokenizer: FrameTokenizer
) -> None:
    logits = torch.full((len(tokenizer.hf),), -60.0)
    letter = tokenizer.content("x")[0]
    logits[tokenizer.eos_id] = logits[letter] = 0.0
    engine = TransformersEngine(always(model, logits), tokenizer)
    asked = [GenerateRequest(policy_prompt(tokenizer, "Write"), seed) for seed in range(40)]
    found = run(engine, asked, max_tokens=3)
    assert {one.finish_reason for one in found} == {"stop", "length"}
    for one in found:
        assert tokenizer.pad_id not in one.token_ids
        assert one.text == "x" * one.token_ids.count(letter)
        if one.finish_reason == "stop":
            assert one.token_ids.index(tokenizer.eos_id) == len(one.token_ids) - 1
        else:
            assert tokenizer.eos_id not in one.token_ids
            assert len(one.token_ids) == 3


def test_sampler_with_draws_at_both_ends_takes_tokens_that_have_probability() -> None:
    draws = torch.tensor([[0.0], [1.0 - 2**-53]], dtype=torch.float64)
    scores = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]]).repeat(2, 1)
    sampling = Sampling(temperature=1.0, min_p=0.0, max_tokens=1)
    chosen = SeededSampler(draws, sampling, 3)(torch.zeros((2, 3), dtype=torch.long), scores)
    assert chosen.argmax(dim=1).tolist() == [1, 2]


def naive_logprob(
    model: PreTrainedModel, prompt: list[int], completion: list[int], temperature: float
) -> float:
    """One row, no padding, token by token."""
    total = 0.0
    for place, token in enumerate(completion):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + completion[:place]])).logits[0, -1]
        total += float(torch.log_softmax(logits.double() / temperature, dim=-1)[token])
    return total


@pytest.mark.parametrize(("batch_size", "temperature"), [(1, 1.0), (3, 0.7), (128, 2.0)])
def test_sequence_logprobs_are_those_of_each_row_alone(
    engine: TransformersEngine, requests: list[GenerateRequest], batch_size: int, temperature: float
) -> None:
    model, tokenizer = engine.model, engine.tokenizer
    prompts = [list(request.prompt_ids) for request in requests]
    completions = [list(one.token_ids) for one in run(engine, requests, max_tokens=6)]
    completions[0] = []
    found = sequence_logprobs(
        model, prompts, completions, tokenizer.pad_id, temperature, batch_size
    )
    expected = [
        naive_logprob(model, p, c, temperature) for p, c in zip(prompts, completions, strict=True)
    ]
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert found[0] == 0.0


def test_sequence_logprobs_of_the_same_model_differ_by_nothing(
    engine: TransformersEngine, requests: list[GenerateRequest], tmp_path: Path
) -> None:
    engine.model.save_pretrained(str(tmp_path))
    prompts = [request.prompt_ids for request in requests]
    completions = [one.token_ids for one in run(engine, requests)]
    pad_id = engine.tokenizer.pad_id
    assert sequence_logprobs(load_model(tmp_path), prompts, completions, pad_id, 1.0) == (
        sequence_logprobs(engine.model, prompts, completions, pad_id, 1.0)
    )


@pytest.mark.parametrize(("gpu", "device"), [(True, "cuda"), (False, "cpu")])
def test_loaded_model_goes_to_the_gpu_if_there_is_one(
    engine: TransformersEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpu: bool,
    device: str,
) -> None:
    """On a machine without one a fake stands for the move."""
    engine.model.save_pretrained(str(tmp_path))
    engine.tokenizer.hf.save_pretrained(str(tmp_path))
    places: list[str] = []

    def move(model: PreTrainedModel, place: str) -> PreTrainedModel:
        places.append(str(place))
        return model

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(PreTrainedModel, "to", move)
    TransformersEngine.load(tmp_path)
    assert places == [device]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_model_on_the_gpu_samples_and_weighs_as_on_the_cpu(
    engine: TransformersEngine, requests: list[GenerateRequest], tmp_path: Path
) -> None:
    engine.model.save_pretrained(str(tmp_path))
    engine.tokenizer.hf.save_pretrained(str(tmp_path))
    loaded = TransformersEngine.load(tmp_path)
    assert loaded.model.device.type == "cuda"
    assert len(run(loaded, requests)) == len(requests)
    prompts = [request.prompt_ids for request in requests]
    completions = [one.token_ids for one in run(engine, requests)]
    on_gpu, on_cpu = (
        sequence_logprobs(model, prompts, completions, engine.tokenizer.pad_id)
        for model in (loaded.model, engine.model)
    )
    assert on_gpu == pytest.approx(on_cpu, rel=1e-2, abs=1e-2)


def test_pad_left_puts_the_rows_at_the_right() -> None:
    ids, mask = pad_left([[1, 2, 3], [4]], 9)
    assert ids.tolist() == [[1, 2, 3], [9, 9, 4]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]


def test_model_folder_with_code_of_its_own_is_refused_unrun(
    model: PreTrainedModel, tmp_path: Path
) -> None:
    """Case 52: `auto_map` names a module whose import leaves a mark."""
    model.save_pretrained(str(tmp_path))
    mark = tmp_path / "pwned"
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    config = (tmp_path / "config.json").read_text()
    own_code = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}
    hostile = {**json.loads(config), "model_type": "evil", "auto_map": own_code}
    (tmp_path / "config.json").write_text(json.dumps(hostile))
    with pytest.raises(UserError, match="auto_map"):
        load_model(tmp_path)
    with pytest.raises(ValueError, match=r"trust_remote_code|evil"):
        load_model(str(tmp_path))  # as a name on the hub
    assert not mark.exists()


def test_model_folder_with_pickled_weights_is_refused(
    model: PreTrainedModel, tmp_path: Path
) -> None:
    model.save_pretrained(str(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="safetensors"):
        load_model(tmp_path)
    with pytest.raises(OSError, match="safetensors"):
        load_model(str(tmp_path))
