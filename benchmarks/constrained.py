"""How many rubrics are valid, written freely and kept to the form of one, by the same generator?

Command: `python benchmarks/constrained.py BASE --adapter FOLDER --texts FILE`, BASE being a
checkpoint folder with a chat template, FOLDER a generator's adapter over it (a cell's `generator`,
or `data/warm/generator`; without it the base itself writes), FILE ranked answers, as
`data prepare` reads them. Each prompt's first K answers are its response set, and it gets one
rubric each way, from the same prompt ids and seed. Limits are those of the profile `smollm2` unless
told otherwise.

    valid        share of rubrics that `parse_rubric` takes, with Wilson's 95 % interval; a rubric
                 that the token limit cuts is invalid both ways
    difference   kept less free, paired by prompt, with its 95 % interval over prompts

Prints a table, why rubrics were invalid, and a rubric of each way; exits with 1 if fewer are valid
under the grammar than without.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from dynamicrubric.boundary import run_with_boundary
from dynamicrubric.config import Sampling
from dynamicrubric.data.rows import AnchorRow
from dynamicrubric.data.sources import Reading, open_sources
from dynamicrubric.engines.base import Constrained, GenerateEngine, GenerateRequest, Generation
from dynamicrubric.engines.chattokenizer import ChatTokenizer
from dynamicrubric.engines.models import Models
from dynamicrubric.engines.transformers import TransformersEngine
from dynamicrubric.errors import UserError
from dynamicrubric.rubrics import parse_rubric, rubric_schema
from dynamicrubric.seeds import derive_seed
from dynamicrubric.stats import Paired, estimate, share_interval
from dynamicrubric.types import InvalidRubric, Rubric
from dynamicrubric.worlds.base import BaseModelFiles


@dataclass(frozen=True)
class Written:
    """What one way of sampling wrote.

    Attributes:
        texts: a generation for each prompt.
        rubrics: what they are read as.
        seconds: wall time.
    """

    texts: list[Generation]
    rubrics: list[Rubric | InvalidRubric]
    seconds: float

    @property
    def valid(self) -> list[bool]:
        """Which of them are rubrics."""
        return [isinstance(one, Rubric) for one in self.rubrics]


def main(
    base: Annotated[Path, typer.Argument(help="Checkpoint folder.")],
    texts: Annotated[list[str], typer.Option(help="Ranked answers: a file, a folder, hub:...")],
    adapter: Annotated[Path | None, typer.Option(help="The generator's adapter.")] = None,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts, a rubric each way for each.")] = 100,
    responses: Annotated[int, typer.Option(min=1, help="K, responses shown.")] = 4,
    letters: Annotated[int, typer.Option(min=1, help="Longest prompt or response shown.")] = 250,
    min_items: Annotated[int, typer.Option(min=1)] = 2,
    max_items: Annotated[int, typer.Option(min=1)] = 4,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest rubric.")] = 96,
    temperature: Annotated[float, typer.Option(min=0.01)] = 1.0,
    min_p: Annotated[float, typer.Option(min=0.0, max=0.99)] = 0.05,
    dtype: Annotated[str, typer.Option(help="Number format of the base.")] = "float32",
    threads: Annotated[int, typer.Option(min=1, help="Processor threads.")] = 1,
) -> None:
    """Print the share of valid rubrics with and without constrained decoding."""
    torch.set_num_threads(threads)
    engine = open_engine(base, adapter, dtype)
    shown = [(row.prompt, shown_of(row, responses, letters)) for row in read_rows(texts, letters)]
    shown = [(prompt, own) for prompt, own in shown if len(own) == responses][:prompts]
    if not shown:
        raise UserError(
            doing="reading prompts to write rubrics for",
            got=f"none with {responses} responses in {', '.join(texts)}",
            expected="at least one with so many",
            remedy="lower --responses, or name another file in --texts",
        )
    requests = [
        GenerateRequest(engine.tokenizer.generator_prompt(prompt, own), derive_seed("form", place))
        for place, (prompt, own) in enumerate(shown)
    ]
    sampling = Sampling(temperature=temperature, min_p=min_p, max_tokens=max_tokens)
    schema = rubric_schema(min_items=min_items, max_items=max_items)
    limits = (min_items, max_items)
    ways = {
        "free": write(engine, requests, sampling, limits),
        "kept to the form": write(Constrained(engine, schema), requests, sampling, limits),
    }
    show(ways)
    free, kept = (sum(one.valid) for one in ways.values())
    sys.exit(0 if kept >= free else 1)


def open_engine(base: Path, adapter: Path | None, dtype: str) -> TransformersEngine:
    """Load the base, or the base with an adapter."""
    models = Models(BaseModelFiles(base, dtype))
    if adapter is not None:
        return models.engine(adapter)
    return TransformersEngine(models.base(), ChatTokenizer.load(base))


def read_rows(names: list[str], letters: int) -> Iterator[AnchorRow]:
    """Yield rows whose prompt is short enough, each prompt once, in the sources' order."""
    seen: set[str] = set()
    for source in open_sources(names, "unknown"):
        for row in source.anchor_rows(0.02, Reading(source.name)):
            if len(row.prompt) <= letters and row.prompt not in seen:
                seen.add(row.prompt)
                yield row
    if not seen:
        raise UserError(
            doing="reading prompts to write rubrics for",
            got=f"none of at most {letters} letters in {', '.join(names)}",
            expected="ranked answers to at least one such prompt",
            remedy="raise --letters, or name another file in --texts",
        )


def shown_of(row: AnchorRow, number: int, letters: int) -> list[str]:
    """Return a row's first responses as a generator sees them."""
    return [text[:letters] for text in islice(row.responses, number)]


def write(
    engine: GenerateEngine,
    requests: Sequence[GenerateRequest],
    sampling: Sampling,
    limits: tuple[int, int],
) -> Written:
    """Write a rubric for each request and read it."""
    started = time.perf_counter()
    texts = engine.generate(requests, sampling)
    seconds = time.perf_counter() - started
    rubrics = [
        parse_rubric(
            one.text, min_items=limits[0], max_items=limits[1], finish_reason=one.finish_reason
        )
        for one in texts
    ]
    return Written(texts, rubrics, seconds)


def show(ways: dict[str, Written]) -> None:
    """Print what each way wrote, and the difference."""
    console = Console(width=120)
    table = Table("rubrics", "valid", "of", "share", "95 %", "seconds", "invalid because")
    for name, one in ways.items():
        number, total = sum(one.valid), len(one.valid)
        low, high = share_interval(number, total)
        reasons = Counter(r.reason.value for r in one.rubrics if isinstance(r, InvalidRubric))
        why = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        table.add_row(
            name,
            str(number),
            str(total),
            f"{number / total:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{one.seconds:.1f}",
            why or "-",
        )
    console.print(table)
    free, kept = (one.valid for one in ways.values())
    differences = {
        str(place): float(kept[place]) - float(free[place]) for place in range(len(kept))
    }
    found = estimate(Paired.of({0: differences}))
    interval = (
        f"95 % {found.interval[0]:+.3f} to {found.interval[1]:+.3f} over prompts"
        if found.interval
        else f"no interval: {found.lacking}"
    )
    console.print(f"kept less free: {found.mean:+.3f}, {interval}", highlight=False)
    for name, one in ways.items():
        console.print(f"{name}, the first: {one.texts[0].text!r}", highlight=False, markup=False)


if __name__ == "__main__":
    sys.exit(run_with_boundary(lambda: typer.run(main)))
