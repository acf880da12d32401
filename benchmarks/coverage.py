"""Does the 95 % interval hold the truth in 95 of 100 studies? Simulated, with a known truth.

Command: `python benchmarks/coverage.py` (about two minutes on one core; `--studies 100` to try it).
It exits with 1 if the interval of any configuration holds the truth in fewer than 92 or more than
98 of 100 studies, or if copies of rows change a result.

Each study goes through the doors that a comparison uses: rows, `prompt_means`, `Paired.of`,
`estimate`. The difference between two arms on a row is

    truth + seed's share + prompt's share + share of this seed and prompt + the row's own noise,

seeds and prompts crossed as in a real study: every seed answers the same held-out prompts, so rows
come in clusters both ways. A tenth of the rows, and of the (seed, prompt) pairs all rows, are
unscored in half of the configurations. Draws are named by their configuration: the same figures
each time.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from dynamicrubric.seeds import generator_for
from dynamicrubric.stats import LEVEL, Estimate, Paired, estimate, prompt_means

TRUTH: Final = 0.05
NUM_PROMPTS: Final = 48
NUM_SEEDS: Final = (3, 5)
ROWS: Final = 4
"""Rows of a seed and prompt, as many as the default study's response sets."""
ROW_NOISE: Final = 1.0
UNSCORED: Final = 0.1
LOWEST, HIGHEST = 0.92, 0.98
Rows = list[tuple[str, float | None]]


@dataclass(frozen=True)
class Shape:
    """Standard deviations of what a difference is made of, beside the rows' own noise."""

    name: str
    seeds: float
    prompts: float
    both: float
    skewed: bool = False
    """Prompts' shares are exponential, not normal: a few prompts make most of the difference."""


SHAPES: Final = (
    Shape("seeds and prompts alike", 0.0, 0.0, 0.9),
    Shape("a little of each", 0.1, 0.3, 0.9),
    Shape("seeds differ", 0.3, 0.3, 0.9),
    Shape("seeds differ most", 1.0, 0.3, 0.9),
    Shape("prompts differ most", 0.1, 1.0, 0.9),
    Shape("prompts differ, little else", 0.3, 1.0, 0.2),
    Shape("a few prompts differ much", 0.2, 1.0, 0.5, skewed=True),
)


@dataclass(frozen=True)
class Configuration:
    """What is simulated again and again."""

    shape: Shape
    num_seeds: int
    unscored: float

    def study(self, number: int) -> dict[int, Rows]:
        """Return the rows of one study by seed: (prompt id, difference or None)."""
        shape = self.shape
        draw = generator_for("coverage", shape.name, self.num_seeds, str(self.unscored), number)
        size = (self.num_seeds, NUM_PROMPTS)
        of_prompts = (
            draw.exponential(size=NUM_PROMPTS) - 1.0
            if shape.skewed
            else draw.normal(size=NUM_PROMPTS)
        )
        level = (
            TRUTH
            + shape.seeds * draw.normal(size=(self.num_seeds, 1))
            + shape.prompts * of_prompts
            + shape.both * draw.normal(size=size)
        )
        values = level[..., None] + ROW_NOISE * draw.normal(size=(*size, ROWS))
        values[draw.random(values.shape) < self.unscored] = np.nan
        values[draw.random(size) < self.unscored] = np.nan
        return {seed: _rows(own) for seed, own in enumerate(values, start=1)}


@dataclass(frozen=True)
class Coverage:
    """How many of the studies' intervals held the truth, and how wide they were."""

    of: Configuration
    num_studies: int
    held: int
    mean_width: float

    @property
    def share(self) -> float:
        """Share of intervals that held the truth."""
        return self.held / self.num_studies

    @property
    def error(self) -> float:
        """Monte Carlo standard error of the share."""
        return math.sqrt(self.share * (1.0 - self.share) / self.num_studies)


