"""What a preflight finds: checks in words, memory by step, work by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from dynamicrubric.preflight.lengths import Lengths

if TYPE_CHECKING:
    from dynamicrubric.engines.meta import ModelSize

Level = Literal["ok", "note", "problem"]
"""A problem is what cannot run; a note is worth knowing."""

GIB: Final = 2**30


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        area: what it is about, a word or two.
        level: how bad it is.
        found: what was found.
        change: what would have to change; empty if nothing.
    """

    area: str
    level: Level
    found: str
    change: str = ""


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
    """

    step: str
    base: float
    policy: float
    generator: float
    training: float
    moments: Mapping[str, float]

    @property
    def held(self) -> float:
        """Bytes from beginning to end."""
        return self.base + self.policy + self.generator + self.training

    @property
    def highest(self) -> str:
        """Name of the moment that needs most."""
        return max(self.moments, key=self.moments.__getitem__)

    @property
    def total(self) -> float:
        """Bytes at the highest moment."""
        return self.held + self.moments[self.highest]


@dataclass(frozen=True)
class Work:
    """What all of a plan's steps of one name do, at most.

    Attributes:
        step: the step.
        runs: how many there are.
        completions: texts that are sampled.
        tokens_read: of their prompts.
        tokens_written: of the texts.
        verdicts: questions to the verifier.
        seconds: by the rate of earlier runs; None where there are none.
        based_on: number of those.
    """

    step: str
    runs: int
    completions: int
    tokens_read: int
    tokens_written: int
    verdicts: int
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
                {**asdict(phase), "held": phase.held, "total": phase.total} for phase in self.phases
            ],
            "work": [asdict(one) for one in self.work],
            "disk_bytes": dict(self.storage),
            "device": self.device,
        }
