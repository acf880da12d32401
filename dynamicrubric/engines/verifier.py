"""A language model that verifies: yes or no, read at the last token of each question.

Probabilities are summed over the whole vocabulary: every id that normalises to yes or to no in the
configured languages. Questions about one response run packed behind their shared beginning
(`engines.packing`); a model that cannot be packed gets one row a question, with the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple

import torch
from transformers import PreTrainedModel

from dynamicrubric.engines.base import JudgeRequest
from dynamicrubric.engines.chattokenizer import ChatTokenizer
from dynamicrubric.engines.packed import can_pack, run_packed
from dynamicrubric.engines.packing import Group, Key, plan_batches, plan_layouts
from dynamicrubric.engines.questions import Questions, render_questions
from dynamicrubric.engines.reading import labels_of
from dynamicrubric.engines.transformers import last_logits, load_model
from dynamicrubric.errors import InstrumentError
from dynamicrubric.prompts.chat import ChatFrame
from dynamicrubric.types import Verdict
from dynamicrubric.verdicts import LabelIds, verdict_from_masses

Way = Literal["packed", "batched", "single"]
"""Packed passes; a row a question in batches; or each question alone."""

DtypeName = Literal["auto", "float32", "bfloat16"]
"""Number format; auto is bfloat16 on a GPU that has it, and float32 elsewhere: few CPUs have it."""

TOLERANCES: Final = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference in P(yes) between two ways of asking that passes for rounding."""

PROBES: Final = (
    JudgeRequest("Paris.", ("Is the response a city?", "Is it polite?"), 0, "A capital in Europe?"),
    JudgeRequest(
        "Dear Anna, the sea is warm, and we think of you every day. See you on Sunday!",
        ("Does the response say when they will meet again?",),
        0,
    ),
)
"""Questions of several lengths that `load_verifier` checks a model with."""


@dataclass(frozen=True)
class Reading:
    """How a verifier's answers are read.

    Attributes:
        languages: in which it may answer, codes from `verdicts.LANGUAGES`.
        coverage_floor: least probability on yes and no together for a verdict.
        undecided_band: half-width of the band around P(yes) = 1/2; None: `noise_floor` measures it.
    """

    languages: tuple[str, ...] = ("en",)
    coverage_floor: float = 0.5
    undecided_band: float | None = None


READING: Final = Reading()


@dataclass(frozen=True)
class Budget:
    """How many tokens run at once; changes no verdict beyond the noise floor.

    Attributes:
        tokens: most tokens of one pass or batch, padding included. A pass needs memory for their
            activations, and in each layer for (tokens / 2)^2 scores a head at the very worst.
        fill: a packed pass that has this many takes no further response. On a CPU a pass of a few
            hundred tokens keeps the cores busy and its activations in cache; a GPU wants more.
    """

    tokens: int
    fill: int


CPU_BUDGET: Final = Budget(tokens=8192, fill=256)
GPU_BUDGET: Final = Budget(tokens=8192, fill=4096)


class Masses(NamedTuple):
    """Log-probability of all ids that mean yes, and of all that mean no."""

    yes: float
    no: float


