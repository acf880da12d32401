"""Rubrics kept to their form: which recipes may ask for it, and which identities it is part of."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dynamicrubric.config import Config
from dynamicrubric.plan import Plan, expand
from dynamicrubric.yamlio import load_yaml
from tasks.training import generator_identity

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def document() -> dict[str, Any]:
    return load_yaml(ROOT / "params.yaml")


def plan_of(document: dict[str, Any], arm: str, **generator: Any) -> Plan:
    changed = copy.deepcopy(document)
    changed["study"]["arms"][arm].setdefault("generator", {}).update(generator)
    return expand(Config.model_validate(changed))


def test_false_is_the_default_and_is_written_nowhere(document: dict[str, Any]) -> None:
    plan = expand(Config.model_validate(document))
    assert plan == plan_of(document, "coevolved", constrained=False)
    assert not any("constrained" in str(cell.recipe.model_dump()) for cell in plan.cells.values())


def test_true_makes_other_cells_and_no_other_training_of_the_generator(
    document: dict[str, Any],
) -> None:
    free = expand(Config.model_validate(document)).cells["coevolved-s1-r1"]
    kept = plan_of(document, "coevolved", constrained=True).cells["coevolved-s1-r1"]
    assert kept.recipe.model_dump()["rubrics"]["constrained"] is True
    assert kept.training_hash != free.training_hash
    assert generator_identity(kept.recipe) == generator_identity(free.recipe)


def test_kept_rubrics_of_a_static_evaluator_are_others_under_a_grammar(
    document: dict[str, Any],
) -> None:
    free, kept = (
        plan_of(document, "static", constrained=value).cells["static-s1-r1"].recipe
        for value in (False, True)
    )
    assert generator_identity(kept) != generator_identity(free)


@pytest.mark.parametrize(
    ("arm", "changes", "words"),
    [
        ("oracle", {}, "evaluator 'oracle', which has no generator"),
        ("rule_based", {}, "evaluator 'rule_based', which has no generator"),
        ("scalar", {}, "evaluator 'scalar', which has no generator"),
        ("length", {}, "evaluator 'length', which has no generator"),
        ("frozen", {"engine": {"kind": "openai", "model": "m"}}, "engine.kind 'openai'"),
    ],
)
def test_what_cannot_be_kept_to_a_form_is_refused(
    document: dict[str, Any], arm: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        plan_of(document, arm, constrained=True, **changes)
    assert words in str(caught.value)
    assert "it can only be false" in str(caught.value)
