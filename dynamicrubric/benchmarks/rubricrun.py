"""The rubrics' part of `bench rubrics`: opens the judge, compares, writes figures and lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from dynamicrubric.benchmarks.opening import base_files
from dynamicrubric.benchmarks.rubricfigures import dimension_table, dimensions_of
from dynamicrubric.benchmarks.rubricjudge import dimensions
from dynamicrubric.benchmarks.rubrics import (
    COMPARED_FILE,
    Compare,
    by_judge,
    compare_pairs,
    in_world,
    pairs_of,
)
from dynamicrubric.benchmarks.run import Task
from dynamicrubric.benchmarks.scored import ScoredItem
from dynamicrubric.benchmarks.settings import RubricsSettings
from dynamicrubric.benchmarks.table import Table
from dynamicrubric.benchmarks.worlddimensions import WORLD_DIMENSIONS
from dynamicrubric.errors import UserError
from dynamicrubric.worlds.base import LANGUAGE, POSTCARDS, world_named, world_of
from dynamicrubric.yamlio import replace_text

DIMENSIONS_FILE: Final = "dimensions.json"


def compare_rubrics(
    settings: RubricsSettings, task: Task, scored: Sequence[ScoredItem], out: Path
) -> Table:
    """Compare the rubrics of a run's two evaluators, and write compared.jsonl, dimensions.json.

    Raises:
        UserError: an evaluator writes no rubrics, or there is neither a judge nor true quality.
    """
    pairs = pairs_of(task, scored)
    names = list(dimensions() if settings.judge else WORLD_DIMENSIONS)
    with _comparer(settings, all(pair.item.quality for pair in pairs)) as compare:
        found = compare_pairs(pairs, compare, settings.chunk, out / COMPARED_FILE)
    figures = dimensions_of(found, names)
    document = {
        "evaluators": list(task.evaluators),
        "dimensions": [asdict(one) for one in figures],
        "words": dimensions() if settings.judge else WORLD_DIMENSIONS,
    }
    replace_text(out / DIMENSIONS_FILE, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return dimension_table(figures, task.evaluators)


@contextmanager
def _comparer(settings: RubricsSettings, has_quality: bool) -> Iterator[Compare]:
    """Open what compares: the judge of the settings, or the world."""
    if settings.judge is None:
        prepared = settings.prepared
        world = None if prepared is None else world_of(Path(prepared)).name
        if world != POSTCARDS or not has_quality:
            raise UserError(
                doing="comparing rubrics exactly",
                got=f"the world {world}" if world != POSTCARDS else "items without true quality",
                expected=f"the world {POSTCARDS} and the data set `study`",
                remedy="name a judge: a verifier of kind language_model",
            )
        yield in_world
        return
    from dynamicrubric.engines.choice import Engines
    from dynamicrubric.engines.models import Models

    with Engines(Models(base_files(settings)), settings.places) as engines:
        yield by_judge(world_named(LANGUAGE).verifier(settings.judge, engines))
