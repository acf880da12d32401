"""What a preflight finds: checks in words, memory by step, work by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal

from dynamicrubric.errors import UserError
from dynamicrubric.preflight.lengths import Lengths

if TYPE_CHECKING:
    from dynamicrubric.engines.meta import ModelSize

Level = Literal["ok", "note", "problem"]
"""A problem is what cannot run; a note is worth knowing."""

GIB: Final = 2**30
DTYPE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Of a number of each format."""
PARTS: Final = ("process", "served", "base", "policy", "generator", "training", "highest")
"""Of a phase's total: what it holds, and the highest of its moments."""
_UNITS: Final = 100
"""Parts of a GiB that are shown."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        area: what it is about, a word or two.
        level: how bad it is.
        found: what was found.
        change: what would have to change; empty if nothing, which no problem can have.
    """

    area: str
    level: Level
    found: str
    change: str = ""

    def __post_init__(self) -> None:
        assert self.change or self.level != "problem", f"{self.found}: and what would have to be?"

    @classmethod
    def refused(cls, area: str, error: UserError) -> Check:
        """Return what the run itself would refuse as a problem."""
        wanted = f"; expected {error.expected}" if error.expected else ""
        remedy = error.remedy or f"give it {error.expected or 'what can be used'}"
        return cls(area, "problem", f"{error.doing}: {error.got}{wanted}", remedy)


def of_arms(found: Mapping[str, Sequence[Check]]) -> list[Check]:
    """Return the checks of all arms, each once; what holds in some of them alone names those.

    >>> a, b = Check("x", "ok", "both"), Check("x", "note", "one")
    >>> [check.found for check in of_arms({"first": [a, b], "second": [a]})]
    ['both', 'one (in first)']
    """
    arms: dict[Check, list[str]] = {}
    for arm, checks in found.items():
        for check in dict.fromkeys(checks):
            arms.setdefault(check, []).append(arm)
    return [
        check
        if len(names) == len(found)
        else replace(check, found=f"{check.found} (in {', '.join(names)})")
        for check, names in arms.items()
    ]


@dataclass(frozen=True)
class Phase:
    """Memory of one step on one device, in bytes.

    Attributes:
        step: the step.
        base: the weights that roles share: a frozen base.
        policy: weights of the policy's own, and of earlier ones that are kept beside it.
        generator: likewise.
        training: gradients and Adam's two moments of the role that is trained.
        moments: what else is needed in turn, one at a time.
        process: Python and its libraries, where they share the memory.
        served: vLLM's children beside the task: weights again, caches, and what they compute with.
        tasks: how many tasks of this step share one memory.
    """

    step: str
    base: float
    policy: float
    generator: float
    training: float
    moments: Mapping[str, float]
    process: float = 0.0
    served: float = 0.0
    tasks: int = 1

    @property
    def held(self) -> float:
        """Bytes from beginning to end."""
        roles = self.base + self.policy + self.generator + self.training
        return self.process + self.served + roles

    @property
    def highest(self) -> str:
        """Name of the moment that needs most."""
        return max(self.moments, key=self.moments.__getitem__)

    @property
    def total(self) -> float:
        """Bytes at the highest moment."""
        return self.held + self.moments[self.highest]

    @property
    def parts(self) -> tuple[float, ...]:
        """What makes up the total, in GiB, in the order of `PARTS`.

        Each is rounded up to a hundredth, so that what is shown adds up.
        """
        held = [getattr(self, name) for name in PARTS[:-1]]
        return tuple(_shown(part) for part in (*held, self.moments[self.highest]))

    @property
    def one(self) -> float:
        """GiB of one task: the sum of its parts as they are shown."""
        return round(sum(self.parts), 2)

    @property
    def all(self) -> float:
        """GiB of all tasks that share a memory."""
        return round(self.tasks * self.one, 2)


def _shown(size: float) -> float:
    """Return bytes as GiB, rounded up to what is shown.

    >>> _shown(0.0), _shown(1.0), _shown(1.5 * 2**30)
    (0.0, 0.01, 1.5)
    """
    return ceil(size * _UNITS / GIB) / _UNITS


@dataclass(frozen=True)
class Work:
    """What all of a plan's steps of one name do, at most.

    Attributes:
        step: the step.
        runs: how many there are.
        completions: texts that are sampled; none in a warm start.
        tokens_read: of their prompts, and of the texts of a warm start.
        tokens_written: of the texts.
        verdicts: questions to the verifier.
        tokens_judged: what the verifier reads for them: each question once, and each response once
            for every pass that its questions take.
        seconds: by the rate of earlier runs; None where there are none.
        based_on: number of those.
    """

    step: str
    runs: int
    completions: int
    tokens_read: int
    tokens_written: int
    verdicts: int
    tokens_judged: int = 0
    seconds: float | None = None
    based_on: int = 0


@dataclass(frozen=True)
class Report:
    """Everything that a preflight found.

    Attributes:
        name: the profile.
        checks: in the order of the areas.
        model: the backbone, None if it cannot be known.
        source: where its config is from.
        lengths: longest texts, in tokens.
        phases: memory by step, empty without a model.
        work: amounts by step, training cells and starts together.
        device: where a task would run, in words.
    """

    name: str
    checks: tuple[Check, ...]
    model: ModelSize | None
    source: str
    lengths: Lengths
    phases: tuple[Phase, ...]
    work: tuple[Work, ...]
    device: str
    storage: Mapping[str, float] = field(default_factory=dict)
    """Bytes on disk, by what for."""

    @property
    def problems(self) -> tuple[Check, ...]:
        """What cannot run."""
        return tuple(check for check in self.checks if check.level == "problem")

    def document(self) -> dict[str, Any]:
        """Return everything for machines."""
        return {
            "profile": self.name,
            "can_run": not self.problems,
            "checks": [asdict(check) for check in self.checks],
            "model": asdict(self.model) if self.model else None,
            "config_from": self.source,
            "longest_tokens": self.lengths._asdict(),
            "memory_bytes": [
                {**asdict(phase), "held": phase.held, "total": phase.total, "gib": phase.all}
                for phase in self.phases
            ],
            "work": [asdict(one) for one in self.work],
            "disk_bytes": dict(self.storage),
            "device": self.device,
        }