def configurations() -> list[Configuration]:
    """Return all that is simulated."""
    return [
        Configuration(shape, num_seeds, unscored)
        for num_seeds in NUM_SEEDS
        for shape in SHAPES
        for unscored in (0.0, UNSCORED)
    ]


def coverage(of: Configuration, num_studies: int, tick: Callable[[], None]) -> Coverage:
    """Simulate studies and count whose interval holds the truth; `tick` is called after each."""
    held, widths = 0, 0.0
    for number in range(num_studies):
        low, high = interval_of(estimate_of(of.study(number)))
        held += low <= TRUTH <= high
        widths += high - low
        tick()
    return Coverage(of, num_studies, held, widths / num_studies)


def estimate_of(rows: dict[int, Rows]) -> Estimate:
    """Return what a comparison says of a study."""
    return estimate(Paired.of({seed: prompt_means(own) for seed, own in rows.items()}))


def interval_of(found: Estimate) -> tuple[float, float]:
    """Return the interval over seeds and prompts; these studies are large enough to have one."""
    assert found.interval is not None, found.lacking
    assert found.over == "seeds and prompts", found.over
    return found.interval


def copies_change_nothing(of: Configuration) -> bool:
    """Say whether every row three times, in another order, gives the very same estimate."""
    rows = of.study(0)
    order = generator_for("coverage", "copies")
    copied = {}
    for seed, own in rows.items():
        tripled = own * 3
        copied[seed] = [tripled[place] for place in order.permutation(len(tripled))]
    return close(estimate_of(copied), estimate_of(rows))


def close(one: Estimate, other: Estimate) -> bool:
    """Say whether two estimates are equal but for the rounding of sums."""
    numbers = [
        (one.mean, other.mean),
        (one.standard_error, other.standard_error),
        (one.degrees, other.degrees),
        (one.p_value, other.p_value),
        (one.superiority, other.superiority),
        *zip(one.interval or (), other.interval or (), strict=True),
    ]
    return one.over == other.over and all(
        a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
        for a, b in numbers
    )


def main(
    studies: Annotated[int, typer.Option(min=1, help="Simulated studies a configuration.")] = 1000,
) -> None:
    """Simulate, print the coverage of each configuration, exit with 1 if one is out of bounds."""
    console = Console()
    every = configurations()
    found = list(_with_progress(every, studies, console))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("seeds", "differences", "unscored", "held the truth", "+-", "width", ""):
        table.add_column(head)
    for one in found:
        right = LOWEST <= one.share <= HIGHEST
        table.add_row(
            str(one.of.num_seeds),
            one.of.shape.name,
            f"{one.of.unscored:.0%}",
            f"{one.share:.1%}",
            f"{one.error:.1%}",
            f"{one.mean_width:.3f}",
            "" if right else "out of bounds",
        )
    console.print(table)
    out = [one for one in found if not LOWEST <= one.share <= HIGHEST]
    copied = [of for of in every if not copies_change_nothing(of)]
    console.print(
        f"{LEVEL:.0%} interval, {studies} studies each of {NUM_PROMPTS} prompts, {ROWS} rows a "
        f"seed and prompt: {len(found) - len(out)} of {len(found)} within {LOWEST:.0%} to "
        f"{HIGHEST:.0%}."
    )
    console.print(f"Copies of rows change {len(copied) or 'none'} of {len(every)} estimates.")
    if out or copied:
        sys.exit(1)


def _with_progress(
    every: list[Configuration], studies: int, console: Console
) -> Iterator[Coverage]:
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("simulating", total=len(every) * studies)
        for of in every:
            name = f"{of.num_seeds} seeds, {of.shape.name}"
            progress.update(task, description=name)
            yield coverage(of, studies, lambda: progress.advance(task))


def _rows(values: NDArray[np.float64]) -> Rows:
    """Return the rows of one seed; shape (prompts, rows), NaN where unscored."""
    return [
        (f"p{prompt:03d}", None if math.isnan(value) else float(value))
        for prompt, own in enumerate(values)
        for value in own
    ]


if __name__ == "__main__":
    typer.run(main)
