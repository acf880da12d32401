"""The one place where an evaluator's values become an evaluator.

No torch is imported until a model is asked for; docs/evaluators.md shows a call.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.config import VerifierConfig
from dynamicrubric.engines.programmatic import ProgrammaticVerifier
from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.base import Evaluator
from dynamicrubric.evaluators.baselines import LengthEvaluator, OracleEvaluator, RandomEvaluator
from dynamicrubric.evaluators.guard import Guarded
from dynamicrubric.evaluators.judging import Judging
from dynamicrubric.evaluators.metering import MeteredVerifier
from dynamicrubric.evaluators.pairwise import PairwiseEvaluator
from dynamicrubric.evaluators.parts import Parts, generator_writer, judging, prompt_writer
from dynamicrubric.evaluators.rated import FlaskEvaluator, GEvalEvaluator, ImplicitEvaluator
from dynamicrubric.evaluators.rubricscores import PromptRubrics, RubricEvaluator
from dynamicrubric.evaluators.scalar import ScalarEvaluator
from dynamicrubric.evaluators.spec import SEES_SET, EvaluatorSpec, Kind
from dynamicrubric.evaluators.writers import FixedWriter
from dynamicrubric.rubrics import parse_rubric, render_rubric
from dynamicrubric.types import InvalidRubric
from dynamicrubric.worlds.base import LANGUAGE, POSTCARDS, World, world_named
from dynamicrubric.worlds.prepared import PreparedData, load_prepared

if TYPE_CHECKING:
    from dynamicrubric.engines.base import Verifier
    from dynamicrubric.engines.choice import Engines

Source = World | PreparedData | Path | None


def build_evaluator(
    spec: EvaluatorSpec, source: Source = None, engines: Engines | None = None
) -> Evaluator:
    """Return the evaluator that a spec describes.

    Args:
        spec: kind, checkpoints, verifier, limits.
        source: the world, its prepared data or their folder; None: the world `language` without
            data, whose evaluators read any prompt.
        engines: opens the models; `length`, `random`, `oracle` and `programmatic` need none. It has
            to stay open as long as the evaluator scores.

    Raises:
        UserError: the kind does not go with the world, or lacks something.
        InstrumentError: a model does not load, or fails its check.
    """
    if isinstance(source, Path):
        source = load_prepared(source)
    prepared = source if isinstance(source, PreparedData) else None
    world = prepared.world if prepared else source or world_named(LANGUAGE)
    assert not isinstance(world, PreparedData)
    return Guarded(_MAKERS[spec.kind](Parts(spec, world, prepared, engines)))


def _rubric_evaluator(parts: Parts) -> Evaluator:
    # The writer first: a vLLM child that is started for it serves the verifier too.
    spec = parts.spec
    _check_verifier(parts)
    if spec.kind == "dynamic":
        writer, engine = generator_writer(parts)
        verifier = MeteredVerifier(parts.world.verifier(spec.verifier, parts.opened()))
        return RubricEvaluator(spec.label, True, writer, judging(spec, verifier), engine, verifier)
    once, meter = prompt_writer(parts)
    verifier = MeteredVerifier(parts.world.verifier(spec.verifier, parts.opened()))
    return RubricEvaluator(spec.label, False, once, judging(spec, verifier), meter, verifier)


def _check_verifier(parts: Parts) -> None:
    """Refuse a language model where the world's program would give the verdicts all the same.

    The default is one too, and asks for nothing.
    """
    spec = parts.spec
    asked = "verifier" in spec.model_fields_set and spec.verifier.kind == "language_model"
    if asked and parts.world.name != LANGUAGE:
        raise UserError(
            doing=f"building the evaluator {spec.label!r}",
            got=f"verifier.kind 'language_model' in the world {parts.world.name!r}",
            expected="'programmatic': a program gives the verdicts there",
            remedy=f"leave the verifier out, or take a profile of the world {LANGUAGE!r}",
        )


def _programmatic(parts: Parts) -> Evaluator:
    spec = parts.spec
    text = spec.rubric if spec.rubric is not None else _rules(parts)
    verifier = MeteredVerifier(_program(parts))
    rubric = parse_rubric(text, min_items=spec.min_items, max_items=spec.max_items)
    if isinstance(rubric, InvalidRubric):
        raise UserError(
            doing=f"reading the rubric of the evaluator {spec.label!r}",
            got=f"{rubric.reason}: {rubric.detail}",
            expected=f"a rubric of {spec.min_items} to {spec.max_items} items as JSON",
        )
    unread = [c for c in rubric.criteria if not verifier.accepts(c)]
    if unread:
        raise UserError(
            doing=f"reading the rubric of the evaluator {spec.label!r}",
            got=f"the criterion {unread[0]!r}, which no program of the world "
            f"{parts.world.name!r} can check",
            remedy="use a criterion of the world, or the kind 'static' with a language model",
        )
    return RubricEvaluator(
        spec.label, False, FixedWriter(text), judging(spec, verifier), None, verifier
    )


def _program(parts: Parts) -> Verifier:
    """Return the world's program as the verifier, with the error and failure rates of the spec."""
    settings = parts.spec.verifier
    program = VerifierConfig(
        error_rate=settings.error_rate,
        failure_rate=settings.failure_rate,
        max_unscored_rate=settings.max_unscored_rate,
    )
    return parts.world.program(program)


