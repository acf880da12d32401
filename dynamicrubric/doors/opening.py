"""From a command's options to an evaluator that is ready to score.

The profile (a params.yaml) says the world, the sizes of rubrics, how they are sampled, the verifier
and where endpoints are; options lay other models over it. Nothing heavy is imported before the
options are known to be sound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

from dynamicrubric.config import Config, VerifierConfig, load_config
from dynamicrubric.engines.access import EndpointPlace, check_address
from dynamicrubric.enginesettings import InProcess, OpenAI, OpenAIVerifier
from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.base import Evaluator
from dynamicrubric.evaluators.spec import WITH_RUBRIC, EvaluatorSpec, Kind
from dynamicrubric.hub.names import HUB
from dynamicrubric.settings import PretrainedConfig
from dynamicrubric.worlds.base import LANGUAGE, BaseModelFiles, world_named

OPENAI: Final = "openai:"
PROGRAM: Final = "program"
BASE: Final = "base"
PREPARED_DIR: Final = Path("data/prepared")
ENGINE_FREE: Final = frozenset({"length", "random", "oracle", "programmatic"})
NO_VERIFIER: Final = frozenset({"length", "random", "oracle", "scalar", "scalar_set"})


@dataclass(frozen=True)
class EvaluatorOptions:
    """What a command was asked for.

    Attributes:
        kind: of evaluator.
        profile: a params.yaml, or the name of a file in profiles/.
        generator: a cell, a checkpoint's folder, `hub:owner/name`, or `openai:MODEL`; None: the
            base as it is.
        verifier: `program`, `base`, or `openai:MODEL`; None: the profile's.
        base_url: address of the endpoint that serves what `openai:` names, where the profile has
            none.
        prepared: the prepared data, with the base of a pretrained backbone.
        rubric: of `programmatic`: a file with a rubric's JSON.
        reward_model: of `scalar` and `scalar_set`: a folder or a hub id.
        seed: of whatever is random.
    """

    kind: str = "dynamic"
    profile: Path = Path("params.yaml")
    generator: str | None = None
    verifier: str | None = None
    base_url: str | None = None
    prepared: Path = PREPARED_DIR
    rubric: Path | None = None
    reward_model: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class Opened:
    """An evaluator that is ready.

    Attributes:
        evaluator: scores.
        identity: what its scores depend on, as JSON values.
        prompt_ids: id of each prompt's text that the world knows.
    """

    evaluator: Evaluator
    identity: dict[str, Any]
    prompt_ids: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def open_evaluator(options: EvaluatorOptions) -> Iterator[Opened]:
    """Open an evaluator's models, and close them at the end.

    Raises:
        UserError: an option that will not do, or something that is not there.
        InstrumentError: a model does not load, or fails its check.
    """
    config = load_config(profile_path(options.profile))
    spec = spec_of(options, config)
    from dynamicrubric.evaluators.build import build_evaluator
    from dynamicrubric.worlds.prepared import load_prepared

    prepared = load_prepared(options.prepared) if _is_prepared(options, config) else None
    world = prepared.world if prepared else world_named(config.world.name)
    known = {text: key for key, text in prepared.all_prompts.items()} if prepared else {}
    identity: dict[str, Any] = {
        "world": config.world.name,
        "evaluator": spec.model_dump(mode="json"),
        "generator": _weights(spec.generator),
        "reward_model": _weights(spec.reward_model),
        "base": None,
    }
    if spec.kind in ENGINE_FREE:
        yield Opened(build_evaluator(spec, prepared or world), identity, known)
        return
    endpoints = _endpoints(options, config)
    base = prepared.base if prepared else _base_of(config)
    identity["base"] = {"dtype": base.dtype, "files": _weights(base.folder)} if base else None
    from dynamicrubric.engines.choice import Engines
    from dynamicrubric.engines.models import Models
    from dynamicrubric.engines.places import EnginePlaces

    places = EnginePlaces(vllm=config.runtime.vllm, endpoints=endpoints, log_dir="work/logs")
    with Engines(Models(base), places) as engines:
        yield Opened(build_evaluator(spec, prepared or world, engines), identity, known)


def spec_of(options: EvaluatorOptions, config: Config) -> EvaluatorSpec:
    """Return the evaluator that is asked for, as values.

    Raises:
        UserError: an option that is none, or goes with another kind.
    """
    recipe = config.recipe
    if options.kind not in get_args(Kind):
        raise UserError(
            doing="choosing an evaluator",
            got=repr(options.kind),
            expected=f"one of {', '.join(get_args(Kind))}",
        )
    if options.generator is not None and options.kind not in WITH_RUBRIC:
        raise UserError(
            doing=f"choosing the evaluator {options.kind!r}",
            got=f"the generator {options.generator!r}",
            expected=f"one with {', '.join(sorted(WITH_RUBRIC))} alone",
            remedy="leave --generator out, or choose another --evaluator",
        )
    verifier = _verifier(options, recipe.verifier)
    if options.verifier is not None and options.kind in NO_VERIFIER:
        raise UserError(
            doing=f"choosing the evaluator {options.kind!r}",
            got=f"the verifier {options.verifier!r}",
            expected=f"none: the kinds {', '.join(sorted(NO_VERIFIER))} ask no verifier",
            remedy="leave --verifier out, or choose another --evaluator",
        )
    if options.verifier not in (None, PROGRAM) and options.kind == "programmatic":
        raise UserError(
            doing="choosing the evaluator 'programmatic'",
            got=f"the verifier {options.verifier!r}",
            expected=f"{PROGRAM}, which reads its rubric",
            remedy="leave --verifier out, or choose another --evaluator",
        )
    generator, engine = _generator(options)
    values: dict[str, Any] = {
        "kind": options.kind,
        "generator": generator,
        "generator_engine": engine or recipe.generator.engine,
        "sampling": recipe.generator.sampling,
        "min_items": recipe.min_rubric_items,
        "max_items": recipe.max_rubric_items,
        "weights": recipe.weights,
        "verifier": verifier,
        "rubric": _rubric(options),
        "reward_model": options.reward_model,
        "seed": options.seed,
    }
    try:
        return EvaluatorSpec(**values)
    except ValueError as error:
        raise UserError(
            doing=f"choosing the evaluator {options.kind!r}",
            got=_first_line(error),
            remedy="leave the option out, or choose another --evaluator",
        ) from None


def profile_path(profile: Path) -> Path:
    """Return the file that a profile's name stands for."""
    named = Path("profiles") / f"{profile}.yaml"
    return named if not profile.exists() and named.is_file() else profile


