"""The engines of one step: opened when first needed, kept until the step ends, closed with it.

A step's process holds its own models (`models.Models`). What a recipe gives to vLLM or to an
endpoint is opened here, once: roles that vLLM serves in one number format share one child, each
with its own adapter, and the verifier with none. An adapter is known by the hash of its folder, and
before it answers anything a probe has to show that vLLM computes what the adapter does here.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from dynamicrubric.config import VerifierConfig
from dynamicrubric.engines.access import EndpointConfig, EndpointPlace
from dynamicrubric.engines.base import ConstrainableEngine, PromptTokenizer, Verifier
from dynamicrubric.engines.bill import Bill, bill_of
from dynamicrubric.engines.chattokenizer import ChatTokenizer
from dynamicrubric.engines.endpoint import Endpoint
from dynamicrubric.engines.identity import EngineIdentity, probe_prompt
from dynamicrubric.engines.models import Models
from dynamicrubric.engines.nexttokens import ModelNextTokens
from dynamicrubric.engines.noise import undecided_band
from dynamicrubric.engines.openai import OpenAIEngine
from dynamicrubric.engines.places import EnginePlaces
from dynamicrubric.engines.rating import IdRater, Rater, check_alone_and_together
from dynamicrubric.engines.reading import VerdictReading
from dynamicrubric.engines.reference import probe_of
from dynamicrubric.engines.room import Room, rank_of
from dynamicrubric.engines.tokenengine import TokenEngine
from dynamicrubric.engines.tokenizer import load_tokenizer
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.engines.verifier import (
    CPU_BUDGET,
    GPU_BUDGET,
    TOLERANCES,
    Reading,
    checked_verifier,
)
from dynamicrubric.engines.vllm import PROBE_TOLERANCE, VllmEngine
from dynamicrubric.engines.vllm_process import VllmConfig
from dynamicrubric.engines.vllm_server import VllmServer
from dynamicrubric.engines.vllm_view import VllmView
from dynamicrubric.enginesettings import (
    GeneratorEngine,
    InProcess,
    InProcessVerifier,
    OpenAI,
    OpenAIVerifier,
    OwnFrame,
    PolicyEngine,
    Vllm,
    VllmServerVerifier,
    VllmVerifier,
)

ENGINES_FILE: Final = "engines.json"
"""In a step's artefact: which engines answered in it, and what endpoints were paid."""
_NEVER_ASKED: Final = 1 << 16
"""Room for verdicts of a role that gives none: no reason to refuse a frame that opens thinking."""
_PROBE_TOKENS: Final = 257
"""Longer than two blocks of a server's prefix cache, so that a stale one shows."""


class Sampler(NamedTuple):
    """What samples completions, and what its prompts are rendered with."""

    engine: ConstrainableEngine
    tokenizer: PromptTokenizer


