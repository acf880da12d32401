"""Compare the arms of a finished study: results/, the table on the console, the tracker.

Command: `python -m flows compare`, from the project's folder. It trains nothing and loads no model.
With `--partial` it draws what an unfinished or damaged study has, into a folder of its own, marks
everything that it writes, and sends nothing to the tracker: nobody can take it for a finished one.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow
from rich.console import Console
from rich.text import Text

from dynamicrubric.config import load_config
from dynamicrubric.plan import load_plan
from dynamicrubric.report import Comparison, console, write_comparison
from tasks.shipcomparison import log_comparison
from tasks.shipping import reconcile, ship_study

PARTIAL = Path("partial")
"""Folder under results/ of what is drawn of an unfinished study; no out of any DVC stage."""


@flow(name="compare", persist_result=False)
def compare(
    root: Path = Path(), results: Path = Path("results"), partial: bool = False
) -> Comparison:
    """Write and show the comparison, and ship what the tracker has not got.

    Args:
        root: the project's folder.
        results: where metrics.csv, table.md, study.png and report/ go, relative to `root`.
        partial: draw what is there, into `results`/partial.

    Raises:
        UserError: cells of the plan are missing or damaged (all are named); with `partial`, all of
            them are.
    """
    config = load_config(root / "params.yaml")
    plan = load_plan(config, root / "cells.yaml")
    questions = {name: arm.question for name, arm in config.study.arms.items()}
    folder = root / results / PARTIAL if partial else root / results
    found = write_comparison(plan, questions, root, folder, partial=partial)
    shown = Console()
    shown.print(
        console(
            found.outcomes, found.differences, found.questions, found.coevolution, found.anchors
        )
    )
    if found.mark:
        for fault in found.faults:
            reason = "missing" if fault.missing else fault.reason
            shown.print(Text(f"{fault.key}: {reason}", style="red"))
        shown.print(Text(f"{found.mark}. Written to {folder}", style="bold red"))
    if not partial:
        reconcile(root)
        ship_study(plan, root, config)
        log_comparison(plan, found, root, config)
    return found
