"""What evaluators are put together from: their spec, world and engines, and who writes rubrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dynamicrubric.engines.base import Constrained, Generation
from dynamicrubric.enginesettings import InProcess, OpenAI
from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.base import Cost
from dynamicrubric.evaluators.judging import Judging, ResponseSet
from dynamicrubric.evaluators.metering import Meter, MeteredEngine, MeteredVerifier
from dynamicrubric.evaluators.rubricscores import PromptWriter
from dynamicrubric.evaluators.spec import EvaluatorSpec
from dynamicrubric.evaluators.writers import DynamicWriter, KeptWriter
from dynamicrubric.prompts.roles import generator_messages
from dynamicrubric.rubrics import rubric_schema
from dynamicrubric.worlds.base import World
from dynamicrubric.worlds.prepared import PreparedData

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines

NOT_KEPT: Final = "not_kept"
"""Why a prompt has no rubric of a static arm that kept rubrics alone, without a checkpoint."""


@dataclass(frozen=True)
class Parts:
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


def prompt_writer(parts: Parts) -> tuple[PromptWriter, Meter]:
    """Return what writes a rubric once a prompt, those that an arm kept at first, and its meter."""
    kept = kept_rubrics(parts)
    if kept:
        late = _LateWriter(parts)
        return PromptWriter(late, parts.spec.seed, kept), late
    writer, meter = generator_writer(parts)
    return PromptWriter(writer, parts.spec.seed), meter


@dataclass
class _LateWriter:
    """Opens its generator when a prompt has no kept rubric: an arm's own prompts all have one.

    The artefact of an arm whose generator was never trained holds rubrics and no checkpoint: what
    is not kept there cannot be written.
    """

    parts: Parts
    _opened: tuple[DynamicWriter, MeteredEngine] | None = None
    _unwritten: int = 0

    def write(self, sets: Sequence[ResponseSet], seeds: Sequence[int]) -> list[Generation]:
        """Write rubrics; without a checkpoint they fail as "not_kept"."""
        if self._opened is None and not _can_write(self.parts.spec):
            self._unwritten += len(sets)
            return [Generation.failed(NOT_KEPT) for _ in sets]
        self._opened = self._opened or generator_writer(self.parts)
        return self._opened[0].write(sets, seeds)

    def take(self) -> list[Cost]:
        """Return what writing took."""
        nothing, self._unwritten = [Cost()] * self._unwritten, 0
        return nothing if self._opened is None else self._opened[1].take()


def _can_write(spec: EvaluatorSpec) -> bool:
    """Whether there is a generator beside the rubrics that were kept."""
    folder = Path(str(spec.generator))
    names = ("config.json", "adapter_config.json")
    served = isinstance(spec.generator_engine, OpenAI)
    return served or any((folder / name).is_file() for name in names)


def generator_writer(parts: Parts) -> tuple[DynamicWriter, MeteredEngine]:
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
        engine, tokenizer = opened.sampler(
            "generator", spec.generator_engine, folder, constrained=spec.constrained
        )
    else:
        _check_in_process(spec)
        engine, tokenizer = opened.base_sampler()
    schema = rubric_schema(min_items=spec.min_items, max_items=spec.max_items)
    meter = MeteredEngine(Constrained(engine, schema) if spec.constrained else engine)
    return DynamicWriter(meter, tokenizer.generator_prompt, spec.sampling), meter


def _check_in_process(spec: EvaluatorSpec) -> None:
    if not isinstance(spec.generator_engine, InProcess):
        raise UserError(
            doing=f"building the evaluator {spec.label!r}",
            got=f"generator_engine.kind {spec.generator_engine.kind!r} without a checkpoint",
            expected="a generator's folder, or the engine 'transformers' for the base as it is",
        )


def kept_rubrics(parts: Parts) -> dict[tuple[str, str], Generation]:
    """Return the rubrics that a static arm's artefact keeps, for the world's prompts alone."""
    folder, prepared = parts.spec.generator, parts.prepared
    if folder is None or prepared is None or not KeptWriter.is_in(Path(folder)):
        return {}
    kept, texts = KeptWriter.load(Path(folder)).kept, prepared.all_prompts
    return {(key, texts[key]): rubric for key, rubric in kept.items() if key in texts}


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
