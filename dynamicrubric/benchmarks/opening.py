"""From settings to a task: data sets read, evaluators opened one at a time, identities hashed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamicrubric.benchmarks.loaders import Loaded, load_dataset
from dynamicrubric.benchmarks.run import Task
from dynamicrubric.benchmarks.settings import BenchSettings, DataSource, StudySource
from dynamicrubric.benchmarks.study import REFERENCE, Study
from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.parts import existing_folder
from dynamicrubric.evaluators.spec import EvaluatorSpec
from dynamicrubric.hashing import hash_of, sha256_of
from dynamicrubric.worlds.base import BaseModelFiles, base_of

if TYPE_CHECKING:
    from dynamicrubric.evaluators.base import Evaluator

_FOLDERS = ("generator", "reward_model")
"""Keys of a spec that may name a folder."""


def task_of(settings: BenchSettings) -> Task:
    """Return what a run does; evaluators are opened later, one at a time.

    Raises:
        UserError: a data set, a cell or a checkpoint is not there.
    """
    data = {seed: _data(settings, seed) for seed in settings.seeds}
    specs = {
        (seed, spec.label): resolved(settings, spec, seed)
        for seed in settings.seeds
        for spec in settings.evaluators
    }

    @contextmanager
    def open_one(seed: int, name: str) -> Iterator[Evaluator]:
        with opened(settings, specs[seed, name]) as evaluator:
            yield evaluator

    _check_folders(settings, specs.values())
    document = settings.model_dump(mode="json", exclude={"seeds", "places", "reference"})
    checkpoints = {
        f"{seed}/{name}": found
        for (seed, name), spec in specs.items()
        if (found := checkpoint_identity(spec))
    }
    return Task(
        settings={**document, "checkpoints": checkpoints, **_base_identity(settings)},
        seeds=settings.seeds,
        evaluators=[spec.label for spec in settings.evaluators],
        data=data,
        open=open_one,
        chunk=settings.chunk,
    )


def _check_folders(settings: BenchSettings, specs: Iterable[EvaluatorSpec]) -> None:
    """Refuse what would be missed hours later, when its evaluator's turn comes.

    Raises:
        UserError: a generator's folder, or the prepared one, is not there.
    """
    if settings.prepared is not None and not (Path(settings.prepared) / "prompts.jsonl").is_file():
        raise UserError(
            doing="looking for the prepared data",
            got=f"no {settings.prepared}/prompts.jsonl",
            expected="a folder that `prepare` of a study has made",
            remedy="run the study, or name its data/prepared",
        )
    for spec in specs:
        if spec.generator is not None:
            existing_folder(spec.generator, f"the generator of {spec.label!r}")


def _data(settings: BenchSettings, seed: int) -> list[Loaded]:
    return [_load(source, settings.limit, seed) for source in settings.data]


def _load(source: DataSource, limit: int | None, seed: int) -> Loaded:
    own = min((n for n in (source.limit, limit) if n is not None), default=None)
    if source.study is not None:
        return Study(Path(source.study.root)).items(source.study, seed, own)
    return load_dataset(source.name, source.path, own)


def resolved(settings: BenchSettings, spec: EvaluatorSpec, seed: int) -> EvaluatorSpec:
    """Return a spec as it is with a seed: its draws are the seed's, generators of a study folders.

    Raises:
        UserError: the study has no such generator.
    """
    changed: dict[str, Any] = {}
    if "seed" not in spec.model_fields_set:
        changed["seed"] = seed
    for key in _FOLDERS:
        value = getattr(spec, key)
        if isinstance(value, str) and value.startswith(REFERENCE):
            changed[key] = Study(Path(_study_source(settings).root)).generator(value, seed)
    return spec.model_copy(update=changed)


def _study_source(settings: BenchSettings) -> StudySource:
    return next((one.study for one in settings.data if one.study is not None), StudySource())


@contextmanager
def opened(settings: BenchSettings, spec: EvaluatorSpec) -> Iterator[Evaluator]:
    """Open an evaluator with the models and endpoints that it needs."""
    from dynamicrubric.engines.choice import Engines
    from dynamicrubric.engines.models import Models
    from dynamicrubric.evaluators.build import build_evaluator
    from dynamicrubric.worlds.prepared import load_prepared

    prepared = load_prepared(Path(settings.prepared)) if settings.prepared else None
    with Engines(Models(base_files(settings)), settings.places) as engines:
        yield build_evaluator(spec, prepared, engines)


def base_files(settings: BenchSettings) -> BaseModelFiles | None:
    """Return the base that evaluators share; None in a world whose checkpoints are whole models.

    Raises:
        UserError: there is no such folder.
    """
    if settings.base is not None:
        return BaseModelFiles(existing(settings.base.folder), settings.base.dtype)
    return base_of(Path(settings.prepared)) if settings.prepared else None


def existing(name: str) -> Path:
    """Return a folder that is there.

    Raises:
        UserError: it is not.
    """
    folder = Path(name)
    if not folder.is_dir():
        raise UserError(
            doing="looking for the base that evaluators share",
            got=f"no folder {name}",
            expected="a folder with safetensors, config and tokenizer",
            remedy="prepare a study of the world language, or name its data/prepared/base",
        )
    return folder


def checkpoint_identity(spec: EvaluatorSpec) -> dict[str, str]:
    """Return what an evaluator's folders hold, so that another checkpoint is another run."""
    found = {}
    for key in _FOLDERS:
        value = getattr(spec, key)
        if isinstance(value, str) and Path(value).is_dir():
            found[key] = folder_identity(Path(value))
    return found


def _base_identity(settings: BenchSettings) -> dict[str, Any]:
    if settings.prepared is not None and Path(settings.prepared).is_dir():
        return {"prepared_content": folder_identity(Path(settings.prepared))}
    return (
        {}
        if settings.base is None
        else {"base_content": folder_identity(existing(settings.base.folder))}
    )


def folder_identity(folder: Path) -> str:
    """Return a hash of an artefact by its record, or of a folder's own files."""
    record = folder / "record.json"
    if record.is_file():
        return str(json.loads(record.read_text(encoding="utf-8"))["content_hash"])
    files: Sequence[Path] = sorted(path for path in folder.iterdir() if path.is_file())
    return hash_of({path.name: sha256_of(path) for path in files})
