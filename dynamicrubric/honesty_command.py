"""`dynamicrubric honesty`: what R_disc pays for in finished cells; with --orders what order does.

Without --orders nothing runs: the tables that each cell's evaluation stored are read. With it, the
generator of each cell writes rubrics anew, in a child process with a log and a deadline; no stored
artefact changes, and nothing is kept.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.honesty.cells import (
    RESPONSE_COLUMNS,
    RUBRIC_COLUMNS,
    VERDICT_COLUMNS,
    Honesty,
    honesty_of,
)
from dynamicrubric.lineage import RECORD, cells_of, read_record, unknown_cell
from dynamicrubric.report.cellfiles import EVALUATION, REMEDY, RUN_IT, checked_file

if TYPE_CHECKING:
    import pandas as pd

    from dynamicrubric.config import Config
    from dynamicrubric.plan import Cell
    from dynamicrubric.report.evidence import Grid

PIPE_COLUMNS: Final = 150
LOG_TAIL: Final = 12
MIN_ORDERS: Final = 2
TABLE_COLUMNS: Final = {
    "responses": RESPONSE_COLUMNS, "rubrics": RUBRIC_COLUMNS, "verdicts": VERDICT_COLUMNS,
}  # fmt: skip


def run_honesty(
    root: Path, keys: Sequence[str], *, orders: int | None, limit: int | None, as_json: bool
) -> None:
    """Print the figures of finished cells.

    Args:
        root: the project's folder.
        keys: cells.
        orders: show each cell's generator its sets in so many orders too; None: do not.
        limit: at most so many sets a cell for that.
        as_json: for machines.

    Raises:
        UserError: a cell is not there, its tables are damaged, or its generator sees no sets.
        InstrumentError: the child failed or ran past its deadline.
    """
    found = {key: cell_honesty(root, key) for key in keys}
    shown = {}
    if orders is not None:
        prepared = {key: _order_request(root, key, orders, limit) for key in keys}
        shown = {key: _in_child(root, key, *request) for key, request in prepared.items()}
    if as_json:
        document = {
            key: asdict(one) | ({"orders": shown[key]} if key in shown else {})
            for key, one in found.items()
        }
        print(json.dumps(document, indent=2, allow_nan=False))
        return
    _print_all(found, shown)


def cell_honesty(root: Path, key: str) -> Honesty:
    """Return the figures of one cell from its stored tables.

    Raises:
        UserError: there is no such cell, or a table is not the recorded one or lacks columns.
    """
    if key not in cells_of(root):
        raise unknown_cell(root, key)
    if not (root / "data" / "runs" / key / EVALUATION / RECORD).is_file():
        raise UserError(
            doing=f"reading the evaluation of {key}",
            got="none: the round is not finished",
            expected="a finished round",
            remedy=RUN_IT,
        )
    record = read_record(root, key, EVALUATION)
    folder = root / "data" / "runs" / key / EVALUATION
    tables = {
        name: _read(checked_file(folder / f"{name}.parquet", record), columns)
        for name, columns in TABLE_COLUMNS.items()
    }
    return honesty_of(tables["responses"], tables["rubrics"], tables["verdicts"])


def _read(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    # Imported here: `dynamicrubric --help` has to stay fast.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        frame: pd.DataFrame = pq.read_table(path, columns=list(columns)).to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, str(error).partition("\n")[0]) from None
    absent = [column for column in columns if column not in frame]
    if absent:
        raise _damaged(path, f"a table without the columns {', '.join(absent)}")
    return frame


def _damaged(path: Path, got: str) -> UserError:
    return UserError(
        doing=f"reading {path}", got=got, expected="a table that an evaluation writes",
        remedy=REMEDY,
    )  # fmt: skip


def _order_request(
    root: Path, key: str, orders: int, limit: int | None
) -> tuple[Config, dict[str, Any]]:
    """Return what the child is asked; refuse what cannot be asked before anything starts."""
    from dynamicrubric.config import load_config
    from dynamicrubric.engines.places import places_document
    from dynamicrubric.plan import expand
    from dynamicrubric.report.cellfiles import load_cell

    config = load_config(root / "params.yaml")
    plan = expand(config)
    cell = plan.cell(key)
    _check_sees_sets(cell)
    files = load_cell(root, cell)
    has_own = (files.folder / "generator").is_dir()  # round 0 has the warm start's
    generator = files.folder / "generator" if has_own else root / cell.generator_dir
    return config, {
        "recipe": cell.recipe.model_dump(mode="json"),
        "evaluation_dir": str(files.folder / EVALUATION),
        "generator_dir": str(generator),
        "prepared_dir": str(root / "data" / "prepared"),
        "engines": places_document(config.runtime, _log(root, key).parent),
        "orders": orders,
        "limit": limit,
    }


def _check_sees_sets(cell: Cell) -> None:
    rubrics = cell.recipe.rubrics
    if rubrics.evaluator == "dynamic" and rubrics.orders == 1:
        return
    already = "averages over orders already"
    what = already if rubrics.orders > 1 else "shows its generator no response set"
    raise UserError(
        doing=f"showing the generator of {cell.key} its sets in other orders",
        got=f"a cell whose evaluator ({rubrics.evaluator!r}) {what}",
        expected="a cell of a dynamic evaluator that is shown each set once",
        remedy="leave out --orders, or name another cell",
    )


def _log(root: Path, key: str) -> Path:
    return root / "work" / "logs" / key / "orders.log"


def _in_child(root: Path, key: str, config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the check in a child process and return its figures."""
    log = _log(root, key)
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dynamicrubric-orders-") as folder:
        asked, result = Path(folder) / "request.json", Path(folder) / "result.json"
        asked.write_text(json.dumps(request, allow_nan=False), encoding="utf-8")
        command = [
            sys.executable, "-m", "dynamicrubric.honesty.orderstep", str(asked), str(result),
            str(os.getpid()),
        ]  # fmt: skip
        code = _watch(command, log, key, 60.0 * config.runtime.task_deadline_minutes)
        if code or not result.is_file():
            raise InstrumentError(
                f"the order check of {key} ended with {code}; all of its log is in {log}: "
                f"{_tail(log)}"
            )
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def _watch(command: Sequence[str], log: Path, key: str, deadline_seconds: float) -> int:
    """Run a command, its output into a log, its progress on the terminal; return its exit code."""
    from dynamicrubric.honesty.orderstep import PROGRESS

    console, late = Console(stderr=True), threading.Event()
    with (
        log.open("w", encoding="utf-8") as stream,
        console.status(f"{key}: loading the generator; log in {log}") as status,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        ) as process,
    ):  # fmt: skip

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(deadline_seconds, end)
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                stream.write(line)
                stream.flush()
                if line.startswith(PROGRESS):
                    status.update(f"{key}: {line.removeprefix(PROGRESS).strip()}; log in {log}")
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    if late.is_set():
        raise InstrumentError(
            f"the order check of {key} ran past runtime.task_deadline_minutes and was ended; its "
            f"log is {log}; give it fewer sets (--limit) or raise the deadline"
        )
    return code


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return " | ".join(lines[-LOG_TAIL:])


def _print_all(found: Mapping[str, Honesty], shown: Mapping[str, Mapping[str, Any]]) -> None:
    from dynamicrubric.report.honestysection import NOTES, items_grid, order_grids, unscored_grids

    written = {key: one for key, one in found.items() if one.written}
    grids = [items_grid("cell", written), *unscored_grids("cell", written)] if written else []
    grids += order_grids(shown)
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_COLUMNS)
    for key in found.keys() - written.keys():
        console.print(Text(f"{key}: its evaluator writes no rubrics"))
    for grid in grids:
        console.print(_table(grid))
    for name, text in NOTES if written else ():
        console.print(Text(f"{name}: {text}"), style="dim")


def _table(grid: Grid) -> RenderableType:
    table = Table(title=Text(grid.title), title_justify="left")
    for number, head in enumerate(grid.heads):
        table.add_column(
            Text(head), justify="left" if number == 0 else "right", no_wrap=number == 0
        )
    for row in grid.rows:
        table.add_row(*map(Text, row))
    return table