class Engines:
    """Opens engines for a step; use it in a `with` statement."""

    def __init__(self, models: Models, places: EnginePlaces | None = None) -> None:
        """Open nothing yet.

        Args:
            models: the step's own models.
            places: where engines run; by default in this process alone.
        """
        self.models = models
        self._places = places or EnginePlaces()
        self._stack = ExitStack()
        self._children: dict[tuple[str, int], VllmEngine] = {}
        self._room: dict[tuple[str, int], Room] = {}
        self._verifiers: dict[str, Verifier] = {}
        self._identities: list[EngineIdentity] = []
        self._paid: list[tuple[EndpointPlace, Endpoint]] = []
        self._billed = Bill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def sampler(
        self,
        role: str,
        settings: PolicyEngine,
        checkpoint: Path,
        here: TransformersEngine | None = None,
        *,
        constrained: bool = False,
    ) -> Sampler:
        """Return what samples for a role.

        Args:
            role: policy or generator.
            settings: which engine.
            checkpoint: the role's folder.
            here: the checkpoint in this process, if the step has loaded it already.
            constrained: whether completions will be kept to a schema.

        Raises:
            UserError: no interpreter of vLLM's environment.
            InstrumentError: vLLM does not start, or does not compute what the adapter does.
        """
        if isinstance(settings, InProcess):
            engine = here or self.models.engine(checkpoint)
            self.note(self.models.identity(role, checkpoint))
            return Sampler(engine, engine.tokenizer)
        child = self._child(settings, Room(rank_of(checkpoint), constrained))
        tokenizer = load_tokenizer(checkpoint)
        view = VllmView(child, role, tokenizer, adapter=checkpoint, max_verdict_tokens=_NEVER_ASKED)
        model = here.model if here else self.models.load(checkpoint)
        prompt = child.probe_prompt()
        expected, base = probe_of(model, prompt), probe_of(self.models.base(), prompt)
        view.verify_adapter(expected, base, self._tolerance(settings.dtype))
        self.note(view.identity)
        return Sampler(view, tokenizer)

    def base_sampler(self) -> Sampler:
        """Return the base as it is, in this process: a role that nobody has trained.

        Raises:
            UserError: there is no base.
        """
        tokenizer = load_tokenizer(self.models.base_folder)
        self.note(self.models.identity("generator"))
        return Sampler(TransformersEngine(self.models.base(), tokenizer), tokenizer)

    def make_room(
        self, settings: GeneratorEngine, checkpoint: Path, *, constrained: bool = False
    ) -> None:
        """Say that a checkpoint will be sampled from later than the base is asked.

        The child that is opened for the base has room for the adapter then, and none is opened
        beside it.

        Args:
            settings: the engine that will sample.
            checkpoint: a folder with an adapter of the same rank.
            constrained: whether completions will be kept to a schema.
        """
        if isinstance(settings, Vllm):
            self._room[_format(settings)] = Room(rank_of(checkpoint), constrained)

    def chat(self, settings: OpenAI) -> OpenAIEngine:
        """Return an endpoint's model as the generator; it takes conversations alone."""
        engine = OpenAIEngine(self._endpoint(settings.model), role="generator", top_logprobs=0)
        self.note(engine.identity)
        return engine

    def verifier(self, settings: VerifierConfig) -> Verifier:
        """Return a language model as the verifier; the same one for the same settings.

        Raises:
            UserError: an endpoint, interpreter or checkpoint that will not do.
            InstrumentError: it cannot be reached, or has other weights than the base.
        """
        name = settings.model_dump_json()
        if name not in self._verifiers:
            self._verifiers[name] = self._open_verifier(settings)
        return self._verifiers[name]

    def rater(self, settings: VerifierConfig) -> Rater:
        """Return a language model as a judge that rates; its engine is a verifier's.

        Raises:
            UserError: an endpoint, interpreter or checkpoint that will not do, or an engine that
                tells no probabilities.
            InstrumentError: it cannot be reached, or has other weights than the base.
        """
        engine, floor = settings.engine, settings.coverage_floor
        if isinstance(engine, InProcessVerifier):
            tokenizer, model = self._tokenizer(engine), self.models.base()
            budget = GPU_BUDGET if model.device.type == "cuda" else CPU_BUDGET
            rater = IdRater(ModelNextTokens(model, tokenizer.pad_id, budget), tokenizer, floor)
            check_alone_and_together(rater, 4 * TOLERANCES[model.dtype])  # of a scale of 1 to 5
            self.note(self.models.identity("verifier", answers="ratings"))
            return rater
        # No band is measured: a rating has none.
        opened = self.verifier(settings.model_copy(update={"undecided_band": 0.0}))
        if isinstance(opened, OpenAIEngine):
            return opened
        assert isinstance(opened, TokenEngine)
        return IdRater(opened, opened.tokenizer, floor)

    def note(self, identity: EngineIdentity) -> None:
        """Have an engine in the artefact's list of those that answered; each stands there once."""
        if identity not in self._identities:
            self._identities.append(identity)

    def spent(self) -> dict[str, float]:
        """Return what endpoints were paid since the last call, as metrics; none without any."""
        now = self._bill()
        since, self._billed = now - self._billed, now
        return since.as_metrics() if self._paid else {}

    def write(self, out_dir: Path, *, with_cost: bool) -> None:
        """Say in an artefact which engines answered in its making; nothing if none did.

        Args:
            out_dir: the artefact.
            with_cost: whether what they were paid stands there too: a training has it in its log,
                which outlives a kill.
        """
        if not self._identities:
            return
        document: dict[str, Any] = {"engines": [one.as_record() for one in self._identities]}
        if with_cost and self._paid:
            document["cost"] = self._bill().as_metrics()
        text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)
        (out_dir / ENGINES_FILE).write_text(text + "\n", encoding="utf-8")

    def _open_verifier(self, settings: VerifierConfig) -> Verifier:
        engine = settings.engine
        reading = VerdictReading(
            languages=settings.languages,
            coverage_floor=settings.coverage_floor,
            undecided_band=settings.undecided_band or 0.0,
        )
        opened: VllmView | VllmServer | OpenAIEngine
        if isinstance(engine, VllmVerifier):
            opened = self._vllm_verifier(engine, reading)
        elif isinstance(engine, VllmServerVerifier):
            opened = self._server_verifier(engine, reading)
        elif isinstance(engine, OpenAIVerifier):
            opened = OpenAIEngine(
                self._endpoint(engine.model),
                reading=reading,
                top_logprobs=engine.top_logprobs,
                max_verdict_tokens=engine.max_verdict_tokens,
            )
        else:
            packed = Reading(
                languages=settings.languages,
                coverage_floor=settings.coverage_floor,
                undecided_band=settings.undecided_band,
            )
            verifier = checked_verifier(self.models.base(), self._tokenizer(engine), packed)
            band = verifier.undecided_band
            self.note(self.models.identity("verifier", undecided_band=band))
            return verifier
        if settings.undecided_band is None:
            opened.reading = replace(reading, coverage_floor=0.0)
            opened.reading = replace(reading, undecided_band=undecided_band(opened))
        self.note(_with_band(opened.identity, opened.reading.undecided_band))
        return opened

    def _vllm_verifier(self, engine: VllmVerifier, reading: VerdictReading) -> VllmView:
        return VllmView(
            self._child(engine, Room()),
            "verifier",
            self._tokenizer(engine),
            reading=reading,
            max_verdict_tokens=engine.max_verdict_tokens,
        )

    def _server_verifier(self, engine: VllmServerVerifier, reading: VerdictReading) -> VllmServer:
        tokenizer = self._tokenizer(engine)
        prompt = probe_prompt(tokenizer.content_ids, _PROBE_TOKENS)
        return VllmServer(
            "verifier",
            self.models.base_folder,
            self._endpoint(engine.model),
            tokenizer,
            expected=probe_of(self.models.base(), prompt),
            tolerance=self._tolerance(engine.dtype),
            reading=reading,
            max_verdict_tokens=engine.max_verdict_tokens,
        )

    def _tokenizer(self, engine: OwnFrame) -> ChatTokenizer:
        """Return the base's tokenizer with the verifier's frame."""
        thinks = engine.enable_thinking
        template = {} if thinks is None else {"enable_thinking": thinks}
        return ChatTokenizer.load(self.models.base_folder, **template)

    def _child(self, settings: Vllm, needed: Room) -> VllmEngine:
        """Return the child that serves the base in these settings, with room for an adapter."""
        key = _format(settings)
        needed = needed.union(self._room.get(key, Room()))
        if key in self._children and Room.of(self._children[key].config).holds(needed):
            return self._children[key]
        config = VllmConfig(
            **self._places.vllm.model_dump(),
            dtype=settings.dtype,
            max_model_len=settings.max_model_len,
            lora_rank=needed.rank,
            constrained=needed.constrained,
        )
        child = VllmEngine.load(
            "base",
            self.models.base_folder,
            config,
            log_dir=Path(self._places.log_dir),
            max_verdict_tokens=_NEVER_ASKED,
        )
        self._children[key] = self._stack.enter_context(child)
        return child

    def _endpoint(self, model: str) -> Endpoint:
        place = self._places.endpoint(model)
        endpoint = Endpoint(EndpointConfig(**place.model_dump(), model=model))
        self._paid.append((place, endpoint))
        return endpoint

    def _tolerance(self, dtype: str) -> float:
        """Return how far two engines may be apart: as far as the coarser of their formats is."""
        return max(PROBE_TOLERANCE[name] for name in (dtype, self.models.dtype))

    def _bill(self) -> Bill:
        return sum((bill_of(endpoint.cost, place) for place, endpoint in self._paid), Bill())


def _with_band(identity: EngineIdentity, band: float) -> EngineIdentity:
    """Return a verifier's identity with its band, which may have been measured just now."""
    return replace(identity, settings={**identity.settings, "undecided_band": band})


def _format(settings: Vllm) -> tuple[str, int]:
    """Return what roles that share a child have in common."""
    return settings.dtype, settings.max_model_len