@dataclass(frozen=True)
class LanguageModelVerifier:
    """Judges with a frozen causal language model in this process.

    Attributes:
        model: the model, in evaluation mode.
        frame: its chat frame.
        labels: ids that mean yes and no.
        pad_id: id that pads rows.
        coverage_floor: least probability on yes and no together for a verdict.
        undecided_band: half-width of the band around P(yes) = 1/2; see `noise_floor`.
        budget: tokens that run at once.
    """

    model: PreTrainedModel
    frame: ChatFrame
    labels: LabelIds
    pad_id: int
    coverage_floor: float = 0.5
    undecided_band: float = 0.0
    budget: Budget = CPU_BUDGET

    @property
    def max_tokens(self) -> int:
        """Longest prompt that the model reads."""
        return int(self.model.config.get_text_config().max_position_embeddings)

    def accepts(self, criterion: str) -> bool:
        """Return whether there is anything to read: a language model judges any sentence."""
        return bool(criterion.strip())

    def judge(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        """Return verdicts of shape (requests, criteria of each).

        A question beyond the context is unscored as too_long.
        """
        questions = self.questions(requests)
        masses = self.masses(questions.groups, "packed" if can_pack(self.model) else "batched")
        return questions.join({key: self.verdict(one) for key, one in masses.items()})

    def questions(self, requests: Sequence[JudgeRequest]) -> Questions:
        """Render what requests ask."""
        return render_questions(requests, self.frame, self.max_tokens)

    def verdict(self, masses: Masses) -> Verdict:
        """Decide one question."""
        yes, no = torch.tensor(masses, dtype=torch.float64).exp().tolist()
        return verdict_from_masses(
            yes, no, coverage_floor=self.coverage_floor, undecided_band=self.undecided_band
        )

    def masses(self, groups: Sequence[Group], way: Way) -> dict[Key, Masses]:
        """Ask every question of every group; the ways differ in cost and rounding alone."""
        found: dict[Key, Masses] = {}
        for keys, logits in self._logits(groups, way):
            found.update(zip(keys, self._read(logits), strict=True))
        return found

    def _logits(
        self, groups: Sequence[Group], way: Way
    ) -> Iterator[tuple[Sequence[Key], torch.Tensor]]:
        if way == "packed":
            budget, fill = self.budget.tokens, self.budget.fill
            for layout in plan_layouts(groups, budget=budget, fill=fill):
                yield [key for key, _ in layout.reads], run_packed(self.model, layout)
            return
        for batch in plan_batches(groups, budget=1 if way == "single" else self.budget.tokens):
            yield batch.keys, last_logits(self.model, batch.rows, self.pad_id)

    def _read(self, logits: torch.Tensor) -> list[Masses]:
        logits = logits.float()
        total = logits.logsumexp(dim=-1)
        yes, no = ((logits[:, list(ids)].logsumexp(dim=-1) - total).tolist() for ids in self.labels)
        return [Masses(*pair) for pair in zip(yes, no, strict=True)]


def load_verifier(
    name: str | Path, *, dtype: DtypeName = "auto", settings: Reading = READING
) -> LanguageModelVerifier:
    """Load a verifier and check it; see `checked_verifier`.

    Args:
        name: checkpoint folder or hub id; safetensors only, no code of its own.
        dtype: see `DtypeName`.
        settings: how its answers are read.
    """
    return checked_verifier(
        load_model(name, torch_dtype(dtype)), ChatTokenizer.load(name), settings
    )


def checked_verifier(
    model: PreTrainedModel, tokenizer: ChatTokenizer, settings: Reading = READING
) -> LanguageModelVerifier:
    """Make a verifier of a loaded model that answers alike alone, batched and packed (case 16).

    Args:
        model: in evaluation mode; it may serve others as well.
        tokenizer: its tokenizer.
        settings: how its answers are read.

    Raises:
        UserError: no single tokens for yes and no.
        InstrumentError: the ways of asking disagree by more than rounding.
    """
    verifier = LanguageModelVerifier(
        model,
        tokenizer.frame,
        labels_of(tokenizer, settings.languages),
        pad_id=tokenizer.pad_id,
        coverage_floor=settings.coverage_floor,
        budget=GPU_BUDGET if model.device.type == "cuda" else CPU_BUDGET,
    )
    floor = noise_floor(verifier, PROBES)
    if not floor.largest <= TOLERANCES[model.dtype]:  # NaN is no agreement
        raise InstrumentError(
            f"{tokenizer.hf.name_or_path} gives one question probabilities of yes that differ by "
            f"{floor.largest:.2g} alone, in a batch and packed; {TOLERANCES[model.dtype]:g} may be "
            "rounding. Its attention is none that this engine can pack or pad: use another "
            "engine for it"
        )
    band = floor.band if settings.undecided_band is None else settings.undecided_band
    return replace(verifier, undecided_band=band)


def torch_dtype(name: DtypeName) -> torch.dtype:
    """Return the number format that a setting means on this machine."""
    if name == "auto":
        fast = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if fast else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


class NoiseFloor(NamedTuple):
    """By how much an engine's own answer to one question varies.

    Attributes:
        num_questions: questions asked.
        largest: largest difference in P(yes) between any two ways of asking.
        band: what the largest difference in log-odds is worth at P(yes) = 1/2, twice over.
    """

    num_questions: int
    largest: float
    band: float


def noise_floor(verifier: LanguageModelVerifier, requests: Sequence[JudgeRequest]) -> NoiseFloor:
    """Measure the undecided band: the same questions alone, in batches and packed (case 28).

    Near 1/2 a verdict that differs by this much is a coin that the batch's neighbours toss. Few
    questions lie there, so differences are measured in log-odds, where rounding is of one size, and
    carried over by the logistic function's slope at 1/2, which is 1/4.

    Args:
        verifier: the engine.
        requests: questions of the kind that it will be asked; more of them find more noise.
    """
    groups = verifier.questions(requests).groups
    ways: list[Way] = ["single", "batched"]
    if can_pack(verifier.model):
        ways.append("packed")
    asked = [verifier.masses(groups, way) for way in ways]
    odds = torch.tensor(
        [[masses.yes - masses.no for _, masses in sorted(one.items())] for one in asked],
        dtype=torch.float64,
    )
    shares = odds.sigmoid()
    largest = float((shares.amax(0) - shares.amin(0)).max())
    spread = float((odds.amax(0) - odds.amin(0)).max())
    return NoiseFloor(odds.shape[1], largest, 2 * spread / 4)
