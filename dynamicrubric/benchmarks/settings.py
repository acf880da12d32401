"""What a benchmark run is told: data, evaluators, seeds. One YAML file, read by `yamlio`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self, TypeVar

from pydantic import Field, StringConstraints, ValidationError, model_validator

from dynamicrubric.engines.places import EnginePlaces
from dynamicrubric.errors import UserError
from dynamicrubric.evaluators.spec import EvaluatorSpec
from dynamicrubric.problems import all_problems
from dynamicrubric.recipe import VerifierConfig
from dynamicrubric.settings import Listed, Section
from dynamicrubric.yamlio import load_yaml

STUDY: Final = "study"
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}$")]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Listed, Field(min_length=1)]


class StudySource(Section):
    """Held-out response sets of finished cells, one subset a policy (P_0, P_1, ...)."""

    root: str = "."
    """The project's folder, with its params.yaml and data/runs."""
    arm: str = "coevolved"
    """Whose policies wrote the responses."""
    rounds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Listed, Field(min_length=1)] = (
        0,
        1,
        2,
    )
    """P_0, P_1, ..."""


class DataSource(Section):
    """One data set."""

    name: Name
    """A published one (`benchmarks.catalog`), `study`, or a name for a file of one's own."""
    path: str | None = None
    """A .jsonl or .parquet file, or a folder of them; none: a published one from the hub."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """At most so many items of it, whatever the run's limit is."""
    study: StudySource | None = None
    """With the name `study`."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.study is not None) != (self.name == STUDY):
            raise ValueError(f"the key study goes with the name {STUDY!r}, and with no other")
        if self.study is not None and self.path is not None:
            raise ValueError("path and study are two sources; one of them")
        return self


class Base(Section):
    """The pretrained base that evaluators without a study share."""

    folder: str
    """A folder with safetensors, config and tokenizer: `data/prepared/base` of a study."""
    dtype: Literal["float32", "bfloat16"] = "float32"


class BenchSettings(Section):
    """A benchmark run."""

    data: Annotated[tuple[DataSource, ...], Listed, Field(min_length=1)]
    evaluators: Annotated[tuple[EvaluatorSpec, ...], Listed, Field(min_length=1)]
    reference: str | None = None
    """The evaluator that the others are compared with, pair by pair; none: no comparisons."""
    seeds: Seeds = (1,)
    """Each evaluator scores everything once with each; placement derives from them too."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """At most so many items of each data set (of a study: of each policy)."""
    chunk: Annotated[int, Field(ge=1, le=4096)] = 16
    """Items that are scored, and written down, together."""
    prepared: str | None = None
    """A prepared folder: its world, prompts and base. None: the world `language` without data."""
    base: Base | None = None
    """The base, where there is no prepared folder."""
    places: EnginePlaces = EnginePlaces()
    """Where vLLM and endpoints are; moves no figure."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for what, names in (
            ("data sets", [one.name for one in self.data]),
            ("evaluators", [one.label for one in self.evaluators]),
            ("seeds", [str(seed) for seed in self.seeds]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"two {what} are called {twice[0]!r}; give each its own name")
        labels = [one.label for one in self.evaluators]
        if self.reference is not None and self.reference not in labels:
            raise ValueError(f"reference {self.reference!r} is none of {', '.join(labels)}")
        if self.prepared is not None and self.base is not None:
            raise ValueError("prepared brings its own base; leave base out")
        return self


class NamedVerifier(Section):
    """A verifier of a swap."""

    name: Name
    verifier: VerifierConfig


class SwapSettings(BenchSettings):
    """The same evaluators under several verifiers: those of `evaluators` are replaced."""

    verifiers: Annotated[tuple[NamedVerifier, ...], Listed, Field(min_length=2)]

    @model_validator(mode="after")
    def _verifiers_are_unique(self) -> Self:
        names = [one.name for one in self.verifiers]
        if len(set(names)) < len(names):
            raise ValueError(f"two verifiers have one name: {', '.join(names)}")
        return self


class RubricsSettings(BenchSettings):
    """Rubrics of two evaluators compared by a judge, or by the world itself."""

    judge: VerifierConfig | None = None
    """The language model that compares; none: the world `postcards`, exactly."""

    @model_validator(mode="after")
    def _two_generators(self) -> Self:
        if len(self.evaluators) != 2:
            raise ValueError(f"{len(self.evaluators)} evaluators; two are compared")
        return self


Settings = TypeVar("Settings", bound=BenchSettings)


def load_settings(path: Path, kind: type[Settings]) -> Settings:
    """Read a settings file.

    Raises:
        UserError: names the key, the value and what is allowed.
    """
    document = load_yaml(path)
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        got, expected = all_problems(error, kind)
        raise UserError(
            doing=f"reading {path}", got=got, expected=expected, remedy="change what is named"
        ) from None
