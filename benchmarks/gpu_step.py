"""Run a generator step, a policy step and packed verification of a model with random weights.

Command: `python benchmarks/gpu_step.py [--shape qwen3-8b|tiny]`. The model has the shape of the
named one and needs no download; the steps are those of a study (LoRA adapters over a frozen base
that is the verifier too), on the GPU if there is one. Prints for each part seconds, tokens, tokens
a second, model FLOP/s, their share of the device's dense bfloat16 peak and the memory at its peak.

    policy: sampling       K responses a prompt
    policy: judging        their verdicts under a rubric, packed
    policy: training       KL reference, forward, backward, optimiser
    generator: sampling    a group of rubrics a response set
    generator: training    the same
    verification           K responses on G x M criteria, packed

A model with random weights never ends a response and writes no valid rubric. So the last token
sampled is made the end token, the policy is judged by a rubric written here, and the generator's
rubrics go unjudged: `verification` is what judging them would take. Rewards are made up, so that
there is something to learn. Of three steps the second is measured: the first warms up, the last
one's training is not told apart from saving.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import typer
from flops import Work, forward_flops, lora_step_flops, peak_flops
from randommodel import SHAPES, Load, ShapeName, random_models
from rich.console import Console
from rich.table import Table
from timedrollout import Clock, Timed
from transformers import Qwen3Config
from verdicts import drawn_pairs, make_criteria

from dynamicrubric.config import AdapterConfig, Sampling
from dynamicrubric.engines.base import JudgeRequest
from dynamicrubric.engines.chattokenizer import ChatTokenizer
from dynamicrubric.engines.models import Models, save_checkpoint
from dynamicrubric.engines.packing import plan_layouts
from dynamicrubric.engines.tokenizer import load_tokenizer
from dynamicrubric.engines.verifier import Reading, checked_verifier
from dynamicrubric.evaluators.judging import Judging, ResponseSet
from dynamicrubric.evaluators.writers import FixedWriter
from dynamicrubric.rubrics import render_rubric
from dynamicrubric.training.generator import GeneratorRollout
from dynamicrubric.training.grpo import GrpoSettings, train_grpo
from dynamicrubric.training.policy import PolicyRollout
from dynamicrubric.training.rollout import Rollout
from dynamicrubric.types import Item, Rubric

STEPS = 3
MEASURED = 1
NUM_ANCHORS = 7
LORA = AdapterConfig(
    rank=16, alpha=32, dropout=0.0, target_modules=("q_proj", "k_proj", "v_proj", "o_proj")
)


@dataclass(frozen=True)
class Part:
    """One part of a step, measured.

    Attributes:
        name: what it is.
        seconds: wall time.
        tokens: tokens that went through the model, each pass counted once.
        flops: the model's operations.
        memory: most bytes allocated on the GPU during it; None on a CPU.
    """

    name: str
    seconds: float
    tokens: int
    flops: float
    memory: int | None


def main(
    shape: Annotated[ShapeName, typer.Option(help="Whose shape the model has.")] = "qwen3-8b",
) -> None:
    """Print what each part takes."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and shape != "tiny":
        raise SystemExit(f"a model of the shape {shape} needs a GPU; --shape tiny runs on a CPU")
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with tempfile.TemporaryDirectory() as work:
        show(measure(shape, dtype, Path(work)), name, str(dtype).removeprefix("torch."))


def measure(shape: ShapeName, dtype: torch.dtype, work: Path) -> list[Part]:
    """Run both steps and the verification; return their parts."""
    settings, load = SHAPES[shape]
    config = Qwen3Config(**settings, rope_theta=1e6, tie_word_embeddings=False)
    bench = Bench(config, load, random_models(config, dtype, work / "base"), work)
    return [*bench.policy_step(), *bench.generator_step(), bench.verification()]


