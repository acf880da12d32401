"""The one place where an evaluator's values become an evaluator. No torch until an engine is asked.

with Engines(Models(prepared.base)) as engines:
evaluator = build_evaluator(EvaluatorSpec(kind="static", generator=folder), prepared, engines)
scored = evaluator.score(sets, seeds)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.config import VerifierConfig
from dynamicrubric.engines.programmatic import ProgrammaticVerifier
from dynamicrubric.enginesettings import InProcess, OpenAI
from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.base import Evaluator
from dynamicrubric.evaluators.baselines import LengthEvaluator, OracleEvaluator, RandomEvaluator
from dynamicrubric.evaluators.guard import Guarded
from dynamicrubric.evaluators.judging import Judging
from dynamicrubric.evaluators.metering import MeteredEngine, MeteredVerifier
from dynamicrubric.evaluators.pairwise import PairwiseEvaluator
from dynamicrubric.evaluators.rated import FlaskEvaluator, GEvalEvaluator, ImplicitEvaluator
from dynamicrubric.evaluators.rubricscores import PromptRubrics, PromptWriter, RubricEvaluator
from dynamicrubric.evaluators.scalar import ScalarEvaluator
from dynamicrubric.evaluators.spec import SEES_SET, EvaluatorSpec, Kind
from dynamicrubric.evaluators.writers import DynamicWriter, FixedWriter, KeptWriter
from dynamicrubric.prompts.roles import generator_messages
from dynamicrubric.rubrics import parse_rubric, render_rubric
from dynamicrubric.types import InvalidRubric
from dynamicrubric.worlds.base import LANGUAGE, POSTCARDS, World, world_named
from dynamicrubric.worlds.prepared import PreparedData, load_prepared

if TYPE_CHECKING:
    from dynamicrubric.engines.base import Generation, Verifier
    from dynamicrubric.engines.choice import Engines

Source = World | PreparedData | Path | None


@dataclass(frozen=True)
class _Parts:
    """What an evaluator is put together from.

    Attributes:
        spec: its values.
        world: whose verifier and rules it has.
        prepared: prompts and anchors, where they are at hand.
        engines: opens models; None where none may be asked.
    """

    spec: EvaluatorSpec
    world: World
    prepared: PreparedData | None
    engines: Engines | None

    def opened(self) -> Engines:
        """Return the engines.

        Raises:
            UserError: there are none.
        """
        if self.engines is None:
            raise UserError(
                doing=f"building the evaluator {self.spec.label!r}",
                got=f"no engines, which kind {self.spec.kind!r} needs",
                expected="engines.choice.Engines over the models of its world",
            )
        return self.engines


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
    return Guarded(_MAKERS[spec.kind](_Parts(spec, world, prepared, engines)))


def _rubric_evaluator(parts: _Parts) -> Evaluator:
    spec = parts.spec
    writer, engine = generator_writer(parts)
    verifier = MeteredVerifier(parts.world.verifier(spec.verifier, parts.opened()))
    if spec.kind == "dynamic":
        return RubricEvaluator(spec.label, True, writer, judging(spec, verifier), engine, verifier)
    once = PromptWriter(writer, spec.seed, kept_rubrics(parts))
    return RubricEvaluator(spec.label, False, once, judging(spec, verifier), engine, verifier)


def judging(spec: EvaluatorSpec, verifier: MeteredVerifier) -> Judging:
    """Return how a spec's rubrics are read and applied."""
    return Judging(
        verifier,
        spec.min_items,
        spec.max_items,
        max_invalid_rate=1.0,
        max_unscored_rate=spec.verifier.max_unscored_rate,
        equal_weights=spec.weights == "equal",
    )


def generator_writer(parts: _Parts) -> tuple[DynamicWriter, MeteredEngine]:
    """Return what writes rubrics, and the meter of its engine.

    Raises:
        UserError: there is neither a checkpoint nor a base nor an endpoint.
    """
    spec, opened = parts.spec, parts.opened()
    if isinstance(spec.generator_engine, OpenAI):
        meter = MeteredEngine(opened.chat(spec.generator_engine))
        return DynamicWriter(meter, None, spec.sampling, ask=generator_messages), meter
    if spec.generator is not None:
        folder = existing_folder(spec.generator, f"the generator of {spec.label!r}")
        engine, tokenizer = opened.sampler("generator", spec.generator_engine, folder)
    else:
        _check_in_process(spec)
        engine, tokenizer = opened.base_sampler()
    meter = MeteredEngine(engine)
    return DynamicWriter(meter, tokenizer.generator_prompt, spec.sampling), meter


