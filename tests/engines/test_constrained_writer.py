"""A cell's rubric writer under `generator.constrained`: valid rubrics from whatever weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

from dynamicrubric.cells import CellRecipe
from dynamicrubric.config import Sampling, load_config
from dynamicrubric.engines.choice import Engines, Sampler
from dynamicrubric.engines.tokenizer import FrameTokenizer
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.enginesettings import OpenAI
from dynamicrubric.evaluators.judging import ResponseSet
from dynamicrubric.evaluators.parts import Parts, generator_writer
from dynamicrubric.evaluators.spec import EvaluatorSpec
from dynamicrubric.plan import expand
from dynamicrubric.rubrics import parse_rubric
from dynamicrubric.stepparts import dynamic_writer
from dynamicrubric.types import Rubric
from dynamicrubric.worlds.base import LANGUAGE, world_named

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


def test_evaluator_that_is_kept_to_the_form_writes_as_its_arm_does(
    engine: TransformersEngine, tokenizer: FrameTokenizer, tmp_path: Path
) -> None:
    spec = EvaluatorSpec(
        kind="static_implicit", generator=str(tmp_path), constrained=True, min_items=3, max_items=3,
        sampling=Sampling(temperature=1.0, min_p=0.0, max_tokens=400),
    )  # fmt: skip
    opened = cast("Engines", Here(engine, tokenizer))
    writer, meter = generator_writer(Parts(spec, world_named(LANGUAGE), None, opened))
    texts = [text for seed in range(3) for text in writer.write(SETS, [seed, seed])]
    found = [
        parse_rubric(one.text, min_items=3, max_items=3)
        for one in texts
        if one.finish_reason == "stop"
    ]
    assert found
    assert all(isinstance(one, Rubric) for one in found), found
    assert len(meter.take()) == len(texts)


def test_form_is_refused_where_nobody_writes_and_at_an_endpoint() -> None:
    with pytest.raises(ValidationError, match="constrained is true with kind 'geval'"):
        EvaluatorSpec(kind="geval", constrained=True)
    engine = OpenAI(kind="openai", model="m")
    with pytest.raises(ValidationError, match=r"generator_engine\.kind 'openai'"):
        EvaluatorSpec(kind="dynamic", constrained=True, generator_engine=engine)
