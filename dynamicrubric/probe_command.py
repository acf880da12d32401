"""`dynamicrubric probe`: attacks the evaluators of finished cells in this process; prints, writes.

A study's own probes are a stage (`probe` in params.yaml) that runs in a child process; this command
is for a look at a cell or two, or at evaluators that no arm has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dynamicrubric.config import Config, load_config
from dynamicrubric.durable import ready_folder
from dynamicrubric.errors import UserError
from dynamicrubric.lineage import cells_of, unknown_cell
from dynamicrubric.plan import CellRecipe, Plan, load_plan
from dynamicrubric.probes.names import check_names
from dynamicrubric.probes.planned import ProbedCell, probed

if TYPE_CHECKING:
    from rich.console import JustifyMethod

    from dynamicrubric.evaluators.base import Evaluator
    from dynamicrubric.evaluators.spec import EvaluatorSpec
    from dynamicrubric.probes.course import Course, CourseRow
    from dynamicrubric.probes.figures import AttackFigure
    from dynamicrubric.probes.measure import ProbeRow
    from dynamicrubric.probes.run import Probed

PREPARED_DIR = "data/prepared"
PIPE_COLUMNS = 140
Found = tuple[dict[str, "list[ProbeRow]"], dict[str, "list[CourseRow]"]]


def run_probe(
    root: Path,
    keys: Sequence[str],
    attacks: Sequence[str],
    evaluators: Sequence[str],
    per_prompt: int,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    """Probe cells and show what was found.

    Args:
        root: the project's folder.
        keys: the cells.
        attacks: names of the attacks; none: all.
        evaluators: kinds, or YAML files with an evaluator's values; none: each cell's own.
        per_prompt: held-out sets that are attacked for each prompt.
        out: a new folder for the tables; None: nothing is written.
        as_json: print JSON.

    Raises:
        UserError: a cell is not there or finished, an attack or evaluator is none, `out` is there
            or cannot be written.
    """
    config = load_config(root / "params.yaml")
    plan = load_plan(config, root / "cells.yaml")
    check_names(attacks)
    cells = [_cell(plan, root, key) for key in dict.fromkeys(keys)]
    if per_prompt > config.evaluation.sets_per_prompt:
        raise UserError(
            doing="choosing held-out sets",
            got=f"--sets {per_prompt}",
            expected=f"at most {config.evaluation.sets_per_prompt}, which the evaluations have",
        )
    if out is not None and out.exists():
        raise UserError(doing=f"writing {out}", got="something is there", expected="a new folder")
    specs = [_spec(text) for text in evaluators]
    with _kept_if_filled(out), _telling() as say:
        rows, courses = _measure(root, config, cells, attacks, specs, per_prompt, say)
    if out is not None:
        from dynamicrubric.probes.files import write_probes

        write_probes(rows, courses, out)
    _show(cells, rows, courses, as_json=as_json)


@contextmanager
def _kept_if_filled(out: Path | None) -> Iterator[None]:
    """Have the folder for the tables ready before the work; none stays of a probe that failed."""
    if out is None:
        yield
        return
    ready_folder(out)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            out.rmdir()
        raise


def _cell(plan: Plan, root: Path, key: str) -> ProbedCell:
    """Return a finished cell as it is probed.

    Raises:
        UserError: there is none, it is not finished, or its evaluator is true quality itself.
    """
    from dynamicrubric.report.cellfiles import load_cell

    if key not in (*plan.starts, *plan.cells) and key not in cells_of(root):
        raise unknown_cell(root, key)
    cell = plan.cell(key)
    if cell.recipe.rubrics.evaluator == "oracle":
        raise UserError(
            doing=f"probing {key}",
            got="an oracle, whose score is the true quality itself",
            expected="a cell with an evaluator that can be wrong",
        )
    path = next(keys for keys in plan.paths.values() if key in keys)
    found = probed(plan, path, key, [])
    for one in (cell, *found.older.values()):
        load_cell(root, one)
    if not (root / found.generator_dir / "record.json").is_file():
        raise UserError(
            doing=f"probing {key}",
            got=f"no generator in {root / found.generator_dir}",
            expected="the one that wrote its rubrics",
            remedy="run `make reproduce`, or `dvc pull` if the study was finished elsewhere",
        )
    return found


def _spec(text: str) -> EvaluatorSpec:
    """Return an evaluator by its kind's name, or from a YAML file.

    Raises:
        UserError: it is neither, or the file has a value that is none.
    """
    from pydantic import ValidationError

    from dynamicrubric.evaluators.spec import KINDS, EvaluatorSpec
    from dynamicrubric.yamlio import load_yaml

    path = Path(text)
    if text not in KINDS and not path.is_file():
        raise UserError(
            doing="choosing an evaluator",
            got=repr(text),
            expected=f"a YAML file with its values, or one of {', '.join(KINDS)}",
        )
    values = {"kind": text} if text in KINDS else load_yaml(path)
    try:
        spec = EvaluatorSpec.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(
            doing=f"reading the evaluator {text}",
            got=f"{place + ': ' if place else ''}{first['msg']}",
            expected="values of an evaluator (dynamicrubric/evaluators/spec.py)",
        ) from None
    if spec.kind == "oracle":
        raise UserError(
            doing="choosing an evaluator",
            got="the oracle",
            expected="one that can be wrong: there is nothing to hack in true quality",
        )
    return spec


def _measure(
    root: Path,
    config: Config,
    cells: Sequence[ProbedCell],
    attacks: Sequence[str],
    specs: Sequence[EvaluatorSpec],
    per_prompt: int,
    say: Callable[[str], None],
) -> Found:
    # Imported here: they ask for models.
    from dynamicrubric.engines.places import places_document
    from dynamicrubric.evaluators.build import build_evaluator
    from dynamicrubric.probes.attacks import chosen_attacks
    from dynamicrubric.probes.gold import gold_of
    from dynamicrubric.probes.run import attack_cell, course_of, own_evaluator
    from dynamicrubric.stepparts import engines_of
    from dynamicrubric.worlds.prepared import load_prepared

    prepared = load_prepared(root / PREPARED_DIR)
    chosen = chosen_attacks(prepared.world.name, attacks)
    judge = config.probe.gold_judge if config.probe else None
    rows: dict[str, list[ProbeRow]] = {}
    courses: dict[str, list[CourseRow]] = {}
    places = places_document(config.runtime, root / "work" / "logs" / "probe")
    with engines_of(prepared, places) as engines:
        gold = gold_of(prepared.world, judge, engines)
        built: list[Evaluator] = [build_evaluator(one, prepared, engines) for one in specs]
        for cell in cells:
            one = _on_disk(root, cell)
            own = own_evaluator(one, prepared, engines)
            there = built or ([own] if own else [])
            rows[one.key] = attack_cell(one, chosen, per_prompt, prepared, there, say)
            courses[one.key] = [] if built else course_of(one, own, gold, say)
    return rows, courses


def _on_disk(root: Path, one: ProbedCell) -> Probed:
    from dynamicrubric.probes.run import Probed

    older = {name: root / cell.directory / "evaluation" for name, cell in one.older.items()}
    return Probed(
        one.cell.key,
        one.cell.recipe,
        root / one.generator_dir,
        root / one.evaluation_dir,
        older,
    )


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """Show on stderr what is being measured: a line that changes, or lines where nobody looks."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda line: console.print(Text(line), soft_wrap=True)
        return
    with console.status("opening models") as status:
        yield lambda line: status.update(Text(line))


