"""Rubrics of two evaluators compared: by a judge in both orders, or exactly in the world."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynamicrubric.benchmarks.outcomes import Outcome
from dynamicrubric.benchmarks.run import Task
from dynamicrubric.benchmarks.schema import BenchItem
from dynamicrubric.benchmarks.scored import ScoredItem
from dynamicrubric.engines.base import Verifier
from dynamicrubric.errors import UserError

COMPARED_FILE: Final = "compared.jsonl"
INVALID: Final = "invalid_rubric"
Rubric = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Pair:
    """Two rubrics for one item.

    Attributes:
        seed: the run's.
        item: the item.
        rubrics: of both evaluators, None where the text is no rubric.
    """

    seed: int
    item: BenchItem
    rubrics: tuple[Rubric | None, Rubric | None]


@dataclass(frozen=True)
class Compared:
    """What is found of one pair: a line of compared.jsonl.

    Attributes:
        seed: the run's.
        dataset: the item's, like `id` and `prompt_id`.
        id: the item's.
        prompt_id: the item's.
        outcomes: by dimension, the first evaluator's view.
        values: by dimension, both evaluators' exact values; empty where a judge compared.
        reason: why everything is unscored, None if it is not.
    """

    seed: int
    dataset: str
    id: str
    prompt_id: str
    outcomes: Mapping[str, Outcome]
    values: Mapping[str, tuple[float | None, float | None]]
    reason: str | None = None


Compare = Callable[[Sequence[Pair]], list[Compared]]


def pairs_of(task: Task, scored: Sequence[ScoredItem]) -> list[Pair]:
    """Return both evaluators' rubrics for each item of a run: those of the first order read.

    Raises:
        UserError: an evaluator writes no rubrics.
    """
    items = {
        (seed, loaded.name, item.id): item
        for seed in task.seeds
        for loaded in task.data[seed]
        for item in loaded.items
    }
    rubrics: dict[tuple[int, str, str], dict[str, Rubric | None]] = {}
    for one in scored:
        if items[one.seed, one.dataset, one.id].is_identical:
            continue  # nobody was asked for a rubric
        said = one.said[0]
        if "valid" not in said:
            raise UserError(
                doing="comparing rubrics",
                got=f"the evaluator {one.evaluator!r}, which writes none",
                expected="two evaluators of kind dynamic or static",
            )
        found = tuple((text, weight) for text, weight in said.get("items", ()))
        rubrics.setdefault((one.seed, one.dataset, one.id), {})[one.evaluator] = found or None
    first, second = task.evaluators
    return [Pair(key[0], items[key], (own[first], own[second])) for key, own in rubrics.items()]


def compare_pairs(
    pairs: Sequence[Pair], compare: Compare, chunk: int, path: Path
) -> list[Compared]:
    """Compare what is not compared yet, chunk by chunk, each written whole.

    Args:
        pairs: all pairs, in order.
        compare: compares pairs whose rubrics are valid.
        chunk: pairs that are compared together.
        path: where lines are appended.

    Raises:
        UserError: the file has lines of other pairs.
    """
    done = _resume(path, pairs, chunk)
    for start in range(len(done), len(pairs), chunk):
        own = pairs[start : start + chunk]
        valid = iter(compare([one for one in own if None not in one.rubrics]))
        found = [_unscored(one) if None in one.rubrics else next(valid) for one in own]
        with path.open("a", encoding="utf-8") as stream:
            stream.write("".join(json.dumps(vars(one)) + "\n" for one in found))
        done += found
    return done


def _resume(path: Path, pairs: Sequence[Pair], chunk: int) -> list[Compared]:
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    lines = text.split("\n")[:-1]
    whole = lines if len(lines) == len(pairs) else lines[: len(lines) // chunk * chunk]
    try:
        done = [_read(line) for line in whole]
    except (ValueError, KeyError, TypeError):
        done = []
    expected = [(one.seed, one.item.dataset, one.item.id) for one in pairs[: len(whole)]]
    if [(one.seed, one.dataset, one.id) for one in done] != expected:
        raise UserError(
            doing=f"going on with {path}",
            got="lines of other pairs",
            expected="those of this run",
            remedy="remove the folder, or name another with --out",
        )
    if path.is_file():
        path.write_text("".join(line + "\n" for line in whole), encoding="utf-8")
    return done


def _read(line: str) -> Compared:
    found = json.loads(line)
    values = {name: (own[0], own[1]) for name, own in found.pop("values").items()}
    return Compared(**found, values=values)


def _unscored(one: Pair) -> Compared:
    return Compared(one.seed, one.item.dataset, one.item.id, one.item.prompt_id, {}, {}, INVALID)


def in_world(pairs: Sequence[Pair]) -> list[Compared]:
    """Compare rubrics of the embedded world exactly."""
    from dynamicrubric.benchmarks.worlddimensions import world_dimensions

    found = []
    for one in pairs:
        first, second = (
            world_dimensions(rubric, one.item) for rubric in one.rubrics if rubric is not None
        )
        values = {name: (first[name], second[name]) for name in first}
        outcomes = {name: _exact(*own) for name, own in values.items()}
        found.append(
            Compared(one.seed, one.item.dataset, one.item.id, one.item.prompt_id, outcomes, values)
        )
    return found


def _exact(first: float | None, second: float | None) -> Outcome:
    if first is None or second is None:
        return "unscored"
    if abs(first - second) < 1e-12:
        return "tie"
    return "win" if first > second else "loss"


def by_judge(judge: Verifier) -> Compare:
    """Return what compares rubrics with a verifier as the judge."""
    from dynamicrubric.benchmarks.rubricjudge import judge_pairs

    def compare(pairs: Sequence[Pair]) -> list[Compared]:
        found: list[Compared] = []
        for seed in dict.fromkeys(one.seed for one in pairs):
            own = [one for one in pairs if one.seed == seed]
            asked = [(one.item, *_both(one)) for one in own]
            for one, outcomes in zip(own, judge_pairs(judge, asked, seed), strict=True):
                item = one.item
                found.append(Compared(seed, item.dataset, item.id, item.prompt_id, outcomes, {}))
        return found  # pairs come sorted by seed

    return compare


def _both(one: Pair) -> tuple[Rubric, Rubric]:
    first, second = one.rubrics
    assert first is not None and second is not None, "an invalid rubric is never compared"
    return first, second