def _rules(parts: Parts) -> str:
    if parts.world.name != POSTCARDS:
        raise UserError(
            doing=f"building the evaluator {parts.spec.label!r}",
            got=f"the world {parts.world.name!r}, where nobody wrote a rubric for all prompts",
            expected="a rubric's JSON in `rubric`, of criteria that a program can check",
        )
    return render_rubric(parts.world.rules(parts.spec.max_items))


def _rated(parts: Parts) -> Evaluator:
    spec = parts.spec
    if parts.world.name != LANGUAGE:
        raise UserError(
            doing=f"building the evaluator {spec.label!r}",
            got=f"kind {spec.kind!r} in the world {parts.world.name!r}",
            expected=f"the world {LANGUAGE!r}: it takes a language model that rates",
        )
    if spec.verifier.kind != "language_model":
        raise UserError(
            doing=f"building the evaluator {spec.label!r}",
            got=f"verifier.kind {spec.verifier.kind!r} with kind {spec.kind!r}",
            expected="'language_model': a program gives no ratings",
        )
    if spec.kind == "static_implicit":  # its writer first, as above
        once, meter = prompt_writer(parts)
        rubrics = PromptRubrics(once, _reading(spec), meter)
        return ImplicitEvaluator(parts.opened().rater(spec.verifier), rubrics, spec.label)
    rater = parts.opened().rater(spec.verifier)
    if spec.kind == "geval":
        return GEvalEvaluator(rater, spec.label)
    if spec.kind == "flask":
        return FlaskEvaluator(rater, spec.num_skills, spec.label)
    assert spec.kind == "pairwise", f"{spec.kind} is not rated"
    return PairwiseEvaluator(rater, spec.label)


def _reading(spec: EvaluatorSpec) -> Judging:
    """Return how a rubric is read that no verifier judges: any sentence is a criterion."""
    return judging(spec, MeteredVerifier(ProgrammaticVerifier(lambda criterion, _: True)))


def _scalar(parts: Parts) -> Evaluator:
    from dynamicrubric.engines.reward import load_reward_model

    spec = parts.spec
    if spec.reward_model is None:
        raise UserError(
            doing=f"building the evaluator {spec.label!r}",
            got="no reward_model",
            expected="the folder of one, or its name on the hub",
            remedy="train one: the arm `scalar` of a study does in its first round",
        )
    models = parts.opened().models
    model = load_reward_model(spec.reward_model, models)
    parts.opened().note(models.identity("reward_model", model.folder))
    return ScalarEvaluator(model, spec.label, spec.kind in SEES_SET)


def _oracle(parts: Parts) -> Evaluator:
    if parts.world.lowest_quality is None:
        raise UserError(
            doing=f"building the evaluator {parts.spec.label!r}",
            got=f"the world {parts.world.name!r}, where nobody knows true quality",
            expected=f"the world {POSTCARDS!r}",
        )
    return OracleEvaluator(parts.world.true_quality, parts.spec.label)


_MAKERS: Final[dict[Kind, Callable[[Parts], Evaluator]]] = {
    "dynamic": _rubric_evaluator,
    "static": _rubric_evaluator,
    "scalar": _scalar,
    "scalar_set": _scalar,
    "static_implicit": _rated,
    "geval": _rated,
    "flask": _rated,
    "pairwise": _rated,
    "programmatic": _programmatic,
    "length": lambda parts: LengthEvaluator(parts.spec.label),
    "random": lambda parts: RandomEvaluator(parts.spec.label),
    "oracle": _oracle,
}
