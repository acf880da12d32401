"""Time three ways of asking a verifier, in one run: a row a verdict, packed, and vLLM.

Command: `python benchmarks/verdicts.py MODEL [--vllm-python PYTHON] [--texts FILE]`, MODEL being a
checkpoint folder or hub id. Each prompt has K responses of about 150 words and G rubrics of M
items; every response is judged on all G x M criteria. The responses are drawn from a few plain
words; FILE has real ones (JSONL, `prompt` and `responses` in each line). `--vllm-eager` is for
machines without a C++ compiler.

    a row each   one prompt a verdict in left-padded batches, its logits at the last place alone
    packed       what the verifier does: each response once, its questions behind it
    vLLM         the same token ids in a child process, prefix caching on, at the same number format

`faster` is by how much packed is, on the clock and in processor seconds: the latter hardly change
with what else the machine does, if `--threads 1` leaves no thread to wait for another. `tokens` is
what ran, padding included (for vLLM, what its cache did not hold, as it reports); `bound` is each
response's beginning once and each question once, and packed stays below it where questions begin
alike. `difference` is the largest one in P(yes) from the packed way. Exits with 1 if packed and a
row each differ by more than 1e-3 in float32, or if packed runs more than 1.1 times the bound.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from dynamicrubric.engines.base import JudgeRequest
from dynamicrubric.engines.packing import Group, Key, plan_batches, plan_layouts, token_bound
from dynamicrubric.engines.verifier import (
    Budget,
    DtypeName,
    LanguageModelVerifier,
    Way,
    load_verifier,
    torch_dtype,
)
from dynamicrubric.seeds import generator_for

MAX_DIFFERENCE = 1e-3
MAX_OVER_BOUND = 1.1
SUBJECTS = ("the harbour", "our old teacher", "a slow train", "the market", "this recipe")
VERBS = ("opens early in", "reminds me of", "was painted for", "leaves again after")
OBJECTS = ("the summer", "a quiet morning", "the long winter", "every holiday", "the first rain")
QUALITIES = (
    "polite",
    "concrete",
    "well ordered",
    "free of repetition",
    "honest about doubt",
    "easy to read",
    "written for the reader",
    "free of slang",
    "on the subject",
    "calm in tone",
)
# As a generator writes them: they begin with a verb, and so with few words in common.
FORMS = (
    "is {} in every one of its sentences",
    "seems {} to a reader who does not know its author",
    "stays {} from its first sentence to its last",
)


@dataclass(frozen=True)
class Outcome:
    """What one way took and found.

    Attributes:
        seconds: wall time of all verdicts.
        processor: processor seconds of all threads.
        tokens: tokens that ran.
        shares: P(yes) of each question.
    """

    seconds: float
    processor: float
    tokens: int
    shares: dict[Key, float]


def main(
    model: Annotated[str, typer.Argument(help="Checkpoint folder or hub id.")],
    prompts: Annotated[int, typer.Option(min=1, help="Prompts, each with a response set.")] = 1,
    responses: Annotated[int, typer.Option(min=1, help="K, responses a prompt.")] = 8,
    items: Annotated[int, typer.Option(min=1, help="M, items a rubric.")] = 8,
    rubrics: Annotated[int, typer.Option(min=1, help="G, rubrics a prompt.")] = 4,
    words: Annotated[int, typer.Option(min=1, help="Words a response, about.")] = 150,
    texts: Annotated[Path | None, typer.Option(help="JSONL with prompts and responses.")] = None,
    dtype: Annotated[DtypeName, typer.Option(help="Number format.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, help="Processor threads.")] = 2,
    vllm_python: Annotated[Path | None, typer.Option(help="Python that has vLLM.")] = None,
    vllm_eager: Annotated[bool, typer.Option(help="vLLM does not compile the model.")] = False,
) -> None:
    """Print verdicts a second, tokens, the bound and the largest difference of each way."""
    torch.set_num_threads(threads)
    verifier = load_verifier(model, dtype=dtype)
    criteria = make_criteria(items * rubrics)
    pairs = read_pairs(texts, words) if texts else drawn_pairs(words)
    requests = [JudgeRequest(r, criteria, 0, p) for p, r in islice(pairs, prompts * responses)]
    groups = verifier.questions(requests).groups
    outcomes = {
        "a row each": time_here(verifier, groups, "batched"),
        "packed": time_here(verifier, groups, "packed"),
    }
    if vllm_python is None:
        typer.echo("vLLM is left out: --vllm-python names no interpreter that has it.")
    else:
        settings = {
            "model": model,
            "dtype": str(torch_dtype(dtype)).removeprefix("torch."),
            "threads": threads,
            "eager": vllm_eager,
        }
        outcomes["vLLM, prefix caching"] = time_vllm(vllm_python, settings, verifier, groups)
    typer.echo(
        f"{prompts} x K = {responses} responses of about {words} words, G = {rubrics} rubrics of "
        f"M = {items} items; prefixes of "
        f"{statistics.fmean(len(group.prefix) for group in groups):.0f} tokens, questions of "
        f"{statistics.fmean(len(q) for q in groups[0].questions):.0f}, "
        f"{verifier.model.dtype}, {threads} threads"
    )
    sys.exit(show(outcomes, token_bound(groups), verifier.model.dtype))


def make_criteria(number: int) -> list[str]:
    """Return different criteria of 5 to 15 words."""
    made = [form.format(quality) for quality in QUALITIES for form in FORMS]
    made += [f"mentions {s} {n} times" for n in range(2, 40) for s in SUBJECTS]
    return made[:number]


def drawn_pairs(words: int) -> Iterator[tuple[str, str]]:
    """Yield prompts and responses of plain words, no two alike."""
    rng = generator_for("benchmark", "verdicts")
    while True:
        subject, text = SUBJECTS[int(rng.integers(len(SUBJECTS)))], ""
        while len(text.split()) < words:
            parts = (part[int(rng.integers(len(part)))] for part in (SUBJECTS, VERBS, OBJECTS))
            text += " ".join(parts).capitalize() + ". "
        yield f"Write a letter about {subject}.", text.strip()


def read_pairs(path: Path, words: int) -> Iterator[tuple[str, str]]:
    """Yield prompts of at most 60 words with responses of about `words`, in the file's order."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for response in row["responses"] if len(row["prompt"].split()) <= 60 else ():
            if 0.8 * words <= len(response.split()) <= 1.2 * words:
                yield row["prompt"], response