def _first_line(error: ValueError) -> str:
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
    return str(error)


def _generator(options: EvaluatorOptions) -> tuple[str | None, OpenAI | InProcess | None]:
    """Return the generator's folder and engine, as far as the option says."""
    name = options.generator
    if name is None:
        return None, InProcess() if options.kind in WITH_RUBRIC else None
    if name.startswith(OPENAI):
        return None, OpenAI(kind="openai", model=name.removeprefix(OPENAI))
    if name.startswith(HUB):
        from dynamicrubric.hub.contents import PUSHED
        from dynamicrubric.hub.fetch import fetch
        from dynamicrubric.hub.names import parse_hub_name

        return str(fetch(parse_hub_name(name), PUSHED).folder), None
    folder = Path(name)
    if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file():
        return name, None
    from dynamicrubric.hub.trained import find_trained

    return str(find_trained(Path(), options.profile, "generator", name).artefact.path), None


def _verifier(options: EvaluatorOptions, given: VerifierConfig) -> VerifierConfig:
    """Return the verifier: the profile's, or another one; no rate of it stops a command."""
    free = given.model_copy(update={"max_unscored_rate": 1.0})
    name = options.verifier
    if name is None:
        return free
    if name == PROGRAM:
        return _verifier_of({})
    if name == BASE:
        return _verifier_of({"kind": "language_model"})
    if name.startswith(OPENAI):
        engine = OpenAIVerifier(kind="openai", model=name.removeprefix(OPENAI))
        return _verifier_of({"kind": "language_model", "engine": engine})
    raise UserError(
        doing="choosing a verifier",
        got=repr(name),
        expected=f"{PROGRAM}, {BASE}, or {OPENAI}MODEL",
    )


def _verifier_of(values: Mapping[str, Any]) -> VerifierConfig:
    return VerifierConfig(error_rate=0.0, failure_rate=0.0, max_unscored_rate=1.0, **values)


def _rubric(options: EvaluatorOptions) -> str | None:
    if options.rubric is None:
        return None
    try:
        return options.rubric.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            doing=f"reading the rubric {options.rubric}",
            got=(error.strerror if isinstance(error, OSError) else None) or str(error),
            expected="a file with a rubric's JSON",
        ) from None


def _endpoints(options: EvaluatorOptions, config: Config) -> dict[str, EndpointPlace]:
    """Return where endpoints are: as the profile has it, and the address that was given."""
    places = dict(config.runtime.endpoints)
    asked = [name for name in (options.generator, options.verifier) if name]
    models = [name.removeprefix(OPENAI) for name in asked if name.startswith(OPENAI)]
    if options.base_url is not None:
        place = EndpointPlace(base_url=options.base_url)
        check_address(place)
        if not models:
            raise UserError(
                doing="reading --base-url",
                got=f"no model that is called as {OPENAI}MODEL",
                remedy=f"name one with --generator or --verifier, such as {OPENAI}gpt-oss-20b",
            )
        places |= dict.fromkeys(models, place)
    return places


def _is_prepared(options: EvaluatorOptions, config: Config) -> bool:
    """Say whether there are prepared data; refuse those of another world.

    Raises:
        UserError: they are of another world than the profile's.
    """
    if not (options.prepared / "prompts.jsonl").is_file():
        return False
    from dynamicrubric.worlds.base import world_of

    found = world_of(options.prepared).name
    if found == config.world.name:
        return True
    raise UserError(
        doing=f"reading {options.prepared}",
        got=f"prepared data of the world {found!r}",
        expected=f"those of {config.world.name!r}, as {options.profile} says",
        remedy="name the profile they were made with (--profile), or other data (--prepared)",
    )


def _base_of(config: Config) -> BaseModelFiles | None:
    """Return the profile's base where it is a folder or on the hub; prepared data have the rest."""
    backbone = config.backbone
    if not isinstance(backbone, PretrainedConfig) or config.world.name != LANGUAGE:
        return None
    if Path(backbone.checkpoint).is_dir():
        return BaseModelFiles(Path(backbone.checkpoint), backbone.dtype)
    if "/" not in backbone.checkpoint or backbone.checkpoint.endswith(".gguf"):
        return None
    from dynamicrubric.engines.identity import check_checkpoint
    from dynamicrubric.hub.contents import BASE_FILES
    from dynamicrubric.hub.fetch import fetch
    from dynamicrubric.hub.names import parse_hub_name

    folder = fetch(parse_hub_name(backbone.checkpoint), BASE_FILES).folder
    check_checkpoint(folder, backbone.checkpoint)
    return BaseModelFiles(folder, backbone.dtype)


def _weights(folder: str | Path | None) -> dict[str, Any] | None:
    """Return what tells one checkpoint from another under the same name: its files and sizes."""
    if folder is None or not Path(folder).is_dir():
        return None
    files = sorted(Path(folder).glob("*.safetensors"))
    return {path.name: [path.stat().st_size, path.stat().st_mtime] for path in files}