@dataclass
class Bench:
    """The model and the load."""

    config: Qwen3Config
    load: Load
    models: Models
    work: Path

    def __post_init__(self) -> None:
        """Make the verifier, the criteria and the texts."""
        reading = Reading(coverage_floor=0.0, undecided_band=0.0)  # random weights know no labels
        tokenizer = ChatTokenizer.load(self.models.base_folder)
        self.verifier = checked_verifier(self.models.base(), tokenizer, reading)
        self.criteria = tuple(make_criteria(self.load.rubrics * self.load.items))
        words = max(4, self.load.response_tokens // 2)
        size = self.load.responses
        pairs = list(islice(drawn_pairs(words), self.load.prompts * (size + NUM_ANCHORS)))
        self.sets = {}
        self.anchors = {}
        for number in range(self.load.prompts):
            texts = [text for _, text in pairs[number :: self.load.prompts]]
            key, prompt = f"p{number}", pairs[number][0]
            self.sets[key] = ResponseSet(key, prompt, tuple(texts[:size]))
            self.anchors[key] = tuple(texts[size:])

    @property
    def judging(self) -> Judging:
        """Any rubric is read, and nothing stops a step."""
        return Judging(self.verifier, 1, self.load.items, 1.0, 1.0)

    def policy_step(self) -> list[Part]:
        """Train the policy under a rubric written here."""
        rubric = Rubric(tuple(Item(text, 1) for text in self.criteria[: self.load.items]))
        sampling = Sampling(temperature=1.0, min_p=0.0, max_tokens=self.load.response_tokens)
        rollout = PolicyRollout(
            prompts={key: one.prompt for key, one in self.sets.items()},
            writer=FixedWriter(render_rubric(rubric)),
            judging=self.judging,
            sampling=sampling,
            seed_name=(1, 1, "train_policy"),
            cell_hash="benchmark",
        )
        timed = self._train("policy", rollout, sampling, self.load.responses, ["score"])
        asked = [
            JudgeRequest(row["text"], rubric.criteria, 0, self.sets[row["prompt_id"]].prompt)
            for row in timed.batches[MEASURED].lineage
        ]
        judging = self._packed("policy: judging", asked, *timed.judging[MEASURED])
        sampled, trained = self._parts("policy", timed)
        return [sampled, judging, trained]

    def generator_step(self) -> list[Part]:
        """Train the generator; its rubrics are invalid, as random weights write no JSON."""
        sampling = Sampling(temperature=1.0, min_p=0.0, max_tokens=self.load.rubric_tokens)
        rollout = GeneratorRollout(
            sets=self.sets,
            anchors=self.anchors,
            judging=self.judging,
            sees_responses=True,
            sampling=sampling,
            seed_name=(1, 1, "train_generator"),
        )
        timed = self._train(
            "generator", rollout, sampling, self.load.rubrics, ["r_disc", "r_anchor"]
        )
        return self._parts("generator", timed)

    def requests(self) -> list[JudgeRequest]:
        """Return what the verification asks."""
        return [
            JudgeRequest(text, self.criteria, 0, one.prompt)
            for one in self.sets.values()
            for text in one.responses
        ]

    def verification(self) -> Part:
        """Judge every response of every set on all criteria, after a first time to warm up."""
        requests = self.requests()
        self.verifier.judge(requests[:1])
        clock = Clock()
        verdicts = self.verifier.judge(requests)
        seconds, memory = clock.read()
        assert all(len(row) == len(self.criteria) for row in verdicts)
        return self._packed("verification", requests, seconds, memory)

    def _train(
        self, role: str, rollout: Rollout, sampling: Sampling, group_size: int, rewards: list[str]
    ) -> Timed:
        start, out = self.work / f"{role}-start", self.work / f"{role}-out"
        for folder in (start, out):
            folder.mkdir()
        save_checkpoint(
            self.models.new_adapter(LORA, seed=1), load_tokenizer(self.models.files.folder), start
        )
        timed = Timed(rollout)
        settings = GrpoSettings(
            steps=STEPS,
            prompts_per_step=self.load.prompts,
            group_size=group_size,
            learning_rate=1e-4,
            kl_beta=0.01,
            temperature=sampling.temperature,
            max_tokens=sampling.max_tokens,
            reward_weights=dict.fromkeys(rewards, 1.0),
            seed=1,
            checkpoint_every_steps=STEPS,
        )
        train_grpo(
            start, list(self.sets), timed, settings,
            out_dir=out, work_dir=self.work / f"{role}-work", models=self.models,
        )  # fmt: skip
        return timed

    def _parts(self, role: str, timed: Timed) -> list[Part]:
        """Return sampling and training of the step that counts."""
        batch = timed.batches[MEASURED]
        rows = [
            (len(prompt), len(completion))
            for prompt, completion in zip(batch.prompt_ids, batch.completion_ids, strict=True)
        ]
        sampled, scored = Work.sampling(rows), Work.scoring(rows)
        (first, first_memory), (second, second_memory) = (
            found[MEASURED] for found in (timed.sampling, timed.training)
        )
        return [
            Part(
                f"{role}: sampling",
                first,
                sampled.tokens,
                forward_flops(self.config, sampled),
                first_memory,
            ),
            Part(
                f"{role}: training",
                second,
                scored.tokens,
                lora_step_flops(self.config, scored),
                second_memory,
            ),
        ]

    def _packed(
        self, name: str, requests: Sequence[JudgeRequest], seconds: float, memory: int | None
    ) -> Part:
        """Return what packed verdicts took, with the tokens of their passes."""
        budget = self.verifier.budget
        groups = self.verifier.questions(requests).groups
        layouts = plan_layouts(groups, budget=budget.tokens, fill=budget.fill)
        contexts = sum(position + 1 for layout in layouts for position in layout.positions)
        work = Work(
            sum(len(layout.ids) for layout in layouts),
            contexts,
            sum(len(layout.reads) for layout in layouts),
        )
        return Part(name, seconds, work.tokens, forward_flops(self.config, work), memory)


def show(parts: Sequence[Part], device: str, dtype: str) -> None:
    """Print a table of the parts."""
    peak = peak_flops(device, dtype)
    known = "unknown" if peak is None else f"{peak / 1e12:.0f} TFLOP/s dense"
    typer.echo(f"{device}, {dtype}; its peak: {known}")
    table = Table(
        "part", "seconds", "tokens", "tokens/s", "TFLOP/s", "share of peak", "memory, GiB"
    )
    for part in parts:
        speed = part.flops / part.seconds
        table.add_row(
            part.name,
            f"{part.seconds:.2f}",
            str(part.tokens),
            f"{part.tokens / part.seconds:.0f}",
            f"{speed / 1e12:.3g}",
            "unknown" if peak is None else f"{speed / peak:.1%}",
            "not measured" if part.memory is None else f"{part.memory / 2**30:.1f}",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    typer.run(main)