def _check_in_process(spec: EvaluatorSpec) -> None:
    if not isinstance(spec.generator_engine, InProcess):
        raise UserError(
            doing=f"building the evaluator {spec.label!r}",
            got=f"generator_engine.kind {spec.generator_engine.kind!r} without a checkpoint",
            expected="a generator's folder, or the engine 'transformers' for the base as it is",
        )


def kept_rubrics(parts: _Parts) -> dict[tuple[str, str], Generation]:
    """Return the rubrics that a static arm's artefact keeps, for the world's prompts alone."""
    folder, prepared = parts.spec.generator, parts.prepared
    if folder is None or prepared is None or not KeptWriter.is_in(Path(folder)):
        return {}
    kept, texts = KeptWriter.load(Path(folder)).kept, prepared.all_prompts
    return {(key, texts[key]): rubric for key, rubric in kept.items() if key in texts}


def _programmatic(parts: _Parts) -> Evaluator:
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


def _program(parts: _Parts) -> Verifier:
    """Return the world's program as the verifier, with the error and failure rates of the spec."""
    settings = parts.spec.verifier
    program = VerifierConfig(
        error_rate=settings.error_rate,
        failure_rate=settings.failure_rate,
        max_unscored_rate=settings.max_unscored_rate,
    )
    return parts.world.program(program)


def _rules(parts: _Parts) -> str:
    if parts.world.name != POSTCARDS:
        raise UserError(
            doing=f"building the evaluator {parts.spec.label!r}",
            got=f"the world {parts.world.name!r}, where nobody wrote a rubric for all prompts",
            expected="a rubric's JSON in `rubric`, of criteria that a program can check",
        )
    return render_rubric(parts.world.rules(parts.spec.max_items))


def _rated(parts: _Parts) -> Evaluator:
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
    rater = parts.opened().rater(spec.verifier)
    if spec.kind == "geval":
        return GEvalEvaluator(rater, spec.label)
    if spec.kind == "flask":
        return FlaskEvaluator(rater, spec.num_skills, spec.label)
    if spec.kind == "pairwise":
        return PairwiseEvaluator(rater, spec.label)
    writer, engine = generator_writer(parts)
    once = PromptWriter(writer, spec.seed, kept_rubrics(parts))
    return ImplicitEvaluator(rater, PromptRubrics(once, _reading(spec), engine), spec.label)


def _reading(spec: EvaluatorSpec) -> Judging:
    """Return how a rubric is read that no verifier judges: any sentence is a criterion."""
    return judging(spec, MeteredVerifier(ProgrammaticVerifier(lambda criterion, _: True)))


def _scalar(parts: _Parts) -> Evaluator:
    from dynamicrubric.engines.reward import load_reward_model

    spec = parts.spec
    if spec.reward_model is None:
        raise UserError(
            doing=f"building the evaluator {spec.label!r}",
            got="no reward_model",
            expected="the folder of one, or its name on the hub",
            remedy="train one: the arm `scalar` of a study does in its first round",
        )
    model = load_reward_model(spec.reward_model, parts.opened().models)
    return ScalarEvaluator(model, spec.label, spec.kind in SEES_SET)


def _oracle(parts: _Parts) -> Evaluator:
    if parts.world.lowest_quality is None:
        raise UserError(
            doing=f"building the evaluator {parts.spec.label!r}",
            got=f"the world {parts.world.name!r}, where nobody knows true quality",
            expected=f"the world {POSTCARDS!r}",
        )
    return OracleEvaluator(parts.world.true_quality, parts.spec.label)


_MAKERS: Final[dict[Kind, Callable[[_Parts], Evaluator]]] = {
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


def existing_folder(name: str, what: str) -> Path:
    """Return a checkpoint's folder.

    Raises:
        UserError: there is none of that name.
    """
    folder = Path(name)
    if not folder.is_dir():
        raise UserError(
            doing=f"looking for {what}", got=f"no folder {name}", expected="a checkpoint's folder"
        )
    return folder