def _show(
    cells: Sequence[ProbedCell],
    rows: dict[str, list[ProbeRow]],
    courses: dict[str, list[CourseRow]],
    *,
    as_json: bool,
) -> None:
    from dynamicrubric.probes.figures import attack_figures, figure_rows
    from dynamicrubric.probes.files import attack_row

    document: list[dict[str, Any]] = []
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_COLUMNS)
    for one in cells:
        key, recipe = one.cell.key, one.cell.recipe
        figures = attack_figures({recipe.seed: [attack_row(key, row) for row in rows[key]]})
        told = _courses(recipe, courses[key])
        if as_json:
            document.append(
                {"cell": key, "attacks": figure_rows(figures), "course": list(map(_values, told))}
            )
            continue
        for evaluator in dict.fromkeys(figure.evaluator for figure in figures):
            own = [figure for figure in figures if figure.evaluator == evaluator]
            console.print(_table(f"{key}: attacks on the evaluator {evaluator}", own))
        for course in told:
            console.print(Text(_sentence(key, course)), soft_wrap=True)
    if as_json:
        print(json.dumps(document, indent=2, allow_nan=False))


def _courses(recipe: CellRecipe, rows: Sequence[CourseRow]) -> list[Course]:
    from dynamicrubric.probes.course import courses_of, distinct
    from dynamicrubric.probes.names import REFERENCES

    by_reference = {
        name: {recipe.seed: own}
        for name in REFERENCES
        if (own := [row for row in rows if row.reference == name])
    }
    return courses_of(distinct(by_reference, recipe.round))


def _sentence(key: str, course: Course) -> str:
    from dynamicrubric.probes.watch import sentence_of

    return sentence_of(key, course)


def _values(course: Course) -> dict[str, Any]:
    return {
        "reference": course.reference,
        "proxy": course.proxy.mean,
        "proxy_interval": course.proxy.interval,
        "gold": course.gold.mean,
        "gold_interval": course.gold.interval,
        "p_corrected": course.p_value,
        "diverges": course.diverges,
    }


def _table(title: str, figures: Sequence[AttackFigure]) -> Table:
    from dynamicrubric.probes.figures import FINDINGS
    from dynamicrubric.report.phrases import of_all, share, signed
    from dynamicrubric.report.probesection import between

    table = Table(title=title, title_justify="left")
    for head in ("attack", "order", "rubric", "score", "interval", "rank", "true quality",
                 "wins rank", "unearned", "scored", "finding"):  # fmt: skip
        side: JustifyMethod = "left" if head in ("attack", "finding") else "right"
        table.add_column(head, justify=side, no_wrap=head == "attack")
    for one in figures:
        table.add_row(
            one.attack, one.order, one.mode, signed(one.score.mean, 3),
            between(one.score.estimate.interval), signed(one.rank.mean, 3),
            signed(one.quality.mean, 3), share(one.wins_rank.value), share(one.unearned.value),
            of_all(one.score.n_scored, one.score.n_total), FINDINGS[one.finding],
        )  # fmt: skip
    return table
