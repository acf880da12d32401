"""A packed pass gives the logits of each prompt alone, whatever the attention."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from dynamicrubric.engines.packed import can_pack, run_packed
from dynamicrubric.engines.packing import Group, plan_batches, plan_layouts
from dynamicrubric.engines.transformers import last_logits
from dynamicrubric.seeds import generator_for

WINDOW = 7
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,  # far from uniform: a wrong mask or position shows
}
LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS = {
    "full": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "one_key_head": lambda: LlamaForCausalLM(LlamaConfig(**{**SIZES, "num_key_value_heads": 1})),
    "sliding": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=WINDOW)),
    "mixed": lambda: Qwen2ForCausalLM(
        Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=WINDOW, layer_types=LAYERS)
    ),
    "gemma": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**SIZES, head_dim=8, sliding_window=WINDOW, layer_types=LAYERS)
    ),
}
SHAPES = {
    "one question": [(5, [3])],
    "one token each": [(1, [1])],
    "odd lengths": [(13, [1, 9, 4, 7, 2])],
    "many questions": [(11, [1 + place % 6 for place in range(40)])],
    "several responses": [(23, [3, 8]), (1, [2, 2, 5]), (9, [4])],
    "questions beyond the window": [(3, [9, 20, 1]), (40, [12])],
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    torch.manual_seed(3)
    made: PreTrainedModel = MODELS[request.param]()
    return made.eval()


def make_groups(shapes: Sequence[tuple[int, Sequence[int]]]) -> list[Group]:
    rng = generator_for("packed")

    def draw(length: int) -> list[int]:
        return [int(token) for token in rng.integers(3, 64, length)]

    return [Group(draw(prefix), [draw(one) for one in questions]) for prefix, questions in shapes]


def alone(model: PreTrainedModel, groups: Sequence[Group]) -> dict[tuple[int, int], torch.Tensor]:
    return {
        batch.keys[0]: last_logits(model, batch.rows, 0)[0]
        for batch in plan_batches(groups, budget=1)
    }


def packed(
    model: PreTrainedModel, groups: Sequence[Group], *, budget: int = 4096, fill: int = 4096
) -> dict[tuple[int, int], torch.Tensor]:
    found: dict[tuple[int, int], torch.Tensor] = {}
    for layout in plan_layouts(groups, budget=budget, fill=fill):
        keys = [key for key, _ in layout.reads]
        found.update(zip(keys, run_packed(model, layout), strict=True))
    return found


def largest_difference(
    one: dict[tuple[int, int], torch.Tensor], other: dict[tuple[int, int], torch.Tensor]
) -> float:
    assert one.keys() == other.keys()
    pairs = [(one[key].softmax(0), other[key].softmax(0)) for key in one]
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("budget", [4096, 40])
def test_packed_question_has_the_probabilities_that_it_has_alone(
    model: PreTrainedModel, shape: str, budget: int
) -> None:
    groups = make_groups(SHAPES[shape])
    expected = alone(model, groups)
    assert largest_difference(packed(model, groups, budget=budget), expected) < 1e-4
    for fill in (1, 30):
        assert largest_difference(packed(model, groups, fill=fill), expected) < 1e-4


def test_questions_that_begin_alike_have_the_probabilities_that_they_have_alone(
    model: PreTrainedModel,
) -> None:
    """One is the beginning of another, before and behind it; and one is there twice."""
    questions = [[5, 6, 7, 8], [5, 6], [5, 6, 9, 10, 11], [12], [5, 6, 7, 8, 9], [5, 6, 9, 10, 11]]
    groups = [Group(list(range(20, 33)), questions), Group([40, 41], questions[::-1])]
    [layout] = plan_layouts(groups, budget=4096, fill=4096)
    assert len(layout.ids) == 13 + 2 + 2 * 9
    assert largest_difference(packed(model, groups), alone(model, groups)) < 1e-4


def test_padded_batch_has_the_probabilities_of_each_row_alone(model: PreTrainedModel) -> None:
    groups = make_groups(SHAPES["several responses"])
    [batch] = plan_batches(groups, budget=4096)
    together = dict(zip(batch.keys, last_logits(model, batch.rows, 0), strict=True))
    assert largest_difference(together, alone(model, groups)) < 1e-4


def test_window_matters_at_these_lengths() -> None:
    torch.manual_seed(3)
    narrow = MODELS["sliding"]().eval()
    wide = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)).eval()
    wide.load_state_dict(narrow.state_dict())
    groups = make_groups(SHAPES["several responses"])
    assert largest_difference(packed(narrow, groups), packed(wide, groups)) > 0.01


def test_question_is_blind_to_the_others_in_its_pass(model: PreTrainedModel) -> None:
    [group] = make_groups([(9, [4, 5, 6])])
    changed = Group(group.prefix, [group.questions[0], [7] * 30, group.questions[2]])
    before, after = packed(model, [group]), packed(model, [changed])
    for key in ((0, 0), (0, 2)):
        assert largest_difference({key: before[key]}, {key: after[key]}) < 1e-4
    assert largest_difference({(0, 1): before[0, 1]}, {(0, 1): after[0, 1]}) > 1e-4


def test_packed_pass_leaves_the_model_as_it_was(model: PreTrainedModel) -> None:
    before = model.config._attn_implementation
    packed(model, make_groups([(4, [2])]))
    assert model.config._attn_implementation == before


def test_capped_scores_are_not_packed() -> None:
    config = Gemma2Config(**SIZES, head_dim=8, layer_types=LAYERS)
    assert not can_pack(Gemma2ForCausalLM(config))
    assert all(can_pack(make()) for make in MODELS.values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_pass_on_the_gpu_has_the_probabilities_of_each_prompt_alone(
    model: PreTrainedModel, dtype: torch.dtype
) -> None:
    moved = type(model)(model.config).to("cuda", dtype).eval()
    groups = make_groups(SHAPES["several responses"])
    limit = 1e-3 if dtype is torch.float32 else 5e-2
    assert largest_difference(packed(moved, groups), alone(moved, groups)) < limit