def time_here(verifier: LanguageModelVerifier, groups: Sequence[Group], way: Way) -> Outcome:
    """Ask all questions in this process, after two to warm up with."""
    verifier.masses([Group(groups[0].prefix, groups[0].questions[:2])], way)
    started, worked = time.perf_counter(), time.process_time()
    masses = verifier.masses(groups, way)
    seconds, processor = time.perf_counter() - started, time.process_time() - worked
    shares = {key: share(*pair) for key, pair in masses.items()}
    return Outcome(seconds, processor, num_tokens(verifier.budget, groups, way), shares)


def num_tokens(budget: Budget, groups: Sequence[Group], way: Way) -> int:
    """Return how many tokens run, padding included."""
    if way == "packed":
        layouts = plan_layouts(groups, budget=budget.tokens, fill=budget.fill)
        return sum(len(layout.ids) for layout in layouts)
    return sum(batch.num_tokens for batch in plan_batches(groups, budget=budget.tokens))


def time_vllm(
    python: Path,
    settings: dict[str, object],
    verifier: LanguageModelVerifier,
    groups: Sequence[Group],
) -> Outcome:
    """Ask all questions in a vLLM process; its start is not timed."""
    keys = [(g, q) for g, group in enumerate(groups) for q in range(len(group.questions))]
    job = settings | {
        "yes": verifier.labels.yes,
        "no": verifier.labels.no,
        "prompts": [[*groups[g].prefix, *groups[g].questions[q]] for g, q in keys],
    }
    child = Path(__file__).with_name("vllm_verdicts.py")
    done = subprocess.run(
        [str(python), str(child)],
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    shares = [share(yes, no) for yes, no in answer["masses"]]
    return Outcome(
        answer["seconds"],
        answer["processor"],
        answer["tokens"],
        dict(zip(keys, shares, strict=True)),
    )


def share(log_yes: float, log_no: float) -> float:
    """Return P(yes) from the logarithms of two masses."""
    return 1.0 / (1.0 + math.exp(min(log_no - log_yes, 700.0)))


def show(outcomes: dict[str, Outcome], bound: int, dtype: torch.dtype) -> int:
    """Print the table and return the exit code."""
    packed = outcomes["packed"]
    table = Table(
        "way", "verdicts/s", "faster", "processor s", "faster", "tokens", "x bound", "difference"
    )
    for name, one in outcomes.items():
        difference = max(abs(one.shares[key] - packed.shares[key]) for key in packed.shares)
        table.add_row(
            name,
            f"{len(one.shares) / one.seconds:.2f}",
            f"{one.seconds / packed.seconds:.1f}",
            f"{one.processor:.1f}",
            f"{one.processor / packed.processor:.1f}",
            str(one.tokens),
            f"{one.tokens / bound:.2f}",
            f"{difference:.1e}",
        )
    Console().print(table)
    typer.echo(f"{len(packed.shares)} verdicts; the bound is {bound} tokens")
    rows = outcomes["a row each"]
    largest = max(abs(rows.shares[key] - packed.shares[key]) for key in packed.shares)
    exact = dtype is not torch.float32 or largest <= MAX_DIFFERENCE
    return 0 if exact and packed.tokens <= MAX_OVER_BOUND * bound else 1


if __name__ == "__main__":
    typer.run(main)
