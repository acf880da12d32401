"""The study's arms and groups, and which of them are run: `study` in params.yaml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from dynamicrubric.problems import one_line, problems_of
from dynamicrubric.settings import RESERVED_SLUGS, Listed, Section, Slug

Rounds = Annotated[int, Field(ge=1, le=100)]
Seed = Annotated[int, Field(ge=0, le=2**31)]
MAX_SEEDS: Final = 200
Seeds = Annotated[tuple[Seed, ...], Listed, Field(min_length=1, max_length=MAX_SEEDS)]


class ArmConfig(BaseModel):
    """One entry of `study.arms`: a question and the keys that differ from the recipe."""

    model_config = ConfigDict(frozen=True, extra="allow")

    question: Annotated[str, StringConstraints(strip_whitespace=True, min_length=8, max_length=300)]
    """The question that this arm answers."""

    @property
    def diff(self) -> dict[str, Any]:
        """The keys that differ from the recipe, nested as in params.yaml."""
        return dict(self.__pydantic_extra__ or {})


class Selection(Section):
    """Some arms with the seeds and rounds they are run for."""

    arms: Annotated[tuple[Slug, ...], Listed, Field(min_length=1)]
    seeds: Seeds | None = None
    """The seeds of these arms; `study.seeds` where they are not given."""
    rounds: Rounds | None = None
    """The rounds of these arms; `study.rounds` where they are not given."""

    @model_validator(mode="after")
    def _seeds_are_unique(self) -> Self:
        check_seeds(self.seeds or ())
        return self


class AuditConfig(Section):
    """What the audit of the paper's bound measures: generators, on their policy's responses."""

    arms: Annotated[tuple[Slug, ...], Listed, Field(min_length=1)] | None = None
    """Arms whose generators are measured, as far as they are run and train one that reads response
    sets; every such arm where they are not given."""
    checkpoints: Annotated[int, Field(ge=0, le=100)] = 5
    """How many times each training of such a generator keeps its weights, evenly, beside those it
    starts from and ends with. A training that is finished keeps what it kept."""


@dataclass(frozen=True)
class ArmRun:
    """One arm of the study that is run.

    Attributes:
        arm: its name.
        seeds: the seeds it is run with.
        rounds: T; round 0 is measured besides.
    """

    arm: str
    seeds: tuple[int, ...]
    rounds: int


class StudyConfig(Section):
    """Which arms there are, and which of them are run with which seeds for how many rounds."""

    rounds: Rounds
    seeds: Seeds
    run: str | tuple[Selection, ...] | None = None
    """What is run: the name of a group, or a list of arms; without it every arm there is. An entry
    of the list is an arm's name, or a mapping as in a group."""
    groups: dict[Slug, Annotated[tuple[Selection, ...], Listed, Field(min_length=1)]] = Field(
        default_factory=dict
    )
    """Selections by name; an arm is in a group once."""
    audit: AuditConfig | None = None
    """Which generators the audit of Eq. 45 measures; without it there is none."""
    arms: Annotated[dict[Slug, ArmConfig], Field(min_length=1)]

    @field_validator("run", mode="before")
    @classmethod
    def _read_run(cls, value: object) -> object:
        """Read a list of arms here: what pydantic says of a choice of types helps nobody."""
        if value is None or isinstance(value, str):
            return value
        if not isinstance(value, list | tuple) or not value:
            raise ValueError("expected the name of a group, or a list of arms")
        return tuple(_read_selection(number, entry) for number, entry in enumerate(value))

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        check_seeds(self.seeds)
        for name in self.arms:
            if name in RESERVED_SLUGS:
                raise ValueError(f"arm name {name!r} is reserved by some file systems")
        return self

    @model_validator(mode="after")
    def _selections_name_arms_once(self) -> Self:
        for name, group in self.groups.items():
            _check_selection(f"groups.{name}", group, self.arms)
        if self.audit is not None and self.audit.arms is not None:
            _check_selection("audit", (Selection(arms=self.audit.arms),), self.arms)
        if isinstance(self.run, tuple):
            _check_selection("run", self.run, self.arms)
        elif self.run is not None and self.run not in self.groups:
            hint = "; it is an arm: a list takes arms" if self.run in self.arms else ""
            raise ValueError(
                f"run is {self.run!r}, which is no group{hint}; the groups are "
                f"{', '.join(self.groups) or 'none'}"
            )
        return self

    @property
    def selections(self) -> tuple[Selection, ...]:
        """What `run` stands for."""
        if self.run is None:
            return (Selection(arms=tuple(self.arms)),)
        return self.groups[self.run] if isinstance(self.run, str) else self.run

    @property
    def runs(self) -> tuple[ArmRun, ...]:
        """The arms that are run, in the order of `arms`, whatever the order of the selection."""
        found = {
            arm: ArmRun(arm, one.seeds or self.seeds, one.rounds or self.rounds)
            for one in self.selections
            for arm in one.arms
        }
        return tuple(found[arm] for arm in self.arms if arm in found)


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise a ValueError if a seed is listed twice."""
    repeated = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if repeated:
        raise ValueError(f"seeds lists {repeated[0]} more than once; each seed is one run")


def _read_selection(number: int, entry: object) -> object:
    value = {"arms": (entry,)} if isinstance(entry, str) else entry
    try:
        return Selection.model_validate(value)
    except ValidationError as error:
        problem = "; ".join(one_line(*one) for one in problems_of(error, Selection))
        raise ValueError(f"entry {number + 1}: {problem}") from None


def _check_selection(
    place: str, selections: Sequence[Selection], arms: Mapping[str, ArmConfig]
) -> None:
    seen: set[str] = set()
    for arm in (arm for one in selections for arm in one.arms):
        if arm not in arms:
            raise ValueError(f"{place} names the arm {arm!r}; the arms are {', '.join(arms)}")
        if arm in seen:
            raise ValueError(f"{place} names the arm {arm!r} more than once")
        seen.add(arm)
