"""The generator's side of the order check, run as a child process: it alone needs a model.

`python -m dynamicrubric.honesty.orderstep REQUEST RESULT` reads a JSON request and writes a JSON
result. It reads a finished cell and changes nothing in it. The verifier is asked about each set in
the places that its responses have, so whatever is random in it is the same for every rubric.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dynamicrubric.boundary import run_with_boundary
from dynamicrubric.evaluators.orders import average_rubric, in_order, order_seed
from dynamicrubric.honesty.orders import ShownSet, order_figures
from dynamicrubric.plan import CellRecipe, parse_recipe
from dynamicrubric.rubrics import render_rubric
from dynamicrubric.seeds import derive_seed
from dynamicrubric.types import Rubric

if TYPE_CHECKING:
    from dynamicrubric.engines.base import Generation
    from dynamicrubric.evaluation import Quality, SampledSet
    from dynamicrubric.evaluators.judging import Judging, ResponseSet
    from dynamicrubric.evaluators.writers import RubricWriter

PROGRESS: Final = "progress "
"""Begins a line of the child's output that says how far it is."""
_PR_SET_PDEATHSIG: Final = 1


def check_orders(
    *,
    recipe: Mapping[str, Any],
    evaluation_dir: str,
    generator_dir: str,
    prepared_dir: str,
    engines: Mapping[str, Any],
    orders: int,
    limit: int | None,
) -> dict[str, Any]:
    """Show the generator of a cell its held-out sets in several orders; return the figures.

    Args:
        recipe: the cell's.
        evaluation_dir: its evaluation, whose sets and rubrics are stored.
        generator_dir: its generator.
        prepared_dir: the prepared data.
        engines: where engines run.
        orders: how many orders, the one that a set is in among them; at least 2.
        limit: at most so many sets; None: all.
    """
    from dynamicrubric.evaluationfiles import read_sets
    from dynamicrubric.stepparts import dynamic_writer, engines_of, judging_of
    from dynamicrubric.worlds.prepared import load_prepared

    cell, prepared = parse_recipe(recipe), load_prepared(Path(prepared_dir))
    sets, quality = read_sets(Path(evaluation_dir))
    stored = _stored_rubrics(Path(evaluation_dir))
    with engines_of(prepared, engines) as opened:
        shown = _shown(
            cell,
            sets[:limit],
            quality,
            stored,
            dynamic_writer(cell, Path(generator_dir), opened),
            judging_of(cell, cell.evaluation, prepared.world, opened),
            orders,
        )
    return asdict(order_figures(shown, cell.seed))


def _shown(
    cell: CellRecipe,
    sampled: Sequence[SampledSet],
    quality: Quality,
    stored: Mapping[str, str],
    writer: RubricWriter,
    judging: Judging,
    orders: int,
) -> list[ShownSet]:
    sets = [one.responses for one in sampled]
    seeds = [derive_seed(cell.seed, cell.round, "evaluate", s.set_id, "rubric") for s in sampled]
    numbers = range(1, orders)
    _say(0, 2 * orders - 1)
    texts = [writer.write(sets, seeds)]
    for number in numbers:  # then the same order again, with the seeds that the others had
        _say(number, 2 * orders - 1)
        moved = [in_order(one, number, seed) for one, seed in zip(sets, seeds, strict=True)]
        texts.append(writer.write(moved, [order_seed(number, seed) for seed in seeds]))
    for number in numbers:
        _say(orders - 1 + number, 2 * orders - 1)
        again = [derive_seed(order_seed(number, seed), "again") for seed in seeds]
        texts.append(writer.write(sets, again))
    texts.append([_averaged(own, judging) for own in zip(*texts[:orders], strict=True)])
    judged = [judging.judge_sets(own, sets, seeds) for own in texts]
    return [
        ShownSet(
            prompt_id=one.responses.prompt_id,
            quality=_qualities(one.responses, quality),
            reproduced=texts[0][place].text == stored.get(one.set_id),
            first=judged[0][place],
            permuted=[judged[number][place] for number in numbers],
            again=[judged[orders - 1 + number][place] for number in numbers],
            averaged=judged[-1][place],
        )
        for place, one in enumerate(sampled)
    ]


def _averaged(texts: Sequence[Generation], judging: Judging) -> Generation:
    from dynamicrubric.engines.base import Generation

    read = [judging.read(text) for text in texts]
    valid = [rubric for rubric in read if isinstance(rubric, Rubric)]
    return Generation((), render_rubric(average_rubric(valid)), "stop") if valid else texts[0]


def _qualities(responses: ResponseSet, quality: Quality) -> tuple[float | None, ...]:
    return tuple(
        quality(responses.prompt_id, text) if failed is None else None
        for text, failed in zip(responses.responses, responses.reasons, strict=True)
    )


def _stored_rubrics(evaluation_dir: Path) -> dict[str, str]:
    import pyarrow.parquet as pq

    rows = pq.read_table(evaluation_dir / "rubrics.parquet", columns=["rubric_id", "text"])
    return {str(row["rubric_id"]): str(row["text"]) for row in rows.to_pylist()}


def _say(done: int, of: int) -> None:
    print(f"{PROGRESS}{done} of {of} passes over the response sets", flush=True)


def main() -> int:
    """Read the request, write the result; the process ends with its parent, however that ends."""
    request, result, parent = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # gone before the line above
        return 1
    figures = check_orders(**json.loads(request.read_text(encoding="utf-8")))
    result.write_text(json.dumps(figures, allow_nan=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run_with_boundary(main))
