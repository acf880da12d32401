"""A cell's rubric writer under `generator.constrained`: valid rubrics from whatever weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from dynamicrubric.cells import CellRecipe
from dynamicrubric.config import load_config
from dynamicrubric.engines.choice import Engines, Sampler
from dynamicrubric.engines.tokenizer import FrameTokenizer
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.plan import expand
from dynamicrubric.rubrics import parse_rubric
from dynamicrubric.stepparts import dynamic_writer
from dynamicrubric.types import Rubric

ROOT = Path(__file__).resolve().parents[2]
SETS = [ResponseSet(str(n), "Write", ("dear Anna.",) * n) for n in (2, 3)]


class Here:
    """The engines of a step whose generator is a model in memory."""

    def __init__(self, engine: TransformersEngine, tokenizer: FrameTokenizer) -> None:
        self._sampler = Sampler(engine, tokenizer)

    def sampler(self, *_: Any, **__: Any) -> Sampler:
        return self._sampler


@pytest.fixture
def recipe() -> CellRecipe:
    found = expand(load_config(ROOT / "params.yaml")).cells["coevolved-s1-r1"].recipe
    sampling = found.rubrics.sampling.model_copy(update={"max_tokens": 400, "min_p": 0.0})
    rubrics = found.rubrics.model_copy(update={"sampling": sampling, "max_items": 3})
    return found.model_copy(update={"rubrics": rubrics})


@pytest.mark.parametrize("constrained", [True, False])
def test_random_weights_write_rubrics_of_the_form_only_if_they_are_kept_to_it(
    engine: TransformersEngine, tokenizer: FrameTokenizer, recipe: CellRecipe, constrained: bool
) -> None:
    rubrics = recipe.rubrics.model_copy(update={"constrained": constrained})
    cell = recipe.model_copy(update={"rubrics": rubrics})
    writer = dynamic_writer(cell, Path(), cast("Engines", Here(engine, tokenizer)))
    texts = [text for seed in range(3) for text in writer.write(SETS, [seed, seed])]
    whole = [one for one in texts if one.finish_reason == "stop"]
    found = [parse_rubric(one.text, min_items=3, max_items=3) for one in whole]
    assert constrained == any(isinstance(one, Rubric) for one in found)
    if constrained:
        assert all(isinstance(one, Rubric) for one in found), found
