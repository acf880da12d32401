"""The two steps of probes: cells as JSON values in, tables out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamicrubric.plan import parse_recipe
from dynamicrubric.probes.attacks import chosen_attacks
from dynamicrubric.probes.course import CourseRow
from dynamicrubric.probes.files import write_probes
from dynamicrubric.probes.gold import gold_of
from dynamicrubric.probes.measure import ProbeRow
from dynamicrubric.probes.run import Probed, attack_cell, course_of, own_evaluator
from dynamicrubric.probesettings import GoldJudge

if TYPE_CHECKING:
    from dynamicrubric.engines.choice import Engines
    from dynamicrubric.worlds.prepared import PreparedData

GoldDocument = Mapping[str, Any] | None


def probe_cells(
    cells: Sequence[Mapping[str, Any]],
    attacks: Sequence[str],
    sets_per_prompt: int,
    gold_judge: GoldDocument,
    prepared: PreparedData,
    engines: Engines,
    out_dir: Path,
) -> None:
    """Probe cells and write both tables; arguments as `steps.probe_evaluators`."""
    chosen = chosen_attacks(prepared.world.name, attacks)
    gold = gold_of(prepared.world, parse_judge(gold_judge), engines)
    attacked: dict[str, list[ProbeRow]] = {}
    courses: dict[str, list[CourseRow]] = {}
    for number, document in enumerate(cells, start=1):
        one = parse_probed(document)

        def say(line: str, number: int = number) -> None:
            print(f"cell {number} of {len(cells)}: {line}", flush=True)

        evaluator = own_evaluator(one, prepared, engines)
        there = [evaluator] if evaluator else []
        attacked[one.key] = attack_cell(one, chosen, sets_per_prompt, prepared, there, say)
        courses[one.key] = course_of(one, evaluator, gold, say)
    write_probes(attacked, courses, out_dir)


def watch_cell(
    document: Mapping[str, Any],
    gold_judge: GoldDocument,
    prepared: PreparedData,
    engines: Engines,
    out_dir: Path,
) -> None:
    """Compare a cell's policy with an older one and write the table."""
    one = parse_probed(document)
    gold = gold_of(prepared.world, parse_judge(gold_judge), engines)
    rows = course_of(one, own_evaluator(one, prepared, engines), gold)
    write_probes({}, {one.key: rows}, out_dir)


def parse_judge(document: GoldDocument) -> GoldJudge | None:
    """Read the held-out judge back from JSON."""
    return None if document is None else GoldJudge.model_validate(dict(document))


def parse_probed(document: Mapping[str, Any]) -> Probed:
    """Read a cell that is probed back from JSON."""
    return Probed(
        key=str(document["key"]),
        recipe=parse_recipe(document["recipe"]),
        generator_dir=Path(document["generator_dir"]),
        evaluation_dir=Path(document["evaluation_dir"]),
        older={name: Path(folder) for name, folder in document["older"].items()},
    )
